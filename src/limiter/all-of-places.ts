/** A combination with concurrency limiters in it: its verbs return leases. */
import { checkFunction } from "../ground/check.ts";
import { VERSION } from "../ground/copies.ts";
import { asyncDispose, dispose } from "../ground/dispose.ts";
import { chain, type Maybe } from "../ground/maybe.ts";
import { acquireAll, type Entry, entriesOf, partsOf, shareOf } from "./all-of-wait.ts";
import type { Limiter, ShareOptions, TryOptions, WaitOptions } from "./limiter-api.ts";
import {
  type BoundLimiter,
  type HeldPlace,
  inTime,
  isSharedLimiter,
  type Look,
  type Part,
  type PlaceQueue,
  type PlacesMember,
} from "./member.ts";
import { checkTryOptions, checkWaitOptions, shareIn } from "./options.ts";
import { reportRefusal, takeTogether } from "./together.ts";

/** A place of each concurrency limiter of a combination, held until it is released. */
export interface CombinedLease extends AsyncDisposable {
  /**
   * Aborted when one of the places may be lost: see `RedisLease`. Never aborted where all places
   * are in this process.
   */
  readonly signal: AbortSignal;
  /** Gives the places back. A second call does nothing. Never rejects. */
  release(): Promise<void>;
}

/** A `CombinedLease` where all limiters are in this process. */
export interface LocalCombinedLease extends Disposable, AsyncDisposable {
  /** Never aborted. */
  readonly signal: AbortSignal;
  /** Gives the places back. A second call does nothing. */
  release(): void;
}

