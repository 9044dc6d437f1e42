/**
 * The state of a limiter as bytes, little-endian, the same on every store (`frame.lua` reads and
 * writes it on Redis):
 *
 *     u32      base, in units of 2^24 microseconds of Unix time
 *     u32      last: when it was written, microseconds after base
 *     u16, n   the numbers, as text: those in force, then, each after a tab, "declared=in force" for
 *              those that were set at run time
 *     f64 …    the fields of each policy; a list is its length and then its numbers
 *     f64      the instant before which no caller goes; only where that is still to come
 *
 * Instants are microseconds after base, so that they keep their fractions in a double.
 */

export const UNIT = 2 ** 24;

/** base, last and the length of the numbers. */
const HEAD_BYTES = 10;
const LONGEST_NUMBERS = 0xffff;

/** What the bytes say, before anything is made of it. */
export interface SavedState {
  /** Microseconds of Unix time. */
  readonly base: number;
  readonly last: number;
  readonly numbers: string;
  readonly settings: readonly string[];
  /** The fields of all policies, and behind them the instant before which no caller goes, if any. */
  readonly doubles: readonly number[];
}

/** What is saved under a key. */
export interface Saved {
  readonly bytes: Uint8Array;
  /** How long it matters, ms; `Infinity`: until it is changed. */
  readonly lifeMs: number;
}

/** The value under a key is no state of a limiter. */
export class StateError extends Error {
  constructor(bytes: Uint8Array, cause?: unknown) {
    const start = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0"));
    const shown = `${start.join(" ")}${bytes.byteLength > 16 ? " …" : ""}`;
    super(`${bytes.byteLength} bytes that are not a limiter's state: ${shown}`, { cause });
    this.name = "StateError";
  }
}

export function encodeState({ base, last, numbers, settings, doubles }: SavedState): Uint8Array {
  const text = new TextEncoder().encode([numbers, ...settings].join("\t"));
  if (text.length > LONGEST_NUMBERS) {
    throw new RangeError(
      `the numbers of all policies, and of those set at run time, take ${text.length} bytes; at most ` +
        `${LONGEST_NUMBERS} fit: use fewer policies`,
    );
  }
  const from = HEAD_BYTES + text.length;
  const bytes = new Uint8Array(from + 8 * doubles.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, base / UNIT, true);
  view.setUint32(4, last, true);
  view.setUint16(8, text.length, true);
  bytes.set(text, HEAD_BYTES);
  doubles.forEach((double, i) => {
    view.setFloat64(from + 8 * i, double, true);
  });
  return bytes;
}

/** @throws StateError where the bytes cannot be a state */
export function decodeState(bytes: Uint8Array): SavedState {
  if (bytes.byteLength < HEAD_BYTES) throw new StateError(bytes);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const from = HEAD_BYTES + view.getUint16(8, true);
  if (from > bytes.byteLength || (bytes.byteLength - from) % 8 !== 0) throw new StateError(bytes);
  const text = new TextDecoder().decode(bytes.subarray(HEAD_BYTES, from));
  const [numbers = "", ...settings] = text.split("\t");
  const doubles: number[] = [];
  for (let at = from; at < bytes.byteLength; at += 8) doubles.push(view.getFloat64(at, true));
  const base = view.getUint32(0, true) * UNIT;
  return { base, last: view.getUint32(4, true), numbers, settings, doubles };
}

/** The bytes in words, for people: in the messages of tests. */
export function describeState(bytes: Uint8Array | null | undefined): string {
  if (!bytes) return "nothing";
  const { base, last, numbers, settings, doubles } = decodeState(bytes);
  const fields = doubles.map((double) => (Object.is(double, -0) ? "-0" : double));
  const text = JSON.stringify([numbers, ...settings].join("\t"));
  return `base ${base / UNIT}, last ${last}, ${text}, ${fields.join(" ")}`;
}
