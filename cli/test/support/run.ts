import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { run } from "../../src/program.ts";

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

interface Setting {
  /** The input, in one chunk or in several. */
  readonly stdin?: string | Buffer | readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly isTTY?: boolean;
}

/** Runs the command in this process. @returns its exit code and what it printed */
export async function cli(
  args: readonly string[],
  { stdin = "", env = {}, isTTY = false }: Setting = {},
): Promise<Ran> {
  const [stdout, out] = sink(isTTY);
  const [stderr, err] = sink(isTTY);
  const code = await run(args, {
    stdin: Readable.from([stdin].flat().map((chunk) => Buffer.from(chunk))),
    stdout,
    stderr,
    env,
  });
  await new Promise(setImmediate);
  return { code, out: out(), err: err() };
}

function sink(isTTY: boolean): readonly [PassThrough & { isTTY: boolean }, () => string] {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 80 });
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  return [stream, () => Buffer.concat(chunks).toString()];
}

/** Creates a temporary folder with files, runs `go`, and removes the folder. */
export async function inFolder<T>(
  files: Readonly<Record<string, string | Buffer>>,
  go: (path: (name: string) => string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "smooth-limiter-cli-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return await go((name) => join(folder, name));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
