/**
 * The state of a limiter as bytes, little-endian, the same on every store (`transition.lua` reads and
 * writes it on Redis):
 *
 *     u32      base, in units of 2^24 microseconds of Unix time
 *     u32      last: when the state was written, microseconds after base
 *     u16      the length of the numbers, bytes
 *     u8       the number of callers with a known last batch
 *     8, u32 … each such caller, 8 ASCII characters, and the number of its last batch; the latest last
 *     text     the numbers: those in force, then, each after a tab, "declared=in force" for those that
 *              were set at run time, then, each after a vertical tab, those of other versions
 *     f64 …    the fields of each policy; a list is its length and then its numbers
 *     f64 …    for each other version the instant at which it ends, and the fields of its policies
 *     f64      the instant before which no request is granted; only if it is in the future
 *
 * Instants are microseconds after base, so that they keep their fractions in a double. Other versions are
 * those of code that declares other algorithms under the same name.
 */

import type { BatchId } from "../batch-id.ts";

export const UNIT = 2 ** 24;

/** base, last, the length of the numbers, and the number of callers. */
const HEAD_BYTES = 11;
const CALLER_LENGTH = 8;
const CALLER_BYTES = CALLER_LENGTH + 4;
export const MOST_CALLERS = 64;
const LONGEST_NUMBERS = 0xffff;

// each costs more to create than to use
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();

/** The decoded bytes, not yet interpreted. */
export interface SavedState {
  /** Microseconds of Unix time. */
  readonly base: number;
  readonly last: number;
  /** The last batch of each caller that changed something, the latest last; at most `MOST_CALLERS`. */
  readonly batchIds: readonly BatchId[];
  readonly numbers: string;
  readonly settings: readonly string[];
  /** The numbers of other versions. */
  readonly others: readonly string[];
  /** The fields of all policies, those of other versions, and after them the instant before which no request is granted, if any. */
  readonly doubles: readonly number[];
}

/** The value to save under a key. */
export interface Saved {
  readonly bytes: Uint8Array;
  /** The state that the bytes encode. */
  readonly state: SavedState;
  /** How long it must be kept, ms; `Infinity`: until it is replaced. */
  readonly lifeMs: number;
}

/** The value under a key is not the state of a limiter. */
export class StateError extends Error {
  constructor(bytes: Uint8Array, cause?: unknown) {
    const start = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0"));
    const shown = `${start.join(" ")}${bytes.byteLength > 16 ? " …" : ""}`;
    super(`${bytes.byteLength} bytes that no limiter has written: ${shown}`, { cause });
    this.name = "StateError";
  }
}

/** A state has more numbers than fit. */
export class TooLongError extends RangeError {}

/** The text that was encoded last, and its bytes: most states have the numbers of the one before. */
let lastText = "";
let lastBytes: Uint8Array = new Uint8Array();

function encodeText(text: string): Uint8Array {
  if (text !== lastText) {
    lastBytes = ENCODER.encode(text);
    lastText = text;
  }
  return lastBytes;
}

function textOf({ numbers, settings, others }: SavedState): string {
  const own = settings.length === 0 ? numbers : [numbers, ...settings].join("\t");
  return others.length === 0 ? own : [own, ...others].join("\v");
}

export function encodeState(state: SavedState): Uint8Array {
  const { base, last, batchIds, doubles } = state;
  const text = encodeText(textOf(state));
  if (text.length > LONGEST_NUMBERS) {
    throw new TooLongError(
      `the numbers of all policies, and of those set at run time, take ${text.length} bytes; at most ` +
        `${LONGEST_NUMBERS} fit: use fewer policies`,
    );
  }
  const textAt = HEAD_BYTES + CALLER_BYTES * batchIds.length;
  const from = textAt + text.length;
  const bytes = new Uint8Array(from + 8 * doubles.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, base / UNIT, true);
  view.setUint32(4, last, true);
  view.setUint16(8, text.length, true);
  view.setUint8(10, batchIds.length);
  let at = HEAD_BYTES;
  for (const { caller, number } of batchIds) {
    for (let i = 0; i < CALLER_LENGTH; i++) bytes[at + i] = caller.charCodeAt(i);
    view.setUint32(at + CALLER_LENGTH, number, true);
    at += CALLER_BYTES;
  }
  bytes.set(text, textAt);
  at = from;
  for (const double of doubles) {
    view.setFloat64(at, double, true);
    at += 8;
  }
  return bytes;
}

/** @throws StateError if the bytes cannot be a state */
export function decodeState(bytes: Uint8Array): SavedState {
  // shorter than any state: the same check as in transition.lua
  if (bytes.byteLength < HEAD_BYTES + CALLER_BYTES) throw new StateError(bytes);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const callers = view.getUint8(10);
  const textAt = HEAD_BYTES + CALLER_BYTES * callers;
  const from = textAt + view.getUint16(8, true);
  const isWhole = from <= bytes.byteLength && (bytes.byteLength - from) % 8 === 0;
  if (callers > MOST_CALLERS || !isWhole) throw new StateError(bytes);
  const batchIds: BatchId[] = [];
  for (let at = HEAD_BYTES; at < textAt; at += CALLER_BYTES) {
    const caller = String.fromCharCode(...bytes.subarray(at, at + CALLER_LENGTH));
    batchIds.push({ caller, number: view.getUint32(at + CALLER_LENGTH, true) });
  }
  const [own = "", ...others] = DECODER.decode(bytes.subarray(textAt, from)).split("\v");
  const [numbers = "", ...settings] = own.split("\t");
  if (![numbers, ...others].every((text) => /^[a-z][\dI]/.test(text))) throw new StateError(bytes);
  const doubles: number[] = [];
  for (let at = from; at < bytes.byteLength; at += 8) doubles.push(view.getFloat64(at, true));
  const base = view.getUint32(0, true) * UNIT;
  return { base, last: view.getUint32(4, true), batchIds, numbers, settings, others, doubles };
}
