/** A combination with concurrency limiters in it: its verbs return leases. */

import type { ShareOptions, TryOptions, WaitOptions } from "../api/limiter-api.ts";
import { checkTryOptions, checkWaitOptions } from "../api/options.ts";
import {
  type ConcurrencyParticipant,
  endLease,
  type HeldSlots,
  type Taken,
} from "../api/participant.ts";
import {
  type AdaptiveRunOptions,
  type Ending,
  runWith,
  tryArguments,
} from "../api/slots-options.ts";
import { inTime } from "../api/timeout.ts";
import { checkNumber, wholeAtLeastOne } from "../ground/check.ts";
import { VERSION } from "../ground/copies.ts";
import { asyncDispose, dispose } from "../ground/dispose.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import { reportRefusal, takeTogether } from "./all-or-none.ts";
import {
  acquireAll,
  entriesOf,
  type RateEntry,
  shareOf,
  subrequestsOf,
  type TakenAll,
  takenOf,
} from "./waiting.ts";

/** A slot of each concurrency limiter of a combination, held until it is released. */
export interface CombinedLease extends AsyncDisposable {
  /**
   * Aborted when one of the slots may be lost: see `RedisLease`. Never aborted where all slots
   * are in this process.
   */
  readonly signal: AbortSignal;
  /** Gives the slots back. A second call does nothing. Never rejects. */
  release(): Promise<void>;
  /** The same after a call that met a limit: adaptive limits become lower. See `Lease`. */
  overloaded(): Promise<void>;
  /** The same after a call of which adaptive limits learn nothing. */
  ignore(): Promise<void>;
}

/** A `CombinedLease` where all limiters are in this process. */
export interface LocalCombinedLease extends Disposable, AsyncDisposable {
  /** Never aborted. */
  readonly signal: AbortSignal;
  /** Gives the slots back. A second call does nothing. */
  release(): void;
  /** The same after a call that met a limit: adaptive limits become lower. See `Lease`. */
  overloaded(): void;
  /** The same after a call of which adaptive limits learn nothing. */
  ignore(): void;
}

/** Limits how many calls run at once, and how often they start. */
export interface LeasingLimiter {
  /**
   * Waits until each concurrency limiter has the slots and each rate limiter a permit, then takes them all.
   * It holds nothing while it waits, unless other callers were first again and again: then it keeps its
   * slots until it gets its permits. If it fails or is aborted, nothing is taken.
   *
   * @param slots how many it takes of each concurrency limiter: a whole number, 1 or more. Default 1. Whatever it
   *   is, the call takes one permit of each rate limiter
   * @param options.signal ends the wait; what was granted is given back
   * @param options.share, options.weight, options.priority the share it counts for, where a limiter is fair
   * @returns the lease
   * @throws (rejects) QueueFullError, StoreUnavailableError, or the signal's own reason
   */
  acquire(slots?: number, options?: WaitOptions): Promise<CombinedLease>;
  /**
   * Returns a lease if all limiters let it pass now; otherwise returns `undefined` and changes
   * nothing. With `wait` it waits as `acquire` does, at most that long in all.
   *
   * @param slots as those of `acquire`
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Absent: 0
   * @returns the lease; `undefined` when the time is over, or as soon as it is clear that it will
   *   not suffice; nothing is held then
   * @throws (rejects) RangeError or TypeError on a bad argument, StoreUnavailableError, or
   *   the signal's own reason
   * @example
   * await using lease = await limiter.tryAcquire({ timeoutMs: 250 });
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(slots?: number, wait?: number | TryOptions): Promise<CombinedLease | undefined>;
  tryAcquire(options: TryOptions): Promise<CombinedLease | undefined>;
  /**
   * Runs a function while it holds a lease, and releases the lease when the function has ended.
   *
   * @param options `slots`, and the options of `acquire`
   * @returns what `fn` returns
   * @example
   * const limiter = allOf(ConcurrencyLimiter.create(4), RateLimiter.create(10));
   * const page = await limiter.run(() => fetch(url));
   */
  run<T>(
    fn: (lease: CombinedLease) => T | PromiseLike<T>,
    options?: AdaptiveRunOptions,
  ): Promise<T>;
}

/** A `LeasingLimiter` where all limiters are in this process: `tryAcquire()` returns at once. */
export interface LocalLeasingLimiter {
  /** As of a `LeasingLimiter`. */
  acquire(slots?: number, options?: WaitOptions): Promise<LocalCombinedLease>;
  /** As of a `LeasingLimiter`; without `wait` the lease is returned at once. */
  tryAcquire(slots?: number): LocalCombinedLease | undefined;
  tryAcquire(slots: number, wait: number | TryOptions): Promise<LocalCombinedLease | undefined>;
  tryAcquire(options: TryOptions): Promise<LocalCombinedLease | undefined>;
  /** As of a `LeasingLimiter`. */
  run<T>(
    fn: (lease: LocalCombinedLease) => T | PromiseLike<T>,
    options?: AdaptiveRunOptions,
  ): Promise<T>;
}

