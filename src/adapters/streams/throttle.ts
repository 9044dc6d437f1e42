/**
 * A web TransformStream that paces what passes.
 *
 * Its two ends are made here by hand. The platform's own transformer learns of an abort only when the
 * chunk in hand has passed, which is after the wait that the abort should end; and it hands all pieces
 * of a chunk to a reader who has asked for one. Here a piece is bought when the reader asks for it,
 * and the end of either side ends the wait at once.
 */
import type { Limiter } from "../../limiter/face.ts";
import { onAbort } from "../on-abort.ts";
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
  // elsewhere it has to be a TransformStream, so it is one, with other ends
  return Object.defineProperties(new TransformStream<T, T>(), {
    readable: { value: readable },
    writable: { value: writable },
  });
}

/** Node's types lack the signal. */
type WritableController = WritableStreamDefaultController & { readonly signal: AbortSignal };

/** From the writer's hand to the reader's. */
class Passage<T> {
  readonly readable: ReadableStream<T>;
  readonly writable: WritableStream<T>;
  readonly #credit: Credit;
  readonly #weigh: Weigh<T> | undefined;
  readonly #unlisten: (() => void) | undefined;
  #reader!: ReadableStreamDefaultController<T>;
  #writer!: WritableController;
  /** The reader has asked and has not been answered. */
  #asked = false;
  #whenAsked = (): void => {};

  constructor(credit: Credit, { weigh, signal }: CheckedOptions<T>) {
    this.#credit = credit;
    this.#weigh = weigh;
    this.readable = new ReadableStream<T>(
      {
        start: (controller) => {
          this.#reader = controller;
        },
        pull: () => {
          this.#asked = true;
          this.#whenAsked();
        },
        cancel: (reason) => this.#fail(reason),
      },
      { highWaterMark: 0 },
    );
    this.writable = new WritableStream<T>({
      start: (controller) => {
        this.#writer = controller as WritableController;
      },
      write: (chunk) => this.#pass(chunk),
      close: () => {
        this.#end(undefined);
        this.#reader.close();
      },
    });
    this.#writer.signal.addEventListener("abort", () => this.#fail(this.#writer.signal.reason));
    this.#unlisten = onAbort(signal, (reason) => this.#fail(reason));
  }

  async #pass(chunk: T): Promise<void> {
    try {
      let rest = chunk;
      let left = sizeOf(chunk, this.#weigh);
      for (;;) {
        if (!this.#asked) await this.#demand();
        const size = this.#credit.take(left);
        if (size === left) {
          this.#hand(rest);
          return;
        }
        if (size === undefined) {
          await this.#credit.buy(left);
        } else {
          this.#hand(headOf(rest, size));
          rest = restOf(rest, size);
          left -= size;
        }
      }
    } catch (error) {
      this.#fail(error);
      throw error;
    }
  }

  async #demand(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#whenAsked = resolve;
    });
    this.#credit.ended.throwIfAborted();
  }

  #hand(piece: T): void {
    this.#asked = false;
    this.#reader.enqueue(piece);
  }

  /** What one side has ended with, the other ends with too. */
  #fail(reason: unknown): void {
    if (this.#credit.ended.aborted) return;
    this.#end(reason);
    this.#reader.error(reason);
    // where its own abort brought us here, Node would trip over an error in between
    if (!this.#writer.signal.aborted) this.#writer.error(reason);
  }

  #end(reason: unknown): void {
    this.#unlisten?.();
    this.#credit.close(reason);
    this.#whenAsked();
  }
}
