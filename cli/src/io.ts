import { createReadStream } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { createColors } from "picocolors";

/** The input and output of a command; tests pass their own. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number };

/** An error in a file or an argument with which a command cannot go on: exit code 2. */
export class CliError extends Error {}

export type Colors = ReturnType<typeof createColors>;

/** Colours are used on a terminal unless NO_COLOR is set; FORCE_COLOR turns them on everywhere. */
export function colorsOf({ env }: Io, output: Output): Colors {
  if (env.NO_COLOR) return createColors(false);
  const isForced = env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== "0";
  return createColors(isForced || (output.isTTY === true && env.TERM !== "dumb"));
}

/** Opens a file, or stdin for "-". */
export function open(path: string, { stdin }: Io): Readable & { readonly bytesRead?: number } {
  return path === "-" ? stdin : createReadStream(path, { highWaterMark: 2 ** 18 });
}

/** The name of the source in messages. */
export function sourceName(path: string): string {
  return path === "-" ? "stdin" : path;
}

/** The longest rules, bytes: a log that was given by mistake must not fill the memory. */
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
 * Escapes control characters: line breaks and escape sequences of a log must not reach the
 * terminal.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|\\(?=u\{)/gu,
    (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`,
  );
}

/** Reads a text that was printed. */
export function unescaped(text: string): string {
  return text.replace(/\\u\{(0*(?:10|[\da-f])?[\da-f]{1,4})\}/gi, (_, code: string) =>
    String.fromCodePoint(Number.parseInt(code, 16)),
  );
}

export function json(value: unknown): string {
  const text = JSON.stringify(value, null, 2);
  const escaped = text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) =>
    [...Array(char.length).keys()]
      .map((i) => `\\u${char.charCodeAt(i).toString(16).padStart(4, "0")}`)
      .join(""),
  );
  return `${escaped}\n`;
}
