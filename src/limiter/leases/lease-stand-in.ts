/**
 * Who goes while the store of leases is away: as many as this process may hold by itself, with those
 * that it holds already. The others wait in one line, first in, first out; it is given to the store
 * when that is back.
 */
import { Fifo } from "../fifo.ts";
import type { Claim } from "./remote-lease.ts";

/** How often it is asked how many share the limit, ms. */
export const SHARE_HOLDS_MS = 1000;

export class LeaseStandIn {
  readonly #line = new Fifo<Claim>();
  readonly #count: () => number;
  #places = 0;
  #countedUntil = -Infinity;

  /**
   * @param count how many this process may hold, now
   */
  constructor(count: () => number) {
    this.#count = count;
  }

  /** How many this process may hold. */
  get places(): number {
    const now = performance.now();
    if (now >= this.#countedUntil) {
      this.#countedUntil = now + SHARE_HOLDS_MS;
      this.#places = this.#count();
    }
    return this.#places;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#line.size;
  }

  append(claim: Claim): void {
    this.#line.append(claim);
  }

  remove(claim: Claim): void {
    this.#line.remove(claim);
  }

  /**
   * Who goes next, and waits no more.
   *
   * @param held how many leases this process holds
   */
  next(held: number): Claim | undefined {
    return held < this.places ? this.#line.shift() : undefined;
  }

  [Symbol.iterator](): Iterator<Claim> {
    return this.#line[Symbol.iterator]();
  }
}
