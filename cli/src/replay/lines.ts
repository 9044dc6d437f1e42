import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";

/** In characters. A longer line is not from an access log, and would fill the memory. */
export const LONGEST_LINE = 2 ** 20;

/**
 * Reads the lines of a log in batches: handing them over one by one would cost more than reading
 * them. Of a line that is longer than `LONGEST_LINE` there is only the beginning, which is longer too.
 *
 * @param source bytes; gzip, detected by its first two bytes, is unpacked
 */
export async function* readLines(source: Readable): AsyncGenerator<readonly string[]> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of unpacked(source)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = (lines.pop() ?? "").slice(0, LONGEST_LINE + 1);
    yield lines;
  }
  rest += decoder.decode();
  if (rest !== "") yield [rest];
}

async function* unpacked(source: Readable): AsyncIterable<Buffer> {
  const chunks: AsyncIterableIterator<Buffer> = source[Symbol.asyncIterator]();
  let head = Buffer.alloc(0);
  while (head.length < 2) {
    const { value, done } = await chunks.next();
    if (done) break;
    head = Buffer.concat([head, value]);
  }
  const all = (async function* () {
    yield head;
    yield* chunks;
  })();
  const isPacked = head[0] === 0x1f && head[1] === 0x8b;
  // the pipeline forwards errors of the source, and stops the source after errors of the unpacking
  yield* isPacked
    ? pipeline(Readable.from(all), createGunzip({ chunkSize: 2 ** 18 }), () => {})
    : all;
}
