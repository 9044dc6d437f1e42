import { Presets, SingleBar } from "cli-progress";
import type { Output } from "../io.ts";

/**
 * Creates a bar that shows the progress of the reading on a terminal; elsewhere it shows nothing.
 *
 * @param size of the log, bytes; undefined if unknown
 */
export function progressBar(size: number | undefined, stream: Output): SingleBar {
  const format =
    size === undefined
      ? "{lines} lines, {duration_formatted}"
      : "{bar} {percentage} % | {lines} lines | {duration_formatted}, left {eta_formatted}";
  // with linewrap the bar is cut to the terminal, whose state a command that is stopped need not restore
  const options = { format, stream, clearOnComplete: true, linewrap: true };
  return new SingleBar(options, Presets.shades_grey);
}

/** Writes a line above the bar. */
export function note(text: string, bar: SingleBar, stream: Output): void {
  // ends by saving the position, to which the bar returns when it stops
  stream.write(bar.isActive ? `\r\u001b[K${text}\n\u001b7` : `${text}\n`);
}