/** The participants of a combination. A combination of combinations has the participants of all. */
export const combined: unique symbol = Symbol.for(`smooth-limiter@${VERSION}/combined`);

export interface Combination {
  readonly [combined]: {
    readonly rates: readonly RateEntry[];
    readonly slotsLimiters: readonly ConcurrencyParticipant[];
  };
}

export class AllOfWithSlots implements Combination {
  readonly [combined]: Combination[typeof combined];
  /** How often each limiter is there, in the order of their ranks. */
  readonly #times: ReadonlyMap<ConcurrencyParticipant, number>;

  constructor(slotsLimiters: readonly ConcurrencyParticipant[], rates: readonly RateEntry[]) {
    this[combined] = { rates, slotsLimiters };
    const times = new Map<ConcurrencyParticipant, number>();
    for (const each of slotsLimiters.toSorted((a, b) => (a.queue.rank < b.queue.rank ? -1 : 1))) {
      times.set(each, (times.get(each) ?? 0) + 1);
    }
    this.#times = times;
  }

  async acquire(slots = 1, options?: WaitOptions): Promise<CombinedLease> {
    const signal = checkWaitOptions(options);
    signal?.throwIfAborted();
    const entries = this.#entries(slots, options);
    const taken = await acquireAll(entries, 1, { signal });
    // without a time-out it always ends with a lease, or with an error
    return leaseOf((taken as TakenAll).taken);
  }

  tryAcquire(
    first: number | TryOptions = 1,
    longest?: number | TryOptions,
  ): MaybePromise<CombinedLease | undefined> {
    const { slots, wait } = tryArguments(first, longest);
    return wait === undefined ? this.#tryNow(slots) : this.#tryWithin(slots, wait);
  }

  #tryNow(asked: unknown, share?: ShareOptions): MaybePromise<CombinedLease | undefined> {
    const subrequests = subrequestsOf(this.#entries(asked, share), 1, 0);
    return chain(inTime(takeTogether(subrequests, { timeoutMs: 0 })), (together) => {
      if (together?.passes) return leaseOf(takenOf(together.checks));
      if (together !== undefined) reportRefusal(subrequests, together);
      return undefined;
    });
  }

  async #tryWithin(asked: unknown, wait: number | TryOptions): Promise<CombinedLease | undefined> {
    const { micros, signal, share } = checkTryOptions(wait);
    signal?.throwIfAborted();
    if (micros === 0) return this.#tryNow(asked, share);
    const limits = { signal, timeoutMs: micros / 1000 };
    const taken = await inTime(acquireAll(this.#entries(asked, share), 1, limits));
    return taken && leaseOf(taken.taken);
  }

  run<T>(
    fn: (lease: CombinedLease) => T | PromiseLike<T>,
    options?: AdaptiveRunOptions,
  ): Promise<T> {
    return runWith((slots, wait) => this.acquire(slots, wait), fn, options);
  }

  /** The participants for calls for that many slots and of that share. */
  #entries(asked: unknown, options?: ShareOptions) {
    const slots = checkNumber("slots", asked, wholeAtLeastOne);
    const share = shareOf(options);
    const slotsOfShare = [...this.#times].map(([participant, times]) => {
      const { isFair } = participant.queue;
      return { participant, slots: slots * times, share: isFair ? share : undefined };
    });
    const isFair = slotsOfShare.some(({ participant }) => participant.queue.isFair);
    return [...slotsOfShare, ...entriesOf(this[combined].rates, options, isFair)];
  }
}

function leaseOf(taken: readonly Taken[]): CombinedLease {
  const slots = taken.flatMap(({ held }) => held ?? []);
  for (const held of slots) held.started?.();
  return new HeldAll(slots);
}

class HeldAll {
  readonly #slotsLimiters: readonly HeldSlots[];

  constructor(slotsLimiters: readonly HeldSlots[]) {
    this.#slotsLimiters = slotsLimiters;
  }

  get signal(): AbortSignal {
    return AbortSignal.any(this.#slotsLimiters.flatMap(({ signal }) => signal ?? []));
  }

  release(): undefined & Promise<void> {
    return this.#end("release");
  }

  overloaded(): undefined & Promise<void> {
    return this.#end("overloaded");
  }

  ignore(): undefined & Promise<void> {
    return this.#end("ignore");
  }

  /** A slot releases itself at most once, so a second call does nothing. */
  #end(ending: Ending): undefined & Promise<void> {
    const ended = this.#slotsLimiters.map((held) => endLease(held, ending));
    const isElsewhere = ended.some((one) => one instanceof Promise);
    // the overloads of `allOf` give the caller the exact type
    return (isElsewhere ? Promise.all(ended).then(() => {}) : undefined) as never;
  }

  [dispose](): void {
    void this.release();
  }

  async [asyncDispose](): Promise<void> {
    await this.release();
  }
}
