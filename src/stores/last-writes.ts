/**
 * What a process knows about a store without asking it: the states that it wrote last, and the store's clock.
 * With both it can compute the next state and write it without reading first. The write compares the state and
 * the time, so wrong knowledge costs a failed write and never a permit.
 */

import type { Saved } from "./state/bytes.ts";

/** How many states are kept, and the size of the largest one: together at most about 15 MB, decoded and encoded. */
const MOST_KEYS = 10_000;
const MOST_BYTES = 512;
/** A reading of the store's clock counts for so long, microseconds: the clocks drift apart. */
const READING_COUNTS = 5_000_000;

interface LastWrite extends Pick<Saved, "bytes" | "state"> {
  /** Whether the state before this one was this process' own, too. */
  readonly isAlone: boolean;
}

export class LastWrites {
  /** The latest last. */
  readonly #writes = new Map<string, LastWrite>();

  /** Returns the state of a key that probably no other process writes. */
  guess(key: string): Pick<Saved, "bytes" | "state"> | undefined {
    const last = this.#writes.get(key);
    return last?.isAlone === true ? last : undefined;
  }

  /** @param before the state that was replaced */
  wrote(key: string, before: Uint8Array | undefined, { bytes, state }: Saved): void {
    const last = this.#writes.get(key);
    this.#writes.delete(key);
    if (bytes.length > MOST_BYTES) return;
    const isAlone = last !== undefined && isEqual(last.bytes, before);
    this.#writes.set(key, { bytes, state, isAlone });
    if (this.#writes.size <= MOST_KEYS) return;
    const [oldest = ""] = this.#writes.keys();
    this.#writes.delete(oldest);
  }

  /** The key's next call reads its state first. */
  doubt(key: string): void {
    const last = this.#writes.get(key);
    if (last !== undefined) this.#writes.set(key, { ...last, isAlone: false });
  }
}

function isEqual(one: Uint8Array, other: Uint8Array | undefined): boolean {
  if (one === other) return true;
  return one.length === other?.length && one.every((byte, i) => byte === other[i]);
}

/** Estimates the store's clock; the estimate is late by at most the duration of the reading, and never early. */
export class StoreClock {
  /** What to add to `performance.now()`, microseconds. */
  #offset: number | undefined;
  #readAt = 0;

  /** @param micros what the store's clock has just shown: the reply took time, so it shows more by now */
  read(micros: number): void {
    const here = performance.now() * 1000;
    const isOld = here - this.#readAt > READING_COUNTS;
    if (this.#offset !== undefined && !isOld && micros - here <= this.#offset) return;
    this.#offset = micros - here;
    this.#readAt = here;
  }

  /** Microseconds of Unix time; undefined: it has not been read lately. */
  get now(): number | undefined {
    const here = performance.now() * 1000;
    if (this.#offset === undefined || here - this.#readAt > READING_COUNTS) return undefined;
    return Math.floor(here + this.#offset);
  }

  /** A write at the estimated time failed: perhaps the store's clock was set. */
  forget(): void {
    this.#offset = undefined;
  }
}
