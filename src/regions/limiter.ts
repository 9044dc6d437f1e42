/** The limiters of one region: every verb asks the region's own part first, and then the reserve in its store, if it has one. */
import type {
  Decision,
  RemoteLimiter,
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
  StoreUnavailableError,
} from "../ground/errors.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { AT_ONCE } from "../local/queueing-limiter.ts";
import type { Policies } from "../stores/policies.ts";
import type { Part } from "./part.ts";
import { known } from "./part-state.ts";
import type { Region } from "./region.ts";
import { RegionalReservation } from "./reservation.ts";

/** One promise is enough for all calls, because it never changes. */
const GRANTED = Promise.resolve(true);
const REFUSED = Promise.resolve(false);

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

  /** The part, without a lease that is over. */
  get #current(): Part {
    return this.region.member.current(this.#part);
  }

  get #reserve(): RemoteLimiter | undefined {
    return this.region.reserve(this.#key);
  }

  /** The part of the limit that this region may use now, from 0 to 1; without what it has in a store. */
  get fraction(): number {
    return this.#current.fraction;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return this.#try(() => {
      if (options !== undefined) checkWaitOptions(options)?.throwIfAborted();
      const part = this.#ask(permits, options);
      const reserve = this.#reserve;
      if (reserve === undefined) {
        const granted = part.acquire(permits, options);
        return granted === AT_ONCE ? granted : this.#waits(part, permits, granted);
      }
      if (part.grants(permits, options)) return AT_ONCE;
      const wait = async () => {
        const current = this.#open();
        return this.#waits(current, permits, current.limiter.acquire(permits, options));
      };
      if (part.hasRoom(permits) || !(part.isIdle || this.region.onFull === "reject")) return wait();
      const asked = this.#fromReserve(reserve, permits, false, options?.signal);
      return asked.then((isGranted) => (isGranted ? 0 : wait()));
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(first: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    // without a closure: this is the call that has to be fast
    try {
      if (wait !== undefined) return this.#tryWithin(first as Permits, wait);
      if (isTryOptions(first)) return this.#tryWithin(1, first);
      const part = this.#ask(first);
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
    const part = this.#ask(permits, options);
    if (part.grants(permits, options)) return GRANTED;
    const reserve = this.#reserve;
    if (reserve !== undefined) {
      const { timeoutMs = Infinity } = options;
      const waitMs = part.waitMs(permits, options);
      // what is not known may still be in time
      const isInTime = waitMs <= timeoutMs || (waitMs === Infinity && timeoutMs > 0);
      if (!isInTime || !part.hasRoom(permits)) return this.#tryReserve(reserve, permits, options);
    }
    return this.#waits(part, permits, part.limiter.tryAcquire(permits, options));
  }

  /** What the part refuses is taken from the reserve, if that has it at once. */
  async #tryReserve(
    reserve: RemoteLimiter,
    permits: Permits,
    options?: TryOptions,
  ): Promise<boolean> {
    if (await this.#fromReserve(reserve, permits, true, options?.signal)) return true;
    const { limiter } = this.#open();
    return limiter.tryAcquire(permits, { ...options, timeoutMs: 0 });
  }

  /**
   * Takes the permits from the reserve, if it has them now. A key that its reserve serves never becomes hot.
   *
   * @throws StoreUnavailableError if the call can do nothing else: `isLast`; the signal's reason
   */
  async #fromReserve(
    reserve: RemoteLimiter,
    permits: Permits,
    isLast: boolean,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    const { stats } = this.region;
    let isGranted = false;
    try {
      isGranted = await reserve.tryAcquire(permits, { timeoutMs: 0, signal });
      if (isGranted) stats.counts.granted += 1;
    } catch (error) {
      if (signal?.aborted) stats.counts.cancelled += 1;
      const isAway = error instanceof StoreUnavailableError;
      if (isAway ? isLast : !mayWait(error)) throw stats.failed(error);
    } finally {
      if (!isGranted) this.#lack();
    }
    return isGranted;
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
      checkShareOptions(options);
      const part = this.#ask(permits, options);
      const reserve = this.#reserve;
      if (reserve !== undefined && part.waitMs(permits, options) > 0 && !part.hasRoom(permits)) {
        const made = await this.#reserveThere(reserve, permits);
        if (made !== undefined) return made;
      }
      const current = this.#open();
      const reservation = new RegionalReservation(
        current.queue.supply,
        (account) => current.limiter[reserveAwaited](permits, sequence, options, account),
        (...payment) => this.#pay(this.#current, ...payment),
        () => this.region.feedOf(current)?.changed(),
      );
      if (reservation.waitMs === 0) return reservation;
      const isKnown = reservation.waitMs < Infinity;
      let isServed = false;
      const ready = this.#waits(current, permits, reservation.ready()).then((waitedMs) => {
        isServed = true;
        if (!isKnown) current.waited(permits, waitedMs);
      });
      // rejected where it is cancelled: by the caller, or by `close`
      ready.catch(() => {});
      const looked = reserve && this.region.feed(current).looked();
      if (looked !== undefined) {
        await Promise.race([looked, ready]);
        this.#checkOpen();
      }
      if (isServed) reservation.waitMs = 0;
      return reservation;
    });
  }

  /** Reserves in the store, if the permits are there at once. */
  async #reserveThere(reserve: RemoteLimiter, permits: Permits): Promise<Reservation | undefined> {
    try {
      const made = await reserve.reserve(permits);
      if (made.waitMs === 0) {
        this.region.stats.counts.granted += 1;
        return made;
      }
      await made.cancel();
    } catch (error) {
      if (!mayWait(error)) throw error;
    }
    this.#lack();
    return undefined;
  }

  /** In a combination it is looked at, and then asked. What is refused there is demand, too. */
  [asParticipant](options?: ShareOptions): RateParticipant {
    const { slot, steps } = new ForeignParticipant({
      peek: async (permits = 1) => this.#look(this.#open(), permits, options),
      decide: async (permits = 1) => {
        const decision = await this.#decide(this.#open(), permits, options);
        if (decision.allowed) this.#ask(permits);
        return decision;
      },
      reserve: (permits) => this.reserve(permits, options),
      refund: (permits) => this.refund(permits),
    });
    return {
      slot,
      steps: {
        check: async (...request) => (await steps.check(...request)).map(shown),
        take: async (...request) => (await steps.take(...request)).map(shown),
      },
      isFair: this.region.isFair,
      refused: (permits) => {
        this.#ask(permits);
        this.#lack();
      },
      full: (permits) => this.#part.limiter[asParticipant](options).full(permits),
    };
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#try(async () => {
      checkShareOptions(options);
      const part = this.#ask(permits, options);
      const decision = await this.#decide(part, permits, options);
      if (decision.allowed) return decision;
      this.#lack();
      // counts the refusal, unless the part has permits by now
      return known(sooner(this.#open().limiter.decide(permits, options), decision, true));
    });
  }

  /** Decides without counting a refusal. */
  async #decide(part: Part, permits: Permits, options?: ShareOptions): Promise<Decision> {
    const own = part.limiter[asParticipant](options).decide(permits);
    if (own.allowed || this.#reserve === undefined) return own;
    const other = await this.#there(this.#reserve.decide(permits));
    if (other?.allowed) this.region.stats.counts.granted += 1;
    return sooner(own, other, part.isIdle);
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#try(async () => known(await this.#look(this.#open(), permits, options)));
  }

  async #look(part: Part, permits: Permits, options?: ShareOptions): Promise<Decision> {
    const own = part.limiter.peek(permits, options);
    if (own.allowed || this.#reserve === undefined) return own;
    return sooner(own, await this.#there(this.#reserve.peek(permits)), part.isIdle);
  }

  charge(permits: Permits): Promise<void> {
    return this.#try(() => {
      const part = this.#open();
      const amount = part.queue.checked(permits);
      part.charged(amount);
      return this.#pay(part, "charge", amount);
    });
  }

  refund(permits: Permits): Promise<void> {
    return this.#try(() => {
      const part = this.#open();
      return this.#pay(part, "refund", part.queue.checked(permits));
    });
  }

  /** Without a part the reserve pays, if it is large enough: a debt of no part would be there for ever. */
  async #pay(
    part: Part,
    verb: "charge" | "refund",
    amount: Amount,
    isOfReserve = false,
  ): Promise<void> {
    const reserve = isOfReserve || part.fraction === 0 ? this.#reserve : undefined;
    const paid =
      reserve && (await this.#there(reserve[verb](part.permitsOf(amount)).then(() => true)));
    if (paid !== true) part.queue[verb](amount);
  }

  pause(ms: number): Promise<void> {
    return this.#try(async () => {
      this.#open().limiter.pause(ms);
      await this.#reserve?.pause(ms);
      this.#renew();
    });
  }

  reset(): Promise<void> {
    return this.#try(async () => {
      this.#open().limiter.reset();
      await this.#reserve?.reset();
      this.#renew();
    });
  }

  /** What the reserve has promised the head of the line does not hold any more. */
  #renew(): void {
    this.region.feedOf(this.#part)?.renew();
  }

  /** Gives this process other numbers; the other processes keep theirs until `update` is called there. */
  update(policies: Policies): Promise<void> {
    return this.#try(async () => {
      this.#open();
      this.region.update(policies);
    });
  }

  /** Goes by the declared numbers again. */
  resetPolicies(): Promise<void> {
    return this.#try(async () => {
      this.#open();
      this.region.resetPolicies();
    });
  }

  /** Whether the home answered the last message; or `"closed"`. */
  get state(): StoreState {
    return this.region.member.isClosed ? "closed" : this.region.stats.state;
  }

  /** The counters of all keys together, and the outages of the home. */
  get stats(): RemoteStats {
    return this.region.stats.stats;
  }

  /** Ends the calls that wait in this limiter with a LimiterClosedError. */
  async close(): Promise<void> {
    this.region.dismiss(this.#key);
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Checks that the limiter is open. Returns its part, without a lease that is over. */
  #open(): Part {
    this.#checkOpen();
    return this.#current;
  }

  /** The same for a request, which is counted as demand if its options are right; faster. */
  #ask(permits: Permits, options?: ShareOptions): Part {
    this.#checkOpen();
    const part = this.#part;
    if (part.isLapsed) this.region.member.lapse(part);
    if (options !== undefined) part.check(permits, options);
    part.asked(permits);
    return part;
  }

  #checkOpen(): void {
    const { member, name } = this.region;
    if (member.isClosed) throw new LimiterClosedError(name);
    member.greet();
  }

  /** Counts the caller among those that wait, in a part that lacks permits. */
  #waits<T>(part: Part, permits: Permits, answer: Promise<T>): Promise<T> {
    const { region } = this;
    region.member.waits(part, part.costOf(permits), answer);
    if (this.#reserve === undefined) {
      region.member.lack(part);
    } else {
      const left = () => region.feedOf(part)?.changed();
      answer.then(left, left);
      region.feed(part);
    }
    return answer;
  }

  /** The part lacks permits. While the reserve was asked the key may have been forgotten: then it has another part now. */
  #lack(): void {
    this.region.member.lack(this.#part);
  }

  /** Returns the reserve's answer; undefined if the request is larger than the reserve, though it may fit a part. */
  async #there<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch (error) {
      if (error instanceof PermitsExceedCapacityError) return undefined;
      throw this.region.stats.failed(error);
    }
  }

  #try<T>(run: () => Promise<T>): Promise<T> {
    try {
      return run();
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/** Whether a call that the reserve fails with this error may wait for the part. */
function mayWait(error: unknown): boolean {
  return error instanceof PermitsExceedCapacityError || error instanceof StoreUnavailableError;
}

/**
 * Returns the decision with the shorter wait.
 *
 * @param isHead whether no caller waits: behind others it is not known what the reserve will do
 */
function sooner(own: Decision, other: Decision | undefined, isHead: boolean): Decision {
  if (own.allowed || other === undefined) return own;
  if (!other.allowed && !isHead) return { ...other, waitMs: own.waitMs };
  return other.allowed || other.waitMs <= own.waitMs ? other : own;
}

function shown(check: Check): Check {
  return { ...check, decision: known(check.decision) };
}
