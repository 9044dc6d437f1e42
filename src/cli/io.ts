import { createReadStream } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { createColors } from "picocolors";

/** What a command talks to, so that tests can be the other side. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number };

/** A file or an argument that a command can do nothing with: exit code 2. */
export class CliError extends Error {}

export type Colors = ReturnType<typeof createColors>;

/** On a terminal only, and not where NO_COLOR is set to anything; FORCE_COLOR wants them anywhere. */
export function colorsOf({ env }: Io, output: Output): Colors {
  if (env.NO_COLOR) return createColors(false);
  const isForced = env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== "0";
  return createColors(isForced || (output.isTTY === true && env.TERM !== "dumb"));
}

/** A file's name, or "-" for what is piped in. */
export function open(path: string, { stdin }: Io): Readable {
  return path === "-" ? stdin : createReadStream(path, { highWaterMark: 2 ** 18 });
}

/** What messages call it. */
export function sourceName(path: string): string {
  return path === "-" ? "stdin" : path;
}

/** Rules are short: whoever gives a log by mistake is told so before the memory is full. */
const LONGEST_BYTES = 2 ** 24;

export async function readText(path: string, io: Io): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of open(path, io)) {
      const bytes = Buffer.from(chunk);
      length += bytes.length;
      if (length > LONGEST_BYTES) throw new Error(`more than ${LONGEST_BYTES} bytes`);
      chunks.push(bytes);
    }
  } catch (error) {
    throw unreadable(path, error);
  }
  return Buffer.concat(chunks).toString("utf8");
}

export function unreadable(path: string, error: unknown): CliError {
  const reason = error instanceof Error ? error.message : String(error);
  return new CliError(`${sourceName(path)}: cannot be read: ${reason}`, { cause: error });
}

/**
 * What others wrote, as a terminal may see it: a line break or an escape sequence in a log must not
 * do anything there.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`,
  );
}
