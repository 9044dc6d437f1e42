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
  refusalOf,
  reportRefusal,
  type Subrequest,
} from "../api/participant.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import { asyncDispose } from "../ground/dispose.ts";
import { StoreUnavailableError } from "../ground/errors.ts";
import type { Permits } from "../ground/permits.ts";
import { AT_ONCE } from "../local/queueing-limiter.ts";
import type { Payment } from "../queue/reservation.ts";
import type { Policies } from "../stores/policies.ts";
import { Fallback, GRANTED } from "./fallback.ts";
import type { Part } from "./part.ts";
import { known } from "./part-state.ts";
import type { Region } from "./region.ts";
import { ReserveFallback, sooner } from "./reserve-fallback.ts";

/** The limiter of one region, for one key or for the limit without a key. */
export class PartLimiter implements RemoteLimiter {
  protected readonly region: Region;
  readonly #key: string | undefined;
  readonly #fallback: Fallback;

  constructor(region: Region, key: string | undefined) {
    const { reserve } = region;
    this.region = region;
    this.#key = key;
    this.#fallback =
      reserve === undefined ? new Fallback(region, key) : new ReserveFallback(region, key, reserve);
  }

  get #part(): Part {
    return this.region.partOf(this.#key);
  }

  /** The part of the limit that this region may use now, from 0 to 1; without what it has in a store. */
  get fraction(): number {
    const { member } = this.region;
    return member.isClosed ? 0 : member.current(this.#part).fraction;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return this.#try(() => {
      if (options !== undefined) checkWaitOptions(options)?.throwIfAborted();
      const part = this.#found();
      return part.grants(permits, options)
        ? AT_ONCE
        : this.#fallback.acquire(part, permits, options);
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(first: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    // without a closure: this is the call that has to be fast
    try {
      if (wait !== undefined) return this.#tryWithin(first as Permits, wait);
      if (isTryOptions(first)) return this.#tryWithin(1, first);
      return this.#fallback.tryAcquire(this.#found(), first);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    checkTryOptions(wait).signal?.throwIfAborted();
    const options = typeof wait === "number" ? { timeoutMs: wait } : wait;
    const part = this.#found();
    return part.grants(permits, options)
      ? GRANTED
      : this.#fallback.tryWithin(part, permits, options);
  }

  reserve(permits: Permits = 1, options?: ShareOptions): Promise<Reservation> {
    return this[reserveAwaited](permits, undefined, options);
  }

  [reserveAwaited](
    permits: Permits,
    sequence?: RequestSequence,
    options?: ShareOptions,
  ): Promise<Reservation> {
    return this.#try(() => {
      checkShareOptions(options);
      const part = this.#ask(permits, options);
      const reserved = this.#fallback.reserve(part, permits, sequence, options);
      part.seen();
      return reserved;
    });
  }

  /**
   * In a combination it is looked at, and then asked. What is refused there is demand, too. While the region's store is
   * away the part answers alone: a combination may wait for it.
   */
  [asParticipant](options?: ShareOptions): RateParticipant {
    const orAlone = async (answer: Promise<Decision>, permits: Permits): Promise<Decision> => {
      try {
        return await answer;
      } catch (error) {
        if (!(error instanceof StoreUnavailableError)) throw error;
        return { ...this.#open().limiter.peek(permits, options), allowed: false };
      }
    };
    const { slot, steps } = new ForeignParticipant({
      peek: (permits = 1) => orAlone(this.#look(this.#open(), permits, options), permits),
      decide: async (permits = 1) => {
        const answer = this.#decide(this.#open(), permits, options);
        const decision = await orAlone(answer, permits);
        if (decision.allowed) this.#ask(permits);
        return decision;
      },
      reserve: (permits) => this.reserve(permits, options),
      refund: (permits) => this.refund(permits),
    });
    return {
      slot,
      steps: {
        check: async (...request) => (await steps.check(...request)).map((check) => shown(check)),
        take: async (requests, options) => {
          try {
            const checks = await steps.take(requests, options);
            return checks.map((check, i) => shown(check, requests[i]));
          } catch (error) {
            // the line is full by now
            return requests.map(({ permits }) =>
              refusalOf(error, this.#open().limiter.peek(permits)),
            );
          }
        },
      },
      clock: this.#part,
      isFair: this.region.isFair,
      refused: (permits, check) => {
        this.#ask(permits);
        this.#lack();
        const { callStats, amount } = this.#part.limiter[asParticipant](options);
        reportRefusal(callStats(), amount(permits), shown(check));
      },
      full: (permits) => this.#part.limiter[asParticipant](options).full(permits),
    };
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#try(async () => {
      checkShareOptions(options);
      const part = this.#ask(permits, options);
      const decision = await this.#fallback.counted(this.#decide(part, permits, options));
      if (decision.allowed) return decision;
      this.#lack();
      // counts the refusal, unless the part has permits by now
      return known(sooner(this.#open().limiter.decide(permits, options), decision, true));
    });
  }

  /** Decides without counting a refusal. */
  async #decide(part: Part, permits: Permits, options?: ShareOptions): Promise<Decision> {
    const own = part.limiter[asParticipant](options).decide(permits);
    part.seen();
    return own.allowed ? own : this.#fallback.decide(part, permits, own);
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#try(async () => {
      return known(await this.#fallback.counted(this.#look(this.#open(), permits, options)));
    });
  }

  async #look(part: Part, permits: Permits, options?: ShareOptions): Promise<Decision> {
    const own = part.limiter.peek(permits, options);
    return own.allowed ? own : this.#fallback.look(part, permits, own);
  }

  charge(permits: Permits): Promise<void> {
    return this.#pay("charge", permits);
  }

  refund(permits: Permits): Promise<void> {
    return this.#pay("refund", permits);
  }

  #pay(verb: Payment[0], permits: Permits): Promise<void> {
    return this.#try(() => {
      const part = this.#open();
      const payments: readonly Payment[] = [[verb, part.queue.checked(permits)]];
      part.paid(payments);
      return this.#fallback.pay(part, payments);
    });
  }

  pause(ms: number): Promise<void> {
    return this.#try(() => {
      this.#open().limiter.pause(ms);
      return this.#fallback.pause(ms);
    });
  }

  reset(): Promise<void> {
    return this.#try(() => {
      this.#open().limiter.reset();
      return this.#fallback.reset();
    });
  }

  /** Gives this process other numbers; the other processes keep theirs until `update` is called there. */
  update(policies: Policies): Promise<void> {
    return this.#try(async () => {
      this.region.checkOpen();
      this.region.update(policies);
    });
  }

  /** Goes by the declared numbers again. */
  resetPolicies(): Promise<void> {
    return this.#try(async () => {
      this.region.checkOpen();
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

  #open(): Part {
    return this.region.open(this.#key);
  }

  /** The same for a call that reads the clock itself; faster. */
  #found(): Part {
    this.region.checkOpen();
    const part = this.#part;
    if (part.isLapsed) this.region.member.lapse(part);
    return part;
  }

  /** The same for a request, which is counted as demand if it is right. */
  #ask(permits: Permits, options?: ShareOptions): Part {
    const part = this.#found();
    part.asked(permits, options);
    return part;
  }

  #lack(): void {
    this.region.member.lack(this.#part);
  }

  #try<T>(run: () => Promise<T>): Promise<T> {
    try {
      return run();
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/** @param request that takes permits: if it would wait no longer than it accepts, and is refused, it is behind others */
function shown(check: Check, request?: Subrequest): Check {
  const decision = known(check.decision);
  const isBehind = request !== undefined && decision.waitMs <= request.longestMs;
  const isUnknown = !check.passes && (decision !== check.decision || isBehind);
  return { ...check, decision, isUnknown };
}
