/**
 * `throttle` for Node's own streams. It is a separate entry point, so that the web form does not load any
 * module of Node.
 *
 * `Duplex.fromWeb(throttle(limiter))` does the same, but each chunk costs about ten times as much: see
 * `bench/streams.bench.ts`.
 */
import { Transform, type TransformCallback } from "node:stream";
import type { Limiter } from "../../api/limiter-api.ts";
import { Credit } from "./credit.ts";
import {
  type CheckedStreamOptions,
  checkPaceOptions,
  headOf,
  type PaceOptions,
  restOf,
  sizeOf,
  type Weigh,
  type WeighedOptions,
} from "./options.ts";
import { StreamSignal } from "./stream-signal.ts";

export type { PaceOptions, Weigh, WeighedOptions } from "./options.ts";

/**
 * Paces a Node stream of bytes: `pipeline(source, throttleNode(limiter), target)`, as `throttle` of
 * `smooth-limiter/streams` paces those of the platform.
 *
 * @param limiter any limiter of this package, in this process or on Redis
 * @param options the options of `throttle`; with `weigh` the stream is in object mode, and chunks are
 *   not cut
 * @returns a Transform; an error of the limiter, or the signal's abort, destroys it with that error or the
 *   signal's own reason. Strings that are written come out as bytes
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = RateLimiter.create(1024 * 1024); // 1 MiB a second, for all responses together
 * await pipeline(createReadStream(path), throttleNode(limiter), response);
 */
export function throttleNode(limiter: Limiter, options?: PaceOptions): Transform;
export function throttleNode<T>(limiter: Limiter, options: WeighedOptions<T>): Transform;
export function throttleNode<T>(
  limiter: Limiter,
  options: PaceOptions & Partial<WeighedOptions<T>> = {},
): Transform {
  const checked = checkPaceOptions(limiter, options);
  return new Throttle(new Credit(limiter, checked), checked);
}

class Throttle<T> extends Transform {
  readonly #credit: Credit;
  readonly #weigh: Weigh<T> | undefined;
  readonly #signal: StreamSignal<Throttle<T>>;
  /** Continues with the current chunk; called when the reader wants more. */
  #resume: (() => void) | undefined;

  constructor(credit: Credit, { weigh, signal }: CheckedStreamOptions<T>) {
    // holds one chunk and buffers no other
    super({ objectMode: weigh !== undefined, highWaterMark: 0 });
    this.#credit = credit;
    this.#weigh = weigh;
    this.#signal = new StreamSignal(signal, destroyThrottle);
    // deferred: an error before the stream is piped would have no listener
    if (signal?.aborted) queueMicrotask(() => this.destroy(signal.reason));
    else this.#signal.listen(this);
  }

  /** In the place of `_transform`, which would get a closure for each chunk. */
  override _write(chunk: T, _encoding: string, callback: TransformCallback): void {
    this.#signal.hold(this);
    let size: number;
    let passes: number | undefined;
    try {
      size = sizeOf(chunk, this.#weigh);
      passes = this.#credit.take(size);
    } catch (error) {
      callback(error as Error);
      return;
    }
    if (passes === size) this.#passLast(chunk, callback);
    else this.#pass(chunk, size, passes, callback);
  }

  /** Passes a chunk piece by piece until all of it has passed. */
  #pass(chunk: T, size: number, first: number | undefined, callback: TransformCallback): void {
    let rest = chunk;
    let left = size;
    for (let passes = first; passes !== left; passes = this.#credit.take(left)) {
      if (passes === undefined) {
        if (this.#buy(rest, left, callback)) return;
        continue;
      }
      const more = this.push(headOf(rest, passes));
      rest = restOf(rest, passes);
      left -= passes;
      if (!more) {
        this.#resume = () => this.#pass(rest, left, this.#credit.take(left), callback);
        return;
      }
    }
    this.#passLast(rest, callback);
  }

  /** Passes what is left of a chunk; the next chunk comes when the reader wants more. */
  #passLast(rest: T, callback: TransformCallback): void {
    if (this.push(rest)) callback();
    else this.#resume = callback;
  }

  /** Buys permits. @returns true if the rest passes later, or never; false if it can pass now */
  #buy(rest: T, left: number, callback: TransformCallback): boolean {
    try {
      const bought = this.#credit.buy(left);
      bought?.then(
        () => this.#pass(rest, left, this.#credit.take(left), callback),
        // a destroyed stream has an error already, or must not get one
        (error) => this.destroyed || callback(error),
      );
      return bought !== undefined;
    } catch (error) {
      callback(error as Error);
      return true;
    }
  }

  override _read(): void {
    this.#signal.hold(this);
    const resume = this.#resume;
    this.#resume = undefined;
    resume?.();
  }

  override _flush(callback: TransformCallback): void {
    this.#end();
    callback();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#end(error ?? undefined);
    callback(error);
  }

  #end(reason?: unknown): void {
    this.#signal.release();
    this.#credit.close(reason);
  }
}

function destroyThrottle<T>(throttle: Throttle<T>, reason: unknown): void {
  throttle.destroy(reason as Error);
}
