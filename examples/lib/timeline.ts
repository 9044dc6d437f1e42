/**
 * Prints requests over time: a row for each half second, and a mark for each request when its answer arrives. It only
 * appends, so the output looks the same on a terminal and in a file.
 */
import { stdout } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";

export const ACCEPTED = colors.green("■");
export const REFUSED = colors.red("×");

const ROW_MS = 500;
const WIDTH = 32;

export class Timeline {
  readonly #startedAt = performance.now();
  readonly #ticker = setInterval(() => this.#catchUp(), 20);
  #row = 0;
  #accepted = 0;
  #refused = 0;

  constructor() {
    this.#beginRow();
  }

  /** Draws a mark for an answered request. */
  mark(accepted: boolean): void {
    this.#catchUp();
    stdout.write(accepted ? ACCEPTED : REFUSED);
    if (accepted) this.#accepted += 1;
    else this.#refused += 1;
  }

  /** Waits at least so long, until the beginning of a row. */
  async rest(ms: number): Promise<void> {
    const rows = Math.ceil((this.#elapsed() + ms) / ROW_MS);
    await sleep(rows * ROW_MS - this.#elapsed());
  }

  /** Ends the last row. */
  end(): void {
    clearInterval(this.#ticker);
    this.#endRow();
  }

  #elapsed(): number {
    return performance.now() - this.#startedAt;
  }

  #catchUp(): void {
    while (this.#elapsed() >= (this.#row + 1) * ROW_MS) {
      this.#endRow();
      this.#row += 1;
      this.#beginRow();
    }
  }

  #beginRow(): void {
    const seconds = ((this.#row * ROW_MS) / 1000).toFixed(1);
    stdout.write(colors.dim(`${seconds.padStart(7)} s  `));
    this.#accepted = 0;
    this.#refused = 0;
  }

  #endRow(): void {
    const marks = this.#accepted + this.#refused;
    const gap = " ".repeat(Math.max(1, WIDTH - marks));
    const accepted = colors.dim(String(this.#accepted).padStart(2));
    const refused = this.#refused > 0 ? colors.red(` and ${this.#refused} refused`) : "";
    stdout.write(marks > 0 ? `${gap}${accepted}${refused}\n` : colors.dim("pause\n"));
  }
}
