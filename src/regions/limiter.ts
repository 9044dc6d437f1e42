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
import type { OutageStats, RemoteStats, StoreState } from "../api/outage-stats.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import { asyncDispose } from "../ground/dispose.ts";
import {
  LimiterClosedError,
  PermitsExceedCapacityError,
  StoreUnavailableError,
} from "../ground/errors.ts";
import type { Permits } from "../ground/permits.ts";
import { AT_ONCE } from "../local/queueing-limiter.ts";
import { UNKNOWN } from "../queue/supply.ts";
import type { Policies } from "../stores/policies.ts";
import type { Member } from "./member.ts";
import type { Part } from "./part.ts";

/** One promise is enough for all calls, because it never changes. */
const GRANTED = Promise.resolve(true);
const REFUSED = Promise.resolve(false);

/** A limiter that answers with a decision: the part, or the reserve. */
type Decider = Part["limiter"] | RemoteLimiter;

/** What the limiters of all keys of a region share. */
export interface Region {
  readonly name: string;
  readonly member: Member;
  /** The reserve of the region, where it is in a store; with a key: the reserve of that key. */
  reserve(key: string | undefined): RemoteLimiter | undefined;
  partOf(key: string | undefined): Part;
  readonly stats: OutageStats;
  /** @param policies absent: the declared ones */
  update(policies?: Policies): Promise<void>;
  /** Ends the calls that wait for the key. */
  dismiss(key: string | undefined): void;
}

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
      const part = this.#open(permits);
      if (this.#reserve === undefined) {
        const granted = part.acquire(permits, options);
        return granted === AT_ONCE ? granted : this.#waits(part, permits, granted);
      }
      checkWaitOptions(options)?.throwIfAborted();
      if (part.grants(permits, options)) return AT_ONCE;
      const own = () => this.#open().limiter.acquire(permits, options);
      const other = (reserve: RemoteLimiter) => reserve.acquire(permits, options);
      return this.#waits(part, permits, this.#shortest(part, permits, own, other, 0));
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

  #tryWithin(permits: Permits, longest: number | TryOptions): Promise<boolean> {
    const part = this.#open(permits);
    const { signal, share } = checkTryOptions(longest);
    signal?.throwIfAborted();
    if (part.grants(permits, share)) return GRANTED;
    const own = () => this.#open().limiter.tryAcquire(permits, longest);
    const other = (reserve: RemoteLimiter) => reserve.tryAcquire(permits, longest);
    return this.#waits(part, permits, this.#shortest(part, permits, own, other, true));
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
      const part = this.#open(permits);
      const own = async () => this.#open().limiter[reserveAwaited](permits, sequence, options);
      const { waitMs } = part.limiter.peek(permits, options);
      const reserve = this.#reserve;
      const other = waitMs > 0 ? await there(reserve?.peek(permits, options)) : undefined;
      if (waitMs > 0 && other?.allowed !== true) this.#lack();
      if (reserve === undefined || other === undefined || other.waitMs >= waitMs) return own();
      return reserve.reserve(permits, options);
    });
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    const ask = (limiter: Decider) => limiter.decide(permits, options);
    return this.#try(() => this.#answer(this.#open(permits), ask, true));
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    const ask = (limiter: Decider) => limiter.peek(permits, options);
    return this.#try(() => this.#answer(this.#open(), ask, false));
  }

  /** Asks the part, and if it refuses the reserve; returns the decision with the shorter wait. */
  async #answer(
    part: Part,
    ask: (limiter: Decider) => Decision | Promise<Decision>,
    isDemand: boolean,
  ): Promise<Decision> {
    const own = finite(await ask(part.limiter));
    const reserve = this.#reserve;
    const other = own.allowed || reserve === undefined ? own : ((await there(ask(reserve))) ?? own);
    const shorter = other.allowed || other.waitMs <= own.waitMs ? other : own;
    if (isDemand && !shorter.allowed) this.#lack();
    return shorter;
  }

  charge(permits: Permits): Promise<void> {
    return this.#try(async () => this.#open(permits).limiter.charge(permits));
  }

  refund(permits: Permits): Promise<void> {
    return this.#try(async () => this.#open().limiter.refund(permits));
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

  /** Ends the calls that wait in this limiter with a LimiterClosedError, but not those that wait for a reserve in a store. */
  async close(): Promise<void> {
    this.region.dismiss(this.#key);
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Checks that the limiter is open, ends a lease that is over, and counts the request as demand. */
  #open(permits?: Permits): Part {
    const { member, name } = this.region;
    if (member.isClosed) throw new LimiterClosedError(name);
    const part = this.#part;
    if (part.isLapsed) member.lapse(part);
    if (permits !== undefined) part.asked(permits);
    return part;
  }

  /** Counts the caller among those that wait. */
  #waits<T>(part: Part, permits: Permits, answer: Promise<T>): Promise<T> {
    const { member } = this.region;
    member.waits(part, part.costOf(permits), answer);
    // with a reserve in a store, only if that refuses: see `#shortest`
    if (this.#reserve === undefined) member.lack(part);
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

  /** Takes the permits from the reserve if they are there now; else waits where the wait is shorter. */
  async #shortest<T>(
    part: Part,
    permits: Permits,
    own: () => Promise<T>,
    other: (reserve: RemoteLimiter) => Promise<T>,
    granted: T,
  ): Promise<T> {
    const reserve = this.#reserve;
    if (reserve === undefined) return own();
    try {
      const decision = await there(reserve.decide(permits));
      if (decision?.allowed) return granted;
      this.region.member.lack(part);
      if (decision === undefined) return own();
      if (decision.waitMs < part.limiter.peek(permits).waitMs) return await other(reserve);
    } catch (error) {
      this.region.member.lack(part);
      if (!(error instanceof StoreUnavailableError) || part.fraction === 0) throw error;
    }
    return own();
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

/** It is not known when a request can be granted that depends on other regions: as far as is known, never. */
function finite(decision: Decision): Decision {
  return decision.waitMs < UNKNOWN / 1e6 ? decision : { ...decision, waitMs: Infinity };
}
