/**
 * Combines several limiters: a request is granted by all of them, or charged to none. `all-or-none.ts`
 * says how that is done, and `waiting.ts` how a combination waits.
 */

import type {
  Decision,
  Limiter,
  LocalLimiter,
  PermitsOnly,
  PolicyStatus,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import {
  checkShareOptions,
  checkTryOptions,
  checkWaitOptions,
  isTryOptions,
} from "../api/options.ts";
import {
  asParticipant,
  type Check,
  type ConcurrencyParticipant,
  participantOf,
  type Taken,
} from "../api/participant.ts";
import { inTime } from "../api/timeout.ts";
import { failCheck } from "../ground/check.ts";
import { all, chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Permits } from "../ground/permits.ts";
import {
  binds,
  checkTogether,
  reportRefusal,
  type Together,
  takeTogether,
  undoAll,
} from "./all-or-none.ts";
import {
  acquireAll,
  Deadline,
  entriesOf,
  type RateEntry,
  subrequestsOf,
  type TakenAll,
} from "./waiting.ts";
import {
  AllOfWithSlots,
  type Combination,
  combined,
  type LeasingLimiter,
  type LocalLeasingLimiter,
} from "./with-slots.ts";

/** A concurrency limiter, in this process or on Redis. */
export interface LocalSlotLimiter extends SlotLimiter {
  tryAcquire(slots?: number): Disposable | undefined;
}
export interface SlotLimiter {
  tryAcquire(slots?: number): unknown;
  [asParticipant](): ConcurrencyParticipant;
}

/**
 * Combines several limiters: a request is granted by all of them, or charged to none. For several
 * rules about the same key give one limiter several policies; this function is for limiters with
 * different keys.
 *
 * Limiters on one Redis server are asked in one script, which checks all of them before it charges
 * any, so a refused request uses nothing up. On Cluster this needs keys in one slot: see `hashTag`
 * in the limiters' options.
 *
 * @param limiters one or more: rate limiters in this process, on Redis, or both; and concurrency
 *   limiters. A request's permits are charged to each rate limiter
 * @returns a limiter; its quick verbs return at once if those of all its limiters do. In its
 *   decisions a policy of the second limiter gets "#2" after its name where that name is already in
 *   use, and so on. With a concurrency limiter among them, the verbs return leases, and `release()`
 *   frees the slot; every lease has used one permit of each rate limiter
 * @throws TypeError on an argument that is not a limiter
 * @example
 * const limiter = allOf(everyone, perUser.for(user), perAddress.for(address));
 * const { allowed, policies } = await limiter.decide();
 * if (!allowed) return tooManyRequests(Object.keys(policies).filter((name) => !policies[name].allowed));
 */
export function allOf(...limiters: readonly LocalLimiter[]): LocalLimiter;
export function allOf(...limiters: readonly Limiter[]): Limiter;
export function allOf(
  ...limiters: readonly (LocalLimiter | LocalSlotLimiter | LocalLeasingLimiter)[]
): LocalLeasingLimiter;
export function allOf(
  ...limiters: readonly (Limiter | SlotLimiter | LeasingLimiter)[]
): LeasingLimiter;
export function allOf(
  ...limiters: readonly (Limiter | SlotLimiter | LocalLeasingLimiter | LeasingLimiter)[]
): Limiter | LocalLeasingLimiter | LeasingLimiter {
  const rates: RateEntry[] = [];
  const slotsLimiters: ConcurrencyParticipant[] = [];
  for (const [i, limiter] of limiters.entries()) {
    if (isCombination(limiter)) {
      rates.push(...limiter[combined].rates);
      slotsLimiters.push(...limiter[combined].slotsLimiters);
    } else if (isRate(limiter)) {
      rates.push({ limiter, participant: participantOf(limiter) });
    } else if (isSlots(limiter)) {
      slotsLimiters.push(limiter[asParticipant]());
    } else {
      failCheck(`allOf: argument ${i + 1}`, "a limiter (of a KeyedLimiter pass for(key))", limiter);
    }
  }
  if (limiters.length === 0) throw new TypeError("allOf needs a limiter");
  if (slotsLimiters.length === 0) return new AllOf(rates);
  return new AllOfWithSlots(slotsLimiters, rates) as LocalLeasingLimiter | LeasingLimiter;
}

function isCombination(limiter: unknown): limiter is Combination {
  return combined in Object(limiter);
}

function isRate(limiter: unknown): limiter is Limiter {
  return typeof (limiter as Partial<Limiter> | null)?.reserve === "function";
}

function isSlots(limiter: unknown): limiter is SlotLimiter {
  return asParticipant in Object(limiter);
}

class AllOf implements Limiter, Combination {
  readonly entries: readonly RateEntry[];

  constructor(entries: readonly RateEntry[]) {
    this.entries = entries;
  }

  get [combined](): Combination[typeof combined] {
    return { rates: this.entries, slotsLimiters: [] };
  }

  async acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    const signal = checkWaitOptions(options);
    signal?.throwIfAborted();
    const taken = await acquireAll(entriesOf(this.entries, options), permits, { signal });
    // without a time-out it always ends with permits, or with an error
    return (taken as TakenAll).waitedMs;
  }

  tryAcquire(permits?: PermitsOnly): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | TryOptions = 1, wait?: number | TryOptions): MaybePromise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    const taken = inTime(this.#take(permits, 0, undefined, { timeoutMs: 0 }));
    return chain(taken, (together) => together?.passes === true);
  }

  async #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    const { micros, signal, share } = checkTryOptions(wait);
    signal?.throwIfAborted();
    const timeoutMs = micros / 1000;
    const entries = entriesOf(this.entries, share);
    const deadline = new Deadline(entries, timeoutMs);
    const subrequests = subrequestsOf(entries, permits, timeoutMs);
    const asked = deadline.asking(() => takeTogether(subrequests, { timeoutMs, signal }));
    const together = await inTime(asked);
    if (together === undefined) return false;
    if (together.passes) {
      if (timeoutMs === 0) return true;
      const reserved = new AllReserved(permits, together.checks as readonly Check[]);
      const ready = reserved.readyBy((place, i) => {
        return deadline.ready(place, (entries[i] as RateEntry).participant, signal);
      });
      return (await inTime(ready)) !== undefined;
    }
    const mayPass = (check?: Check) => check?.passes || check?.isUnknown;
    if (timeoutMs > 0 && together.checks.every(mayPass)) {
      const limits = { signal, timeoutMs, deadline };
      return (await inTime(acquireAll(entries, permits, limits))) !== undefined;
    }
    reportRefusal(subrequests, together);
    return false;
  }

  reserve(permits: Permits = 1, options?: ShareOptions): MaybePromise<AllReserved> {
    checkShareOptions(options);
    return chain(this.#take(permits, Infinity, options), ({ passes, checks }) => {
      if (passes) return new AllReserved(permits, checks as readonly Check[]);
      const failed = checks.findIndex((check) => check?.passes === false);
      const check = checks[failed] as Check;
      throw check.error ?? (this.entries[failed] as RateEntry).participant.full(permits, check);
    });
  }

  decide(permits: Permits = 1, options?: ShareOptions): MaybePromise<Decision> {
    checkShareOptions(options);
    return chain(this.#take(permits, 0, options), ({ passes, checks }) => {
      return { ...merge(checks), allowed: passes };
    });
  }

  peek(permits: Permits = 1, options?: ShareOptions): MaybePromise<Decision> {
    checkShareOptions(options);
    const subrequests = subrequestsOf(entriesOf(this.entries, options), permits, 0);
    return chain(checkTogether(subrequests), ({ checks }) => merge(checks));
  }

  charge(permits: Permits): MaybePromise<void> {
    return this.#each(permits, (limiter) => limiter.charge(permits));
  }

  refund(permits: Permits): MaybePromise<void> {
    return this.#each(permits, (limiter) => limiter.refund(permits));
  }

  pause(ms: number): MaybePromise<void> {
    return inAll(this.entries, ({ limiter }) => limiter.pause(ms));
  }

  reset(): MaybePromise<void> {
    return inAll(this.entries, ({ limiter }) => limiter.reset());
  }

  update(): never {
    throw new TypeError("allOf has no policies of its own: update its limiters");
  }

  #take(
    permits: Permits,
    longestMs: number,
    options: ShareOptions | undefined,
    stepOptions = {},
  ): MaybePromise<Together> {
    const subrequests = subrequestsOf(entriesOf(this.entries, options), permits, longestMs);
    return chain(takeTogether(subrequests, stepOptions), (together) => {
      if (!together.passes) reportRefusal(subrequests, together);
      return together;
    });
  }

  /** Checks that all limiters accept the permits before it changes any of them. */
  #each(permits: Permits, action: (limiter: Limiter) => MaybePromise<void>): MaybePromise<void> {
    return chain(this.peek(permits), () => inAll(this.entries, ({ limiter }) => action(limiter)));
  }
}

