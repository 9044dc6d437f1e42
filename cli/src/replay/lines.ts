import { pipeline, Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { createGunzip } from "node:zlib";

/** In characters. A longer line is not from an access log, and would fill the memory. */
const LONGEST = 2 ** 20;

/** A line; undefined if it was too long to be kept. */
export type Line = string | undefined;

/**
 * Reads the lines of a log in batches: handing them over one by one would cost more than reading
 * them.
 *
 * @param source bytes; gzip, detected by its first two bytes, is unpacked
 * @param onBytes called with the number of bytes read from the source, before unpacking
 */
export async function* readLines(
  source: Readable,
  onBytes: (count: number) => void,
): AsyncGenerator<readonly Line[]> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  let isTooLong = false;
  let isFirst = true;
  for await (const chunk of unpacked(source, onBytes)) {
    let text = decoder.write(chunk);
    if (isFirst && text !== "") {
      text = text.replace(/^\ufeff/, "");
      isFirst = false;
    }
    const lines: Line[] = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    if (isTooLong && lines.length > 0) {
      lines[0] = undefined;
      isTooLong = false;
    }
    if (rest.length > LONGEST || isTooLong) {
      isTooLong = true;
      rest = "";
    }
    yield lines;
  }
  rest += decoder.end();
  if (isTooLong) yield [undefined];
  else if (rest !== "") yield [rest];
}

async function* unpacked(
  source: Readable,
  onBytes: (count: number) => void,
): AsyncIterable<Buffer> {
  const chunks = counted(source, onBytes);
  const head: Buffer[] = [];
  let length = 0;
  while (length < 2) {
    const { value, done } = await chunks.next();
    if (done) break;
    head.push(value);
    length += value.length;
  }
  const first = Buffer.concat(head);
  const all = (async function* () {
    yield first;
    yield* chunks;
  })();
  if (first[0] !== 0x1f || first[1] !== 0x8b) {
    yield* all;
    return;
  }
  // the pipeline forwards errors of the source, and stops the source after errors of the unpacking
  yield* pipeline(Readable.from(all), createGunzip({ chunkSize: 2 ** 18 }), () => {});
}

async function* counted(
  source: Readable,
  onBytes: (count: number) => void,
): AsyncGenerator<Buffer, void> {
  for await (const chunk of source) {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Buffer);
    onBytes(bytes.length);
    yield bytes;
  }
}
