/**
 * A web TransformStream that paces what passes.
 *
 * Its two ends are made here by hand. The platform's own transformer learns of an abort only when the
 * chunk in hand has passed, which is after the wait that the abort should end; and it hands all pieces
 * of a chunk to a reader that has asked for one. Here a piece is bought when the reader asks for it,
 * and the end of either side ends the wait at once.
 *
 * A chunk that its reader has asked for and whose permits are bought passes without a promise of ours.
 */
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

/**
 * Paces a stream of bytes: `pipeThrough(throttle(limiter))`. The bytes pass unchanged and in order, no
 * faster than the limiter has permits, one for each byte; big chunks are cut, small ones are paid for
 * together. At the most one chunk is held. Any number of streams may share the limiter, by turns.
 *
 * @param limiter any limiter of this package, in this process or on Redis
 * @param options.pieceMs the most that a piece is worth at the limiter's pace, ms, above 0; default 50
 * @param options.freeBytes how many bytes pass at first, uncharged; 0 or more, default 0
 * @param options.policy which of the limiter's policies counts the bytes; default all
 * @param options.weigh for streams of anything: what a chunk costs in permits, 0 or more; chunks are
 *   not cut then
 * @param options.signal ends it: both sides fail with the signal's own reason
 * @returns a transform stream; what the limiter throws fails both of its sides
 * @throws RangeError or TypeError that names the argument, its bound and what it got
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
  // are not paced. It refuses a stream whose ends are locked.
  stream.readable.getReader();
  stream.writable.getWriter();
  // callers check that it is a TransformStream: it is one, with other ends
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

/** From the writer to the reader. */
class Passage<T> {
  readonly readable: ReadableStream<T>;
  readonly writable: WritableStream<T>;
  readonly #credit: Credit;
  readonly #weigh: Weigh<T> | undefined;
  readonly #signal: StreamSignal<Passage<T>>;
  #reader!: ReadableStreamDefaultController<T>;
  #writer!: WritableController;
  /** The reader has asked and has no piece yet. */
  #asked = false;
  /** What is left of the chunk in hand, and its size; undefined: there is no chunk. */
  #rest: T | undefined;
  #left: number | undefined;
  /** The chunk in hand waits for permits. */
  #buying = false;
  #write: Write | undefined;

  constructor(credit: Credit, { weigh, signal }: CheckedOptions<T>) {
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
      const { ended } = this.#credit;
      if (ended.aborted) reject(ended.reason);
    });
  }

  /**
   * Hands the next piece to the reader, which has asked for it; or buys it first.
   *
   * @returns whether the chunk in hand has passed as a whole
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
    if (this.#credit.ended.aborted) return;
    this.#end(reason);
    this.#write?.reject(reason);
    this.#reader.error(reason);
    // where its own abort is the cause, an error in between makes Node fail
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
