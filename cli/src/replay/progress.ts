import { Presets, SingleBar } from "cli-progress";
import type { Output } from "../io.ts";
import { number } from "../words.ts";

/** Shows the progress of the reading on a terminal; does nothing elsewhere. */
export class Progress {
  readonly #bar: SingleBar | undefined;
  readonly #size: number | undefined;
  #bytes = 0;

  /**
   * @param size of the log, bytes; undefined if unknown
   * @param output where to show it; undefined: nowhere
   */
  constructor(size: number | undefined, output: Output | undefined) {
    this.#size = size;
    if (!output?.isTTY) return;
    const format =
      size === undefined
        ? "{lines} lines, {duration_formatted}"
        : "{bar} {percentage} % | {lines} lines | {duration_formatted}, left {eta_formatted}";
    const options = { format, stream: output, clearOnComplete: true, hideCursor: true };
    this.#bar = new SingleBar(options, Presets.shades_grey);
    this.#bar.start(size ?? 0, 0, { lines: 0 });
  }

  read(bytes: number): void {
    this.#bytes += bytes;
  }

  at(lines: number): void {
    this.#bar?.update(this.#size === undefined ? 0 : this.#bytes, { lines: number(lines) });
  }

  /** Writes a line above the progress bar. */
  note(text: string, output: Output): void {
    output.write(this.#bar === undefined ? `${text}\n` : `\r\u001b[K${text}\n`);
  }

  stop(): void {
    this.#bar?.stop();
  }
}
