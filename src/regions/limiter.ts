/** The limiters of one region: every verb asks the region's own part first, and then the reserve in its store, if it has one. */
import type {
  Decision,
  RemoteLimiter,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import { checkTryOptions, checkWaitOptions, isTryOptions } from "../api/options.ts";
import type { RemoteStats, StoreState } from "../api/outage-stats.ts";
import {
  asParticipant,
  type Check,
  ForeignParticipant,
  type RateParticipant,
} from "../api/participant.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import { asyncDispose } from "../ground/dispose.ts";
import {
  LimiterClosedError,
  PermitsExceedCapacityError,
  QueueFullError,
  StoreUnavailableError,
} from "../ground/errors.ts";
import type { Permits } from "../ground/permits.ts";
import { AT_ONCE } from "../local/queueing-limiter.ts";
import { UNKNOWN } from "../queue/supply.ts";
import type { Policies } from "../stores/policies.ts";
import type { Part } from "./part.ts";
import type { Region } from "./region.ts";
import { eitherOf, uncount } from "./two-lines.ts";

/** One promise is enough for all calls, because it never changes. */
const GRANTED = Promise.resolve(true);
const REFUSED = Promise.resolve(false);

/** The part, or the reserve. */
type Either = Part["limiter"] | RemoteLimiter;

/** The limiter of one region, for one key or for the limit without a key. */
export class PartLimiter implements RemoteLimiter {
  protected readonly region: Region;
  readonly #key: string | undefined;

  constructor(region: Region, key: string | undefined) {
    this.region = region;
    this.#key = key;
  }

  get #part(): Part {
    return this.region.partOf(this.#key);
  }

  get #reserve(): RemoteLimiter | undefined {
    return this.region.reserve(this.#key);
  }

  /** The part of the limit that this region may use now, from 0 to 1; without what it has in a store. */
  get fraction(): number {
    return this.#part.fraction;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return this.#try(() => {
      if (options !== undefined) checkWaitOptions(options)?.throwIfAborted();
      const part = this.#open(permits, options);
      const reserve = this.#reserve;
      if (reserve === undefined) {
        const granted = part.acquire(permits, options);
        return granted === AT_ONCE ? granted : this.#waits(part, permits, granted);
      }
      if (part.grants(permits, options)) return AT_ONCE;
      const ask = (limiter: Either, waiting: WaitOptions) => limiter.acquire(permits, waiting);
      return this.#either(part, reserve, permits, options, ask, () => true);
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(first: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    // without a closure: this is the call that has to be fast
    try {
      if (wait !== undefined) return this.#tryWithin(first as Permits, wait);
      if (isTryOptions(first)) return this.#tryWithin(1, first);
      const part = this.#open(first);
      const reserve = this.#reserve;
      if (reserve !== undefined) {
        return part.grants(first) ? GRANTED : this.#tryReserve(reserve, first);
      }
      if (part.tryAcquire(first)) return GRANTED;
      this.region.member.lack(part);
      return REFUSED;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    checkTryOptions(wait).signal?.throwIfAborted();
    const options = typeof wait === "number" ? { timeoutMs: wait } : wait;
    const part = this.#open(permits, options);
    const reserve = this.#reserve;
    if (part.grants(permits, options)) return GRANTED;
    if (reserve === undefined)
      return this.#waits(part, permits, part.limiter.tryAcquire(permits, options));
    const ask = async (limiter: Either, waiting: TryOptions) =>
      limiter.tryAcquire(permits, waiting);
    return this.#either(part, reserve, permits, options, ask, (isGranted) => isGranted);
  }

  reserve(permits: Permits = 1, options?: ShareOptions): Promise<Reservation> {
    return this[reserveAwaited](permits, undefined, options);
  }

  // each is accounted like a caller that waits, because a smaller part delays it
  [reserveAwaited](
    permits: Permits,
    sequence?: RequestSequence,
    options?: ShareOptions,
  ): Promise<Reservation> {
    return this.#try(async () => {
      const part = this.#open(permits, options);
      const { waitMs } = part.limiter.peek(permits, options);
      const reserve = this.#reserve;
      if (waitMs > 0 && reserve !== undefined) {
        const made = await this.#reserveThere(part, reserve, permits, options, waitMs);
        if (made !== undefined) return made;
      }
      const current = this.#open();
      const reservation = current.limiter[reserveAwaited](permits, sequence, options);
      if (reservation.waitMs > 0) void this.#waits(current, permits, reservation.ready());
      // in its queue a wait that is not known is a number
      return Object.assign(reservation, { waitMs: finite(reservation).waitMs });
    });
  }

  /** Reserves in the store, if that is sooner and soon: a place in its line stays there, though the part grows. */
  async #reserveThere(
    part: Part,
    reserve: RemoteLimiter,
    permits: Permits,
    options: ShareOptions | undefined,
    partMs: number,
  ): Promise<Reservation | undefined> {
    const isCut = part.fraction === 0 && this.region.stats.state === "unavailable";
    const longestMs = isCut ? Infinity : this.region.everyMs;
    const isSoon = (waitMs: number) => waitMs < partMs && waitMs <= longestMs;
    try {
      const { allowed, waitMs } = await reserve.peek(permits, options);
      if (!allowed) this.#lack();
      if (!isSoon(waitMs)) return undefined;
      const made = await reserve.reserve(permits, options);
      if (isSoon(made.waitMs)) return made;
      // others that looked at the same time were faster; the caller has not made this reservation
      await made.cancel();
      const { counts } = this.region.stats;
      counts.granted -= 1;
      counts.cancelled -= 1;
    } catch (error) {
      if (!(error instanceof PermitsExceedCapacityError) && !isServed(part, error)) throw error;
      this.#lack();
    }
    return undefined;
  }

  /** In a combination it is looked at, and then asked. What is refused there is demand, too. */
  [asParticipant](options?: ShareOptions): RateParticipant {
    const look = (permits: Permits) => ask((limiter) => limiter.peek(permits, options));
    const ask = async (answer: (limiter: Either) => Decision | Promise<Decision>) =>
      this.#answer(this.#open(), answer);
    const { slot, steps } = new ForeignParticipant({
      peek: look,
      decide: async (permits) => {
        const decision = await ask((limiter) => limiter.decide(permits, options));
        if (decision.allowed) this.#open(permits);
        return decision;
      },
      reserve: (permits) => this.reserve(permits, options),
      refund: (permits) => this.refund(permits),
    });
    return {
      slot,
      steps: {
        check: async (...request) => (await steps.check(...request)).map(known),
        take: async (...request) => (await steps.take(...request)).map(known),
      },
      isFair: this.region.isFair,
      refused: (permits) => {
        this.#open(permits);
        this.#lack();
      },
      full: (permits) => this.#part.limiter[asParticipant](options).full(permits),
    };
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    const ask = (limiter: Either) => limiter.decide(permits, options);
    return this.#try(async () => {
      const first = (part: Part) => part.limiter[asParticipant](options).decide(permits);
      const decision = await this.#answer(this.#open(permits, options), ask, first);
      if (!decision.allowed) this.#lack();
      return finite(decision);
    });
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    const ask = (limiter: Either) => limiter.peek(permits, options);
    return this.#try(async () => finite(await this.#answer(this.#open(), ask)));
  }

  /**
   * Asks the part, and if it refuses the reserve; returns the decision with the shorter wait.
   *
   * @param first how the part is asked if there is a reserve: its refusal is not the caller's then
   */
  async #answer(
    part: Part,
    ask: (limiter: Either) => Decision | Promise<Decision>,
    first: (part: Part) => Decision | Promise<Decision> = () => ask(part.limiter),
  ): Promise<Decision> {
    const reserve = this.#reserve;
    if (reserve === undefined) return ask(part.limiter);
    const own = await first(part);
    if (own.allowed) return own;
    const other = await there(ask(reserve));
    if (other === undefined) return ask(part.limiter);
    return other.allowed || other.waitMs <= own.waitMs ? other : own;
  }

  charge(permits: Permits): Promise<void> {
    return this.#try(() => this.#pay(this.#open(permits), (limiter) => limiter.charge(permits)));
  }

  refund(permits: Permits): Promise<void> {
    return this.#try(() => this.#pay(this.#open(), (limiter) => limiter.refund(permits)));
  }

  /** Without a part the reserve pays, if it is large enough: a debt of no part would be there for ever. */
  async #pay(part: Part, pay: (limiter: Either) => void | Promise<void>): Promise<void> {
    const reserve = part.fraction === 0 ? this.#reserve : undefined;
    const paid = reserve && (await there(Promise.resolve(pay(reserve)).then(() => true)));
    if (paid !== true) await pay(part.limiter);
  }

  pause(ms: number): Promise<void> {
    return this.#try(async () => {
      this.#open().limiter.pause(ms);
      await this.#reserve?.pause(ms);
    });
  }

  reset(): Promise<void> {
    return this.#try(async () => {
      this.#open().limiter.reset();
      await this.#reserve?.reset();
    });
  }

  /** Gives this process other numbers; the other regions keep theirs until `update` is called there. */
  update(policies: Policies): Promise<void> {
    return this.#try(async () => {
      this.#open();
      await this.region.update(policies);
    });
  }

  /** Goes by the declared numbers again. */
  resetPolicies(): Promise<void> {
    return this.#try(async () => {
      this.#open();
      await this.region.update();
    });
  }

  /** Whether the home answered the last message; or `"closed"`. */
  get state(): StoreState {
    return this.region.member.isClosed ? "closed" : this.region.stats.state;
  }

  /** The counters of all keys together, with those of the region's store, and the outages of the home. */
  get stats(): RemoteStats {
    const { stats } = this.region.stats;
    const there = this.region.reserve(undefined)?.stats;
    if (there === undefined) return stats;
    return {
      ...stats,
      granted: stats.granted + there.granted,
      refused: stats.refused + there.refused,
      cancelled: stats.cancelled + there.cancelled,
      waiting: stats.waiting + there.waiting,
      failed: stats.failed + there.failed,
    };
  }

  /** Ends the calls that wait in this limiter with a LimiterClosedError, but not reservations in a store. */
  async close(): Promise<void> {
    this.region.dismiss(this.#key);
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Checks that the limiter is open, ends a lease that is over, and counts a request as demand, if its options are right. */
  #open(permits?: Permits, options?: ShareOptions): Part {
    const { member, name } = this.region;
    if (member.isClosed) throw new LimiterClosedError(name);
    const part = this.#part;
    if (part.isLapsed) member.lapse(part);
    if (options !== undefined && permits !== undefined) part.check(permits, options);
    if (permits !== undefined) part.asked(permits);
    return part;
  }

  /** Counts the caller among those that wait, in a part that lacks permits. */
  #waits<T>(part: Part, permits: Permits, answer: Promise<T>): Promise<T> {
    const { member } = this.region;
    member.waits(part, part.costOf(permits), answer);
    member.lack(part);
    return answer;
  }

  /** Takes the permits from the reserve. A key that its reserve serves never becomes hot. */
  async #tryReserve(reserve: RemoteLimiter, permits: Permits): Promise<boolean> {
    let isGranted = false;
    try {
      const answer = await there(reserve.tryAcquire(permits));
      isGranted = answer ?? this.#open().limiter.tryAcquire(permits);
      return isGranted;
    } finally {
      if (!isGranted) this.#lack();
    }
  }

  /** The part lacks permits. While the reserve was asked the key may have been forgotten: then it has another part now. */
  #lack(): void {
    this.region.member.lack(this.#part);
  }

  /** Waits in the line of the part and in that of the reserve. A key that its reserve serves never becomes hot. */
  #either<T, Options extends WaitOptions>(
    part: Part,
    reserve: RemoteLimiter,
    permits: Permits,
    options: Options | undefined,
    ask: (limiter: Either, options: Options) => Promise<T>,
    isGranted: (answer: T) => boolean,
  ): Promise<T> {
    const { member, stats } = this.region;
    const own = {
      wait: (signal: AbortSignal) => ask(part.limiter, { ...options, signal } as Options),
      canDoWithout: isFull,
      giveBack: () => part.limiter.refund(permits),
    };
    const other = {
      wait: (signal: AbortSignal) => {
        const looked = reserve.peek(permits).then(({ allowed }) => allowed);
        const missed = (error: unknown) => {
          uncount(error, stats.counts);
          return false;
        };
        void looked.catch(missed).then((allowed) => allowed || this.#lack());
        return ask(reserve, { ...options, signal } as Options);
      },
      canDoWithout: (error: unknown) =>
        isFull(error) || error instanceof PermitsExceedCapacityError || isServed(part, error),
      giveBack: () => void reserve.refund(permits).catch(() => {}),
    };
    const answer = eitherOf([own, other], isGranted, options?.signal, stats.counts);
    member.waits(part, part.costOf(permits), answer);
    return answer;
  }

  #try<T>(run: () => Promise<T>): Promise<T> {
    try {
      return run();
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/** Returns the reserve's answer; undefined if the request is larger than the reserve, though it may fit a part. */
async function there<T>(answer: T | Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof PermitsExceedCapacityError) return undefined;
    throw error;
  }
}

function isFull(error: unknown): boolean {
  return error instanceof QueueFullError;
}

/** Whether it is the region's store that is away: the part serves the calls then, if there is one. */
function isServed(part: Part, error: unknown): boolean {
  return error instanceof StoreUnavailableError && part.fraction > 0;
}

function known(check: Check): Check {
  return { ...check, decision: finite(check.decision) };
}

/** It is not known when a request can be granted that depends on other regions: as far as is known, never. */
function finite<T extends { readonly waitMs: number }>(answer: T): T {
  return answer.waitMs < UNKNOWN / 1e6 ? answer : { ...answer, waitMs: Infinity };
}
