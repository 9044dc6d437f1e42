/**
 * A web TransformStream that paces its chunks.
 *
 * Both ends are separate streams, made here. The platform's own transformer detects an abort only after
 * the current chunk has passed, which is too late: the abort should end the wait of that chunk. It also
 * delivers all pieces of a chunk to a reader that has asked for one. Here a piece is bought when the
 * reader asks for it, and the end of either side ends the wait at once.
 *
 * If the reader has asked for a chunk and its permits are bought, it passes without an extra promise.
 */
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

/**
 * Paces a stream of bytes: `pipeThrough(throttle(limiter))`. The bytes pass unchanged and in order, and
 * each byte costs one permit. Big chunks are cut, and small ones share one request to the limiter. The
 * stream holds at most one chunk. Any number of streams may share the limiter; they take turns.
 *
 * @param limiter any limiter of this package, in this process or on Redis
 * @param options.pieceMs the longest time that a piece is worth at the limiter's pace, ms, above 0;
 *   default 50
 * @param options.freeBytes how many bytes at the start pass uncharged; 0 or more, default 0
 * @param options.policy which of the limiter's policies counts the bytes; default all
 * @param options.share, options.weight, options.priority the share that the stream counts for, on a fair limiter
 * @param options.weigh for streams of any items: returns the cost of a chunk in permits, 0 or more;
 *   chunks are not cut then
 * @param options.signal ends the stream: both sides fail with the signal's own reason
 * @returns a transform stream; an error of the limiter fails both of its sides
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = RateLimiter.create(1024 * 1024); // 1 MiB a second, for all downloads together
 * const { body } = await fetch(url);
 * await body.pipeThrough(throttle(limiter)).pipeTo(file);
 */
export function throttle<Bytes extends Uint8Array = Uint8Array>(
  limiter: Limiter,
  options?: PaceOptions,
): TransformStream<Bytes, Bytes>;
export function throttle<T>(limiter: Limiter, options: WeighedOptions<T>): TransformStream<T, T>;
export function throttle<T>(
  limiter: Limiter,
  options: PaceOptions & Partial<WeighedOptions<T>> = {},
): TransformStream<T, T> {
  const checked = checkPaceOptions(limiter, options);
  const { readable, writable } = new Passage(new Credit(limiter, checked), checked);
  const stream = new TransformStream<T, T>();
  // A transfer (postMessage, structuredClone) would move the ends of the platform's own stream, which
  // are not paced. Locking both ends makes a transfer fail.
  stream.readable.getReader();
  stream.writable.getWriter();
  // a TransformStream with other ends: callers may check its class
  return Object.defineProperties(stream, {
    readable: { value: readable },
    writable: { value: writable },
  });
}

/** Node's types lack the signal. */
type WritableController = WritableStreamDefaultController & { readonly signal: AbortSignal };

/** The write in progress, which ends when the whole chunk has passed. */
interface Write {
  resolve(): void;
  reject(reason: unknown): void;
}

/** Passes chunks from the writable end to the readable end. */
class Passage<T> {
  readonly readable: ReadableStream<T>;
  readonly writable: WritableStream<T>;
  readonly #credit: Credit;
  readonly #weigh: Weigh<T> | undefined;
  readonly #signal: StreamSignal<Passage<T>>;
  #reader!: ReadableStreamDefaultController<T>;
  #writer!: WritableController;
  /** The reader has asked for a piece and not received it yet. */
  #asked = false;
  /** The rest of the current chunk, and its size; undefined: there is no chunk. */
  #rest: T | undefined;
  #left: number | undefined;
  /** The current chunk waits for permits. */
  #buying = false;
  #write: Write | undefined;

  constructor(credit: Credit, { weigh, signal }: CheckedStreamOptions<T>) {
    this.#credit = credit;
    this.#weigh = weigh;
    this.#signal = new StreamSignal(signal, failPassage);
    this.readable = new ReadableStream<T>(
      {
        start: (controller) => {
          this.#reader = controller;
        },
        pull: () => {
          this.#asked = true;
          this.#signal.hold(this);
          if (this.#left !== undefined && !this.#buying) this.#pass(this.#left);
        },
        cancel: (reason) => this.fail(reason),
      },
      { highWaterMark: 0 },
    );
    this.writable = new WritableStream<T>({
      start: (controller) => {
        this.#writer = controller as WritableController;
      },
      write: (chunk) => this.#take(chunk),
      close: () => {
        this.#end(undefined);
        this.#reader.close();
      },
    });
    this.#writer.signal.addEventListener("abort", () => this.fail(this.#writer.signal.reason));
    this.#signal.listen(this);
  }

  #take(chunk: T): Promise<void> | undefined {
    this.#signal.hold(this);
    let size: number;
    try {
      size = sizeOf(chunk, this.#weigh);
    } catch (error) {
      this.fail(error);
      throw error;
    }
    this.#rest = chunk;
    this.#left = size;
    if (this.#asked && this.#pass(size)) return undefined;
    return new Promise((resolve, reject) => {
      this.#write = { resolve, reject };
      if (this.#credit.isClosed) reject(this.#credit.ended.reason);
    });
  }

  /**
   * Delivers the next piece to the reader, which has asked for it; buys permits first if needed.
   *
   * @returns whether all of the current chunk has passed
   */
  #pass(left: number): boolean {
    try {
      for (;;) {
        const size = this.#credit.take(left);
        if (size !== undefined) return this.#hand(size, left);
        const bought = this.#credit.buy(left);
        if (bought !== undefined) {
          this.#wait(bought, left);
          return false;
        }
      }
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  #wait(bought: Promise<void>, left: number): void {
    this.#buying = true;
    bought.then(
      () => {
        this.#buying = false;
        this.#pass(left);
      },
      (error) => this.fail(error),
    );
  }

  #hand(size: number, left: number): boolean {
    this.#asked = false;
    const rest = this.#rest as T;
    if (size < left) {
      this.#rest = restOf(rest, size);
      this.#left = left - size;
      this.#reader.enqueue(headOf(rest, size));
      return false;
    }
    this.#rest = undefined;
    this.#left = undefined;
    this.#reader.enqueue(rest);
    this.#write?.resolve();
    this.#write = undefined;
    return true;
  }

  /** Ends both sides with the same reason. */
  fail(reason: unknown): void {
    if (this.#credit.isClosed) return;
    this.#end(reason);
    this.#write?.reject(reason);
    this.#reader.error(reason);
    // if the writer's own abort is the cause, an error during the abort makes Node fail
    if (!this.#writer.signal.aborted) this.#writer.error(reason);
  }

  #end(reason: unknown): void {
    this.#signal.release();
    this.#credit.close(reason);
  }
}

function failPassage<T>(passage: Passage<T>, reason: unknown): void {
  passage.fail(reason);
}
