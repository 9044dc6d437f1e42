/**
 * What does it cost to pace a stream, and is the pace kept? Chunks of 64 KiB go through each form, beside the same pipeline without a
 * throttle and with the platform's own transformer that does nothing.
 *
 * 1. The target hashes the bytes, which is slower than the limiter's 1 GiB a second: the loss of throughput is the throttle's cost.
 * 2. The target does nothing, and the rate is out of reach or `Infinity`: only the cost of passing chunks on is left. Then the same with
 *    small chunks.
 * 3. The pace itself on the real clock, all forms at once; and ten streams that share a limiter.
 */
import { createHash } from "node:crypto";
import { Duplex, PassThrough, Readable, type Transform, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { RateLimiter } from "smooth-limiter";
import { paced, throttle } from "smooth-limiter/streams";
import { throttleNode } from "smooth-limiter/streams/node";
import { short } from "./lib/options.ts";
import { table, target } from "./lib/report.ts";
import { inTurns, print } from "./lib/turns.ts";

const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

type Take = (chunk: Uint8Array) => void;
type Run = (chunks: Iterable<Uint8Array>, take: Take) => Promise<void>;
type Ends = { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array> };

function* chunksOf(size: number, bytes: number): Generator<Uint8Array> {
  const chunk = new Uint8Array(size);
  for (let left = bytes; left > 0; left -= size) yield chunk;
}

async function* later(chunks: Iterable<Uint8Array>) {
  yield* chunks;
}

const web =
  (through?: () => Ends): Run =>
  async (chunks, take) => {
    const iterator = chunks[Symbol.iterator]();
    const pull = (controller: ReadableStreamDefaultController<Uint8Array>) => {
      const { done, value } = iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    };
    const source = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const sink = new WritableStream<Uint8Array>({ write: take });
    await (through ? source.pipeThrough(through()) : source).pipeTo(sink);
  };

const node =
  (through?: () => Transform | Duplex): Run =>
  async (chunks, take) => {
    const iterator = chunks[Symbol.iterator]();
    const source = new Readable({
      read() {
        this.push(iterator.next().value ?? null);
      },
    });
    const sink = new Writable({
      write(chunk, _encoding, callback) {
        take(chunk);
        callback();
      },
    });
    await (through ? pipeline(source, through(), sink) : pipeline(source, sink));
  };

const iterable =
  (limiter?: () => RateLimiter): Run =>
  async (chunks, take) => {
    const source = later(chunks);
    for await (const chunk of limiter ? paced(source, limiter()) : source) take(chunk);
  };

/** Each form of stream without a throttle, with the platform's transformer, and with ours. */
function contenders(rate: number): Record<string, Run> {
  const limiter = () => RateLimiter.create(rate);
  return {
    "web, bare": web(),
    "web, identity TransformStream": web(() => new TransformStream()),
    "web, throttle": web(() => throttle(limiter())),
    "Node, bare": node(),
    "Node, PassThrough": node(() => new PassThrough()),
    "Node, throttleNode": node(() => throttleNode(limiter())),
    "Node, Duplex.fromWeb(throttle)": node(() =>
      // Node and the DOM declare the same streams differently
      Duplex.fromWeb(throttle(limiter()) as unknown as Parameters<typeof Duplex.fromWeb>[0]),
    ),
    "iterable, bare": iterable(),
    "iterable, paced": iterable(limiter),
  };
}

const figure = (show: string) => (perSecond: number) => `${perSecond.toFixed(2)} ${show}`;

async function sideBySide(rate: number, bytes: number, size: number, unit: number, hash: boolean) {
  const measures = Object.entries(contenders(rate)).map(([name, run]) => {
    const measure = async () => {
      const digest = createHash("sha512");
      // processor time, so that other work of the machine does not count
      const before = process.cpuUsage();
      await run(chunksOf(size, bytes), (chunk) => {
        if (hash) digest.update(chunk);
      });
      const { user, system } = process.cpuUsage(before);
      return (1e6 * bytes) / unit / (user + system);
    };
    return [name, measure] as const;
  });
  return inTurns(Object.fromEntries(measures));
}

const hashed = await sideBySide(GIB, 64 * MIB, 64 * KIB, GIB, true);
const ofHashed = print("hashed as sha512, 1 GiB a second allowed", hashed, figure("GiB/s"));
for (const [ours, bare] of [
  ["web, throttle", "web, bare"],
  ["Node, throttleNode", "Node, bare"],
  ["iterable, paced", "iterable, bare"],
] as const) {
  const share = ofHashed(ours, bare);
  target(`${ours}: at least 75 % of ${bare}`, share >= 0.75, `${(100 * share).toFixed(1)} %`);
}

for (const [name, rate] of [
  ["never limited", 1e15],
  ["without a limit", Infinity],
] as const) {
  const passed = await sideBySide(rate, GIB, 64 * KIB, GIB, false);
  const ofPassed = print(`nothing done with them, ${name}`, passed, figure("GiB/s"));
  const share = ofPassed("Node, throttleNode", "Node, PassThrough");
  const what = `Node, throttleNode, ${name}: at least 80 % of a PassThrough`;
  target(what, share >= 0.8, `${(100 * share).toFixed(1)} %`);
  const tiny = await sideBySide(rate, MIB / 4, 20, MIB, false);
  print(`the same in chunks of 20 bytes, ${name}`, tiny, figure("MiB/s"));
}

for (const size of [1, 1000]) {
  const small = await sideBySide(1e9, 10_000 * size, size, MIB, false);
  const ofSmall = print(`chunks of ${size} bytes, 1 GB a second allowed`, small, figure("MiB/s"));
  const cost = 1 / ofSmall("web, throttle", "web, identity TransformStream");
  const what = `web, throttle, ${size} bytes: at most 1.1 × an identity stream`;
  target(what, cost <= 1.1, `${cost.toFixed(2)} ×`);
}

const seconds = short ? 2 : 8;
const rate = 8 * MIB;
const rows = await Promise.all(
  Object.entries(contenders(rate))
    .filter(([name]) => /throttle|paced/.test(name))
    .map(async ([name, run]) => {
      const start = performance.now();
      await run(chunksOf(64 * KIB, seconds * rate), () => {});
      const took = performance.now() - start;
      return { name, took, off: took / (1000 * seconds) - 1 };
    }),
);
console.log(`\n${(seconds * rate) / MIB} MiB at 8 MiB a second, all at once`);
const percent = (share: number) => `${(100 * share).toFixed(2)} %`;
table(
  ["", "took", `to ${seconds} s`],
  rows.map(({ name, took, off }) => [name, `${took.toFixed(1)} ms`, percent(off)]),
);
// the first 50 ms' worth of bytes passes at once
const worst = Math.max(...rows.map(({ off }) => Math.abs(off)));
target("within 1 % of the time", short ? undefined : worst <= 0.01, percent(worst));

const shared = RateLimiter.create(10 * MIB);
const controller = new AbortController();
const { signal } = controller;
const got = Array.from({ length: 10 }, () => 0);
const sharing = got.map(async (_, i) => {
  const chunks = chunksOf(1000 * 4 ** (i % 5), Infinity);
  try {
    for await (const { length } of paced(chunks, shared, { signal })) {
      got[i] = (got[i] ?? 0) + length;
    }
  } catch (error) {
    if (error !== signal.reason) throw error;
  }
});
setTimeout(() => controller.abort(), 1000 * seconds);
await Promise.all(sharing);
const deviation = Math.max(...got.map((bytes) => Math.abs(bytes / (seconds * MIB) - 1)));
console.log("\nten streams, chunks of 1 000 to 256 000 bytes, share 10 MiB a second");
target(
  "each gets 1 MiB a second ± 5 %",
  deviation <= 0.05,
  `off by ${percent(deviation)} at worst`,
);
