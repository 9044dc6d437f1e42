/** A combination in which there are concurrency limiters: what it answers are leases. */
import { asyncDispose, dispose } from "../dispose.ts";
import { acquireAll, type Entry, partsOf } from "./all-of-wait.ts";
import type { WaitOptions } from "./face.ts";
import { chain, type HeldPlace, type Maybe, type Member, type Taken } from "./member.ts";
import { checkWaitOptions } from "./options.ts";
import { reportRefusal, takeTogether, undoAll } from "./together.ts";

/** A place among those who run, of each concurrency limiter of a combination. */
export interface CombinedLease extends AsyncDisposable {
  /**
   * Aborted when one of the places may be lost: see `RedisLease`. Never, where all places are in
   * this process.
   */
  readonly signal: AbortSignal;
  /** Gives the places back; a second time does nothing. Never rejects. */
  release(): Promise<void>;
}

/** The same where all limiters are in this process. */
export interface LocalCombinedLease extends Disposable, AsyncDisposable {
  readonly signal: AbortSignal;
  release(): void;
}

/** Limits how many run at once, and how often they start. */
export interface LeasingLimiter {
  /**
   * Waits for a place of each concurrency limiter, then for a permit of each rate limiter. The place
   * is held meanwhile. Nothing is taken for good before everything is there.
   *
   * @param options.signal ends the wait; what was taken is given back
   * @returns the lease
   * @throws (as a rejection) QueueFullError, StoreUnavailableError, or the signal's own reason
   */
  acquire(options?: WaitOptions): Promise<CombinedLease>;
  /** A lease if all let it pass now; else `undefined`, and nothing has changed. */
  tryAcquire(): Promise<CombinedLease | undefined>;
  /**
   * Runs a function while it holds a lease, and releases it however the function ends.
   *
   * @returns what `fn` returns
   * @example
   * const limiter = allOf(ConcurrencyLimiter.create(4), RateLimiter.create(10));
   * const page = await limiter.run(() => fetch(url));
   */
  run<T>(fn: (lease: CombinedLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T>;
}

/** The same where all limiters are in this process: quick answers come at once. */
export interface LocalLeasingLimiter {
  acquire(options?: WaitOptions): Promise<LocalCombinedLease>;
  tryAcquire(): LocalCombinedLease | undefined;
  run<T>(fn: (lease: LocalCombinedLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T>;
}

export class AllOfWithPlaces {
  readonly places: readonly Member[];
  readonly rates: readonly Entry[];

  constructor(places: readonly Member[], rates: readonly Entry[]) {
    this.places = places;
    this.rates = rates;
  }

  async acquire(options?: WaitOptions): Promise<PlacesLease> {
    const signal = checkWaitOptions(options);
    signal?.throwIfAborted();
    const parts = partsOf([...this.places.map((member) => ({ member })), ...this.rates], 1, 0);
    const answer = takeTogether(parts, { signal });
    const { passes, looks } = answer instanceof Promise ? await answer : answer;
    if (passes) return new PlacesLease(looks.flatMap((look) => look?.taken?.place ?? []));
    const held: Taken[] = [];
    try {
      for (const member of this.places) {
        const place = await (member.wait as NonNullable<Member["wait"]>)(signal);
        held.push({ place, undo: () => place.release() });
      }
      await acquireAll(this.rates, 1, signal);
    } catch (error) {
      await undoAll(held.map((taken) => ({ taken })));
      throw error;
    }
    return new PlacesLease(held.flatMap(({ place }) => place ?? []));
  }

  tryAcquire(): Maybe<PlacesLease | undefined> {
    const parts = partsOf([...this.places.map((member) => ({ member })), ...this.rates], 1, 0);
    return chain(takeTogether(parts, { timeoutMs: 0 }), (together) => {
      if (together.passes) {
        return new PlacesLease(together.looks.flatMap((look) => look?.taken?.place ?? []));
      }
      reportRefusal(parts, together);
      return undefined;
    });
  }

  async run<T>(fn: (lease: PlacesLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }
}

class PlacesLease {
  readonly #places: readonly HeldPlace[];

  constructor(places: readonly HeldPlace[]) {
    this.#places = places;
  }

  get signal(): AbortSignal {
    return AbortSignal.any(this.#places.flatMap(({ signal }) => signal ?? []));
  }

  /** Places know whether they were released before. */
  release(): undefined & Promise<void> {
    const released = this.#places.map((place) => place.release());
    const isElsewhere = released.some((one) => one instanceof Promise);
    // what it is, the types of `allOf` tell
    return (isElsewhere ? Promise.all(released).then(() => {}) : undefined) as never;
  }

  [dispose](): void {
    void this.release();
  }

  async [asyncDispose](): Promise<void> {
    await this.release();
  }
}
