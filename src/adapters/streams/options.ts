import type { Limiter, ShareOptions } from "../../api/limiter-api.ts";
import { SHARE_OPTIONS } from "../../api/options.ts";
import {
  aboveZero,
  atLeastZero,
  checkFunction,
  checkNumber,
  checkOptions,
  checkSignal,
  checkText,
  failCheck,
  show,
} from "../../ground/check.ts";
import { shareOf } from "../shares.ts";

/** The options of functions that pace streams. */
export interface PaceOptions extends ShareOptions {
  /**
   * The longest time that a piece is worth at the limiter's pace, ms: larger chunks are cut. Above 0,
   * default 50. A smaller value is smoother, and costs more calls.
   */
  readonly pieceMs?: number | undefined;
  /** How many bytes at the start pass at once and are not charged. 0 or more, default 0. */
  readonly freeBytes?: number | undefined;
  /** The name of the limiter's policy that counts the bytes. Default: all policies count them. */
  readonly policy?: string | undefined;
  /** Ends the stream: both sides fail with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

/** Options for streams of any items. */
export interface WeighedOptions<T> extends PaceOptions {
  /**
   * Returns the cost of a chunk in permits, 0 or more. Chunks are not cut then, and `freeBytes` counts
   * these permits. Default: a chunk's bytes.
   */
  readonly weigh: (chunk: T) => number;
}

const OPTIONS = ["pieceMs", "freeBytes", "policy", "signal", "weigh"] as const;

/** Returns how many permits a chunk needs: a finite number, 0 or more. */
export type Weigh<T> = (chunk: T) => number;

export interface CheckedStreamOptions<T> {
  readonly pieceMs: number;
  readonly freeBytes: number;
  readonly policy: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly share: ShareOptions | undefined;
  /** Undefined for streams of bytes, which can be cut. */
  readonly weigh: Weigh<T> | undefined;
}

export function checkPaceOptions<T>(
  limiter: Limiter,
  options: PaceOptions & Partial<WeighedOptions<T>>,
): CheckedStreamOptions<T> {
  const { acquire, decide, refund } = Object(limiter) as Partial<Limiter>;
  if (![acquire, decide, refund].every((verb) => typeof verb === "function")) {
    throw new TypeError(`limiter must have acquire(), decide() and refund(), got ${show(limiter)}`);
  }
  checkOptions("options", options, [...OPTIONS, ...SHARE_OPTIONS]);
  const { pieceMs = 50, freeBytes = 0, policy, weigh } = options;
  if (weigh !== undefined) checkFunction("weigh", weigh);
  return {
    pieceMs: checkNumber("pieceMs", pieceMs, aboveZero),
    freeBytes: checkNumber("freeBytes", freeBytes, atLeastZero),
    policy: policy === undefined ? undefined : checkText("policy", policy),
    signal: checkSignal(options.signal),
    share: shareOf(options),
    weigh,
  };
}

/** Returns the size of a chunk: its bytes, or the result of `weigh`. */
export function sizeOf<T>(chunk: T, weigh: Weigh<T> | undefined): number {
  if (weigh !== undefined) return checkNumber("weigh(chunk)", weigh(chunk), atLeastZero);
  if (chunk instanceof Uint8Array) return chunk.byteLength;
  failCheck("chunk", "a Uint8Array unless weigh is given", chunk);
}

/**
 * Returns the first bytes of a chunk as a copy: the consumer may transfer its buffer, and the rest of the
 * chunk must stay valid.
 */
export function headOf<T>(chunk: T, size: number): T {
  return Uint8Array.prototype.slice.call(chunk, 0, size) as T;
}

/** Returns the bytes after the head, without a copy. */
export function restOf<T>(chunk: T, size: number): T {
  return (chunk as T & Uint8Array).subarray(size) as T;
}
