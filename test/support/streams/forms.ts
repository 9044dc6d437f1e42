/** The three forms in which a stream is paced, as one function: tests run on all of them. */
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { paced, throttle, type WeighedOptions } from "../../../src/adapters/streams/index.ts";
import { throttleNode } from "../../../src/adapters/streams/node.ts";
import type { Limiter, TryOptions } from "../../../src/api/limiter-api.ts";
import type { Permits } from "../../../src/ground/permits.ts";

type Take<T> = (chunk: T) => void | Promise<void>;
type Options<T> = Partial<WeighedOptions<T>>;

/** Passes the chunks of a source to a receiver; rejects as the stream does. */
export type Form = <T = Uint8Array>(
  source: AsyncIterable<T> | Iterable<T>,
  limiter: Limiter,
  take: Take<T>,
  options?: Options<T>,
) => Promise<void>;

/** A source that is asked for one chunk at a time, and is ended when no more chunks are needed. */
export function webSource<T>(source: AsyncIterable<T> | Iterable<T>): ReadableStream<T> {
  const iterator = iterate(source);
  return new ReadableStream<T>(
    {
      async pull(controller) {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await iterator.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

async function* iterate<T>(source: AsyncIterable<T> | Iterable<T>) {
  yield* source;
}

export const forms: Readonly<Record<string, Form>> = {
  web: async <T>(
    source: AsyncIterable<T> | Iterable<T>,
    limiter: Limiter,
    take: Take<T>,
    options = {},
  ) => {
    const paced = throttle<T>(limiter, options as WeighedOptions<T>);
    const sink = new WritableStream<T>({ write: take });
    await webSource(source).pipeThrough(paced).pipeTo(sink);
  },

  node: async <T>(
    source: AsyncIterable<T> | Iterable<T>,
    limiter: Limiter,
    take: Take<T>,
    options = {},
  ) => {
    const paced = throttleNode(limiter, options as WeighedOptions<T>);
    const from = Readable.from(iterate(source), {
      objectMode: "weigh" in options,
      highWaterMark: 0,
    });
    const sink = new Writable({
      objectMode: "weigh" in options,
      highWaterMark: 0,
      write(chunk, _encoding, callback) {
        (async () => take(chunk))().then(() => callback(), callback);
      },
    });
    await pipeline(from, paced, sink);
  },

  iterable: async <T>(
    source: AsyncIterable<T> | Iterable<T>,
    limiter: Limiter,
    take: Take<T>,
    options = {},
  ) => {
    for await (const chunk of paced(source, limiter, options as WeighedOptions<T>)) {
      await take(chunk);
    }
  },
};

/** A local limiter that behaves like a remote one: all its answers come later. */
export function elsewhere(limiter: Limiter): Limiter {
  const later = async <T>(verb: () => T | Promise<T>): Promise<T> => {
    await Promise.resolve();
    return verb();
  };
  return {
    acquire: (...args) => later(() => limiter.acquire(...args)),
    tryAcquire: (permits?: Permits | TryOptions, wait?: number | TryOptions) =>
      later(() => limiter.tryAcquire(permits as Permits, wait as number)),
    reserve: (permits) => later(() => limiter.reserve(permits)),
    decide: (permits) => later(() => limiter.decide(permits)),
    peek: (permits) => later(() => limiter.peek(permits)),
    charge: (permits) => later(() => limiter.charge(permits)),
    refund: (permits) => later(() => limiter.refund(permits)),
    pause: (ms) => later(() => limiter.pause(ms)),
    reset: () => later(() => limiter.reset()),
    update: (policies) => later(() => limiter.update(policies)),
  };
}

/** A limiter that counts its calls. */
export function counted(limiter: Limiter): { limiter: Limiter; calls: Record<string, number> } {
  const calls: Record<string, number> = {};
  const proxy = new Proxy(limiter, {
    get(target, verb) {
      const value: unknown = Reflect.get(target, verb);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        calls[String(verb)] = (calls[String(verb)] ?? 0) + 1;
        return Reflect.apply(value, target, args);
      };
    },
  });
  return { limiter: proxy, calls };
}

/** A total of bytes in chunks of those sizes, repeated. */
export function* chunksOf(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** The same chunk for ever. */
export function* endless(size: number): Generator<Uint8Array> {
  for (const chunk = new Uint8Array(size); ; ) yield chunk;
}