/** Limits how many calls run at once, and how often they start. */
export interface LeasingLimiter {
  /**
   * Waits for a place of each concurrency limiter, then for a permit of each rate limiter. The
   * caller holds the places while it waits for permits. If it fails or is aborted, everything is
   * given back.
   *
   * @param options.signal ends the wait; what was granted is given back
   * @param options.share, options.weight, options.priority the share it counts for, where a limiter is fair
   * @returns the lease
   * @throws (as a rejection) QueueFullError, StoreUnavailableError, or the signal's own reason
   */
  acquire(options?: WaitOptions): Promise<CombinedLease>;
  /**
   * Returns a lease if all limiters let it pass now; otherwise returns `undefined` and changes
   * nothing. With `wait` it waits for the places and then for the permits, at most that long in
   * all.
   *
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Absent: 0
   * @returns the lease; `undefined` when the time is over, or as soon as it is clear that it will
   *   not suffice; nothing is held then
   * @throws (as a rejection) RangeError or TypeError on a bad argument, StoreUnavailableError, or
   *   the signal's own reason
   * @example
   * await using lease = await limiter.tryAcquire({ timeoutMs: 250 });
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(wait?: number | TryOptions): Promise<CombinedLease | undefined>;
  /**
   * Runs a function while it holds a lease, and releases the lease when the function has ended.
   *
   * @param options as those of `acquire`
   * @returns what `fn` returns
   * @example
   * const limiter = allOf(ConcurrencyLimiter.create(4), RateLimiter.create(10));
   * const page = await limiter.run(() => fetch(url));
   */
  run<T>(fn: (lease: CombinedLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T>;
}

/** A `LeasingLimiter` where all limiters are in this process: `tryAcquire()` returns at once. */
export interface LocalLeasingLimiter {
  /** As of a `LeasingLimiter`. */
  acquire(options?: WaitOptions): Promise<LocalCombinedLease>;
  /** As of a `LeasingLimiter`; without `wait` the lease is returned at once. */
  tryAcquire(): LocalCombinedLease | undefined;
  tryAcquire(wait: number | TryOptions): Promise<LocalCombinedLease | undefined>;
  /** As of a `LeasingLimiter`. */
  run<T>(fn: (lease: LocalCombinedLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T>;
}

/** The members of a combination. A combination of combinations has the members of all. */
export const combined: unique symbol = Symbol.for(`smooth-limiter@${VERSION}/combined`);

export interface Combination {
  readonly [combined]: {
    readonly rates: readonly Entry[];
    readonly places: readonly PlacesMember[];
  };
}

export class AllOfWithPlaces implements Combination {
  readonly [combined]: Combination[typeof combined];
  readonly #rates: Pick<Limiter, "tryAcquire">;

  /** @param ratesTogether the combination of the rate limiters alone */
  constructor(
    places: readonly PlacesMember[],
    rates: readonly Entry[],
    ratesTogether: Pick<Limiter, "tryAcquire">,
  ) {
    this[combined] = { rates, places };
    this.#rates = ratesTogether;
  }

  async acquire(options?: WaitOptions): Promise<PlacesLease> {
    const signal = checkWaitOptions(options);
    signal?.throwIfAborted();
    const rates = this.#ratesOf(options);
    const answer = takeTogether(this.#parts(rates), { signal });
    // an extra `await` would change the order of callers
    const { passes, looks } = answer instanceof Promise ? await answer : answer;
    if (passes) return leaseOf(looks);
    const held: HeldPlace[] = [];
    const lease = new PlacesLease(held);
    try {
      for (const queue of this.#queues()) {
        held.push(await queue.acquire({ signal, ...(queue.isFair ? shareOf(options) : {}) }));
      }
      await acquireAll(rates, 1, signal);
      return lease;
    } catch (error) {
      await lease.release();
      throw error;
    }
  }

  tryAcquire(wait?: number | TryOptions): Maybe<PlacesLease | undefined> {
    if (wait !== undefined) return this.#tryWithin(wait);
    const parts = this.#parts(this[combined].rates);
    return chain(inTime(takeTogether(parts, { timeoutMs: 0 })), (together) => {
      if (together?.passes) return leaseOf(together.looks);
      if (together !== undefined) reportRefusal(parts, together);
      return undefined;
    });
  }

  async #tryWithin(wait: number | TryOptions): Promise<PlacesLease | undefined> {
    const { micros, signal } = checkTryOptions(wait);
    signal?.throwIfAborted();
    if (micros === 0) return this.tryAcquire();
    const options = shareIn(wait);
    const parts = this.#parts(this.#ratesOf(options));
    let leftMs = micros / 1000;
    const answer = inTime(takeTogether(parts, { timeoutMs: leftMs, signal }));
    const together = answer instanceof Promise ? await answer : answer;
    if (together === undefined) return undefined;
    if (together.passes) return leaseOf(together.looks);
    const held: HeldPlace[] = [];
    const lease = new PlacesLease(held);
    let isComplete = false;
    try {
      for (const queue of this.#queues()) {
        const before = queue.now();
        const share = queue.isFair ? shareOf(options) : {};
        const place = await queue.tryAcquire({ timeoutMs: leftMs, signal, ...share });
        if (place === undefined) return undefined;
        held.push(place);
        leftMs -= Math.max(0, queue.now() - before);
      }
      const share = this.#hasFairRates ? shareOf(options) : {};
      isComplete = await this.#rates.tryAcquire(1, { timeoutMs: leftMs, signal, ...share });
      return isComplete ? lease : undefined;
    } finally {
      if (!isComplete) await lease.release();
    }
  }

  async run<T>(fn: (lease: PlacesLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    checkFunction("fn", fn);
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }

  /** The rate limiters for calls of that share. */
  #ratesOf(options: ShareOptions | undefined): readonly Entry<Limiter | BoundLimiter>[] {
    const { places, rates } = this[combined];
    const isFair = places.some(({ queue }) => queue.isFair);
    return entriesOf(rates, options, isFair);
  }

  #parts(rates: readonly Entry<unknown>[]): readonly Part[] {
    const { places } = this[combined];
    return partsOf([...places.map((member) => ({ member })), ...rates], 1, 0);
  }

  get #hasFairRates(): boolean {
    return this[combined].rates.some(({ limiter }) => isSharedLimiter(limiter));
  }

  #queues(): readonly PlaceQueue[] {
    return this[combined].places.map(({ queue }) => queue);
  }
}

function leaseOf(looks: readonly (Look | undefined)[]): PlacesLease {
  return new PlacesLease(looks.flatMap((look) => look?.taken?.place ?? []));
}

class PlacesLease {
  readonly #places: readonly HeldPlace[];

  constructor(places: readonly HeldPlace[]) {
    this.#places = places;
  }

  get signal(): AbortSignal {
    return AbortSignal.any(this.#places.flatMap(({ signal }) => signal ?? []));
  }

  /** A place releases itself at most once, so a second call does nothing. */
  release(): undefined & Promise<void> {
    const released = this.#places.map((place) => place.release());
    const isElsewhere = released.some((one) => one instanceof Promise);
    // the overloads of `allOf` give the caller the exact type
    return (isElsewhere ? Promise.all(released).then(() => {}) : undefined) as never;
  }

  [dispose](): void {
    void this.release();
  }

  async [asyncDispose](): Promise<void> {
    await this.release();
  }
}
