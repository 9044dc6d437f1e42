import { Presets, SingleBar } from "cli-progress";
import type { Output } from "../io.ts";

/** How far the reading is, on a terminal; nothing anywhere else. */
export class Progress {
  readonly #bar: SingleBar | undefined;
  readonly #size: number | undefined;
  #bytes = 0;

  /**
   * @param size of the log, bytes; undefined where it is not known
   * @param output where to, if at all
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
    const payload = { lines: lines.toLocaleString("en") };
    this.#bar?.update(this.#size === undefined ? 0 : this.#bytes, payload);
  }

  /** A line of its own, above the bar. */
  note(text: string, output: Output): void {
    output.write(this.#bar === undefined ? `${text}\n` : `\r\u001b[K${text}\n`);
  }

  stop(): void {
    this.#bar?.stop();
  }
}
