/**
 * `throttle` for Node's own streams, in an entry of its own: the web form loads nothing of Node.
 *
 * `Duplex.fromWeb(throttle(limiter))` does the same, but each chunk costs some ten times as much:
 * see `bench/streams.bench.ts`.
 */
import { Transform, type TransformCallback } from "node:stream";
import type { Limiter } from "../../limiter/face.ts";
import { Credit } from "./credit.ts";
import {
  type CheckedOptions,
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
 * Paces a Node stream of bytes: `pipeline(source, throttleNode(limiter), target)`. The bytes pass
 * unchanged and in order, no faster than the limiter has permits, one for each byte; big chunks are
 * cut, small ones are paid for together. Any number of streams may share the limiter, by turns.
 *
 * @param limiter any limiter of this package, in this process or on Redis
 * @param options as those of `throttle`; with `weigh` the stream is in object mode, and chunks are not
 *   cut
 * @returns a Transform; what the limiter throws, and the signal's own reason, destroy it. Strings
 *   that are written come out as bytes
 * @throws RangeError or TypeError that names the argument, its bound and what it got
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
  /** Goes on with the chunk in hand, when the reader wants more. */
  #resume: (() => void) | undefined;

  constructor(credit: Credit, { weigh, signal }: CheckedOptions<T>) {
    // one chunk in hand and none beside it
    super({ objectMode: weigh !== undefined, highWaterMark: 0 });
    this.#credit = credit;
    this.#weigh = weigh;
    this.#signal = new StreamSignal(signal, destroyThrottle);
    // an error before it is piped would have no listener
    if (signal?.aborted) queueMicrotask(() => this.destroy(signal.reason));
    else this.#signal.listen(this);
  }

  override _transform(chunk: T, _encoding: string, callback: TransformCallback): void {
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
    if (passes === size) callback(null, chunk);
    else this.#pass(chunk, size, passes, callback);
  }

  /** The next piece of a chunk, and so on until all has passed. */
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
    callback(null, rest);
  }

  /** @returns whether the rest passes later, or never */
  #buy(rest: T, left: number, callback: TransformCallback): boolean {
    try {
      const bought = this.#credit.buy(left);
      bought?.then(
        () => this.#pass(rest, left, this.#credit.take(left), callback),
        // a destroyed stream has an error of its own, or none
        (error) => this.destroyed || callback(error),
      );
      return bought !== undefined;
    } catch (error) {
      callback(error as Error);
      return true;
    }
  }

  override _read(size: number): void {
    this.#signal.hold(this);
    const resume = this.#resume;
    if (resume === undefined) {
      super._read(size);
      return;
    }
    this.#resume = undefined;
    resume();
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