class AllReserved implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #checks: readonly Check[];
  readonly #reservations: readonly Reservation[];

  constructor(permits: Permits, checks: readonly Check[]) {
    this.permits = permits;
    this.#checks = checks;
    this.#reservations = checks.map(({ taken }) => (taken as Taken).reservation as Reservation);
    this.waitMs = Math.max(...this.#reservations.map(({ waitMs }) => waitMs));
  }

  ready(options?: WaitOptions): Promise<number> {
    return this.readyBy((one) => one.ready(options));
  }

  /** Waits for each in this way. */
  async readyBy(ready: (one: Reservation, i: number) => Promise<number>): Promise<number> {
    try {
      return Math.max(...(await Promise.all(this.#reservations.map(ready))));
    } catch (error) {
      void undoAll(this.#checks);
      throw error;
    }
  }

  cancel(): MaybePromise<boolean> {
    return chain(
      all(this.#reservations, (one) => one.cancel()),
      (cancelled) => {
        if (!cancelled.includes(true)) return false;
        // the reservations that could be used at once cannot be cancelled; they are undone instead
        const rest = this.#checks.filter((_, i) => !cancelled[i]);
        return chain(undoAll(rest), () => true);
      },
    );
  }

  undo(): MaybePromise<void> {
    return inAll(this.#reservations, (one) => one.undo());
  }

  settle(actual: Permits): MaybePromise<void> {
    return inAll(this.#reservations, (one) => one.settle(actual));
  }
}

/** Merges the decisions into one. The limiter with the longest wait gives the headline numbers. */
function merge(checks: readonly (Check | undefined)[]): Decision {
  const policies: Record<string, PolicyStatus> = {};
  const named = checks.flatMap((check, i) => {
    // its store is away, and another limiter refuses
    if (check === undefined) return [];
    const { decision } = check;
    const nameOf = (name: string) => (Object.hasOwn(policies, name) ? `${name}#${i + 1}` : name);
    const renamed = Object.entries(decision.policies).map(
      ([name, status]) => [nameOf(name), status] as const,
    );
    const policy = nameOf(decision.policy);
    for (const [name, status] of renamed) policies[name] = status;
    return { ...decision, policy };
  });
  const [first, ...rest] = named as [Decision, ...Decision[]];
  const binding = rest.reduce((one, other) => (binds(other, one) ? other : one), first);
  return { ...binding, policies };
}

function inAll<A>(
  these: readonly A[],
  action: (each: A) => MaybePromise<void>,
): MaybePromise<void> {
  return chain(all(these, action), () => {});
}
