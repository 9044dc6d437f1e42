/**
 * Limits how many calls run at once in this process. A call holds a slot, or several if it weighs more, by a lease.
 * It gives them back with `release()`, and they go to the caller that has waited longest.
 *
 * Time plays no role here: two leases may follow each other at once, and one may be held for ever.
 * To limit calls per second see `RateLimiter`; to limit both see `allOf`. Where the limit is not known, `adaptive`
 * learns it from the leases that end.
 *
 * A worked example, limit 2: A and B get leases; C and D wait, in this order. B releases: C runs,
 * and later callers wait behind D. `setLimit(1)` interrupts no call: A and C go on, and D runs when
 * both have released.
 *
 * Callers wait in a `WaiterQueue`, whose supply is the slots. So a call for many slots is not starved by calls for
 * few: none overtakes it, although its slots stay free until there are enough. `release()` itself hands freed slots
 * to the callers that wait, before any other code can run.
 */
import type { ShareOptions, TryOptions, WaitOptions } from "../api/limiter-api.ts";
import {
  type CallLimits,
  checkLimiterOptions,
  checkTryOptions,
  checkWaitOptions,
  LIMITER_OPTIONS,
  type LimiterOptions,
  type OnFull,
} from "../api/options.ts";
import { asParticipant, type ConcurrencyParticipant } from "../api/participant.ts";
import { type AdaptiveRunOptions, runWith, tryArguments } from "../api/slots-options.ts";
import { CallStats, type Counted, type LimiterStats } from "../api/stats.ts";
import {
  CREATE,
  checkCreated,
  checkNumber,
  checkOptions,
  isRecord,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { QueueFullError } from "../ground/errors.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { Waiter } from "../queue/waiter.ts";
import { WaiterQueue } from "../queue/waiter-queue.ts";
import type { AdaptiveLimit, LearnedLimit } from "./adaptive/adaptive.ts";
import { type Lease, LocalLease } from "./local-lease.ts";
import { Slots } from "./slots.ts";
import { SlotsParticipant } from "./slots-participant.ts";

/** What a call resolves to; `undefined`: it was refused. */
type Outcome = Lease | undefined | Promise<never>;

/** A call that waits for slots. */
class LeaseCaller extends Waiter {
  readonly #lease: (slots: number) => Lease;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #deadline: number | undefined;
  readonly #callStats: CallStats;

  /** @param deadline of `tryAcquire`, which resolves to `undefined` where `acquire` rejects */
  constructor(
    lease: (slots: number) => Lease,
    resolve: (outcome: Outcome) => void,
    deadline: number | undefined,
    callStats: CallStats,
    ...waiter: ConstructorParameters<typeof Waiter>
  ) {
    super(...waiter);
    this.#lease = lease;
    this.#resolve = resolve;
    this.#deadline = deadline;
    this.#callStats = callStats;
    callStats.enqueued();
  }

  override get deadline(): number {
    return this.#deadline ?? Infinity;
  }

  override release(_at: number, now: number): void {
    this.#callStats.released(this.amount, now - this.asked);
    this.#resolve(this.#lease(Number(this.amount)));
  }

  override refuse(now: number): void {
    this.#callStats.expired(this.amount, now - this.asked);
    this.#resolve(undefined);
  }

  override drop(reason: Error, now: number): void {
    this.#callStats.expired(this.amount, now - this.asked, "queue-full");
    this.#resolve(this.#deadline === undefined ? Promise.reject(reason) : undefined);
  }

  override abort(reason: unknown, now: number): void {
    this.#callStats.ended();
    this.#callStats.cancelled(this.amount, now - this.asked, reason);
    this.#resolve(Promise.reject(reason));
  }
}

let created = 0;

/** Limits how many calls run at once, in this process. */
export class ConcurrencyLimiter implements Counted {
  readonly #rank = `${++created}`;
  #participant: SlotsParticipant | undefined;
  readonly #options: ReturnType<typeof checkLimiterOptions>;
  readonly #callStats: CallStats;
  readonly #slots: Slots;
  readonly #queue: WaiterQueue<Slots>;
  /** Absent: the limit is fixed. */
  readonly #adaptive: AdaptiveLimit | undefined;
  #learned: LearnedLimit | undefined;
  #isHandingOver = false;

  /**
   * Creates a limit on how many calls run at once in this process.
   *
   * @param limit how many slots there are, a whole number, 1 or more; or `adaptive({ max })`, which learns it
   * @param options see `LimiterOptions`; slots are its permits
   * @returns the limiter, with all slots free
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = ConcurrencyLimiter.create(10);
   * const page = await limiter.run(() => fetch(url));
   */
  static create(limit: number | AdaptiveLimit, options: LimiterOptions = {}): ConcurrencyLimiter {
    return new ConcurrencyLimiter(CREATE, limit, options);
  }

  private constructor(made: typeof CREATE, limit: number | AdaptiveLimit, options: LimiterOptions) {
    checkCreated("ConcurrencyLimiter", made);
    this.#adaptive = isAdaptive(limit) ? limit : undefined;
    const start = this.#adaptive?.start ?? checkNumber("limit", limit, wholeAtLeastOne);
    const slots = new Slots(start);
    checkOptions("options", options, LIMITER_OPTIONS);
    this.#options = checkLimiterOptions(options);
    this.#learned = this.#adaptive?.learn(start, this.#options.clock);
    this.#slots = slots;
    this.#queue = new WaiterQueue(new MonotonicTime(this.#options.clock), slots, orderIn(options));
    this.#callStats = new CallStats({ limiter: this.#options.name }, []);
  }

  /** How many slots there are: as many calls of one slot may run at once. An adaptive limit changes. */
  get limit(): number {
    return this.#slots.limit;
  }

  /** How many slots are held. May exceed `limit` for a while after it was lowered. */
  get active(): number {
    return this.#slots.active;
  }

  /** How many callers wait for a lease. */
  get waiting(): number {
    return this.#callStats.counts.waiting;
  }

  /** The current counters, as a plain object. `LimiterStats` says what each counts. */
  get stats(): LimiterStats {
    return { ...this.#callStats.counts };
  }

  /**
   * Waits for slots, behind all callers that wait already. `run` is safer: it always releases.
   *
   * @param slots how many: a whole number, 1 or more, at most the limit. Default 1
   * @param options.signal ends the wait
   * @param options.share, options.weight, options.priority on a fair limiter: the share it counts for
   * @returns the lease of all of them
   * @throws (rejects) TypeError or RangeError on a bad argument, PermitsExceedCapacityError if there are
   *   fewer slots, QueueFullError, or the signal's own reason
   * @example
   * using lease = await limiter.acquire();
   * await work();
   */
  acquire(slots = 1, options?: WaitOptions): Promise<Lease> {
    return this.#acquire(slots, options);
  }

  #acquire<T = Lease>(
    asked: number,
    options: WaitOptions | undefined,
    held?: (lease: Lease) => T,
  ): Promise<T> {
    return new Promise((resolve) => {
      const limits = { micros: undefined, signal: checkWaitOptions(options), share: options };
      this.#ask(asked, limits, resolverOf(resolve, held));
    });
  }

  /** Returns a lease if as many slots are free and no caller waits, otherwise `undefined`. */
  tryAcquire(slots?: number): Lease | undefined;
  /**
   * Waits for slots, at most `wait`.
   *
   * @param slots how many: a whole number, 1 or more, at most the limit
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`
   * @returns the lease; `undefined` when the time is over, or at once if callers wait for `maxWaiting` slots
   * @throws (rejects) RangeError or TypeError on a bad argument, PermitsExceedCapacityError if there are
   *   fewer slots, or the signal's own reason
   * @example
   * using lease = await limiter.tryAcquire(1, 250);
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(slots: number, wait: number | TryOptions): Promise<Lease | undefined>;
  /** The same, for one slot. */
  tryAcquire(options: TryOptions): Promise<Lease | undefined>;
  tryAcquire(
    first: number | TryOptions = 1,
    wait?: number | TryOptions,
  ): Lease | undefined | Promise<Lease | undefined> {
    const asked = tryArguments(first, wait);
    if (asked.wait === undefined) return this.#tryNow(asked.slots);
    return this.#tryWithin(asked.slots, asked.wait);
  }

  #tryNow(asked: unknown): Lease | undefined {
    const slots = this.#amount(asked);
    const lease = this.#take(slots);
    if (lease === undefined) this.#callStats.refused(slots, "too-long");
    return lease;
  }

  /** Takes slots if they are free now; reports no refusal. */
  #take(slots: number, share?: ShareOptions): Lease | undefined {
    const fairEntry = this.#queue.order.entryOf(share, slots);
    return this.#queue.grant(slots, fairEntry) ? this.#leaseAtOnce(slots) : undefined;
  }

  #tryWithin<T = Lease>(
    asked: unknown,
    wait: number | TryOptions,
    held?: (lease: Lease) => T,
  ): Promise<T | undefined> {
    return new Promise((resolve) => {
      this.#ask(asked, checkTryOptions(wait), resolverOf(resolve, held));
    });
  }

  /**
   * Takes slots now, or lets the caller wait for them.
   *
   * @param micros the longest wait; absent: any, and a refusal is an error
   */
  #ask(
    asked: unknown,
    { micros, signal, share }: Omit<CallLimits, "micros"> & { readonly micros: number | undefined },
    resolve: (outcome: Outcome) => void,
  ): void {
    signal?.throwIfAborted();
    const slots = this.#amount(asked);
    const fairEntry = this.#queue.order.entryOf(share, slots);
    if (this.#queue.grant(slots, fairEntry)) {
      resolve(this.#leaseAtOnce(slots));
      return;
    }
    const isNow = micros === 0;
    if (isNow || !this.#hasRoom(slots, micros === undefined ? this.#options.onFull : "reject")) {
      this.#callStats.refused(slots, isNow ? "too-long" : "queue-full");
      if (micros === undefined) throw this.#full(slots);
      resolve(undefined);
      return;
    }
    const { last } = this.#queue;
    const deadline = micros === undefined ? undefined : last + micros;
    const caller = [this.#callStats, last, slots, signal, fairEntry] as const;
    this.#queue.add(new LeaseCaller(this.#lease, resolve, deadline, ...caller));
  }

  /**
   * Runs a function while it holds slots, and gives them back when the function has ended. An adaptive limit
   * learns from it: from how long it took, unless it failed, or that it met a limit.
   *
   * @param fn the function; it receives the lease
   * @param options.slots how many it holds: a whole number, 1 or more, at most the limit. Default 1
   * @param options.signal ends the wait for them; it does not interrupt `fn`
   * @param options.isOverload whether an error of `fn` says that it met a limit. Default: a `TimeoutError`
   * @returns what `fn` returns
   * @throws (rejects) what `fn` throws, or what `acquire` throws; `fn` is not called then
   * @example
   * const pages = await Promise.all(urls.map((url) => limiter.run(() => fetch(url))));
   */
  run<T>(fn: (lease: Lease) => T | PromiseLike<T>, options?: AdaptiveRunOptions): Promise<T> {
    return runWith((slots, wait) => this.acquire(slots, wait), fn, options);
  }

  /**
   * Sets another limit from now on. If it is higher, waiting callers start at once, in order. If it
   * is lower, no call is interrupted, and no caller starts until enough leases are released. A caller that
   * waits for more slots than the new limit starts when no other runs. An adaptive limit forgets what it has
   * learned, and learns from there.
   *
   * @param limit how many slots, a whole number, 1 or more; of an adaptive limit from `min` to `max`
   */
  setLimit(limit: number): void {
    checkNumber("limit", limit, this.#adaptive?.bound ?? wholeAtLeastOne);
    this.#learned = this.#adaptive?.learn(limit, this.#options.clock);
    this.#slots.change(this.#queue.now(), 0, limit);
    this.#handOver();
  }

  /**
   * Rejects all callers that wait. Leases that are held stay valid, and later callers wait as
   * before.
   *
   * @param reason what they reject with. Default: a DOMException called AbortError
   */
  clear(
    reason: unknown = new DOMException("The waiting callers were cleared", "AbortError"),
  ): void {
    for (const waiter of this.#queue.waiters) this.#queue.cancel(waiter, reason);
  }

  /** The same for each call: so a combination notices that it has the limiter twice. */
  [asParticipant](): ConcurrencyParticipant {
    this.#participant ??= new SlotsParticipant({
      status: (slots, share) => {
        const fairEntry = this.#queue.order.entryOf(share, slots);
        this.#queue.catchUp();
        const isFree = this.#queue.estimate(slots, fairEntry).instant <= this.#queue.last;
        return { limit: this.limit, active: this.active, isFree };
      },
      take: (slots, share) => this.#take(slots, share),
      refused: (slots) => this.#callStats.refused(slots, "too-long"),
      amount: (slots) => this.#amount(slots),
      queue: {
        acquire: (slots, options, held) => this.#acquire(slots, options, held),
        tryAcquire: (slots, wait, held) => this.#tryWithin(slots, wait, held),
        isFair: this.#queue.order !== FIFO,
        rank: this.#rank,
        now: () => this.#options.clock.now(),
      },
    });
    return this.#participant;
  }

  #hasRoom(slots: number, onFull: OnFull = "reject"): boolean {
    const { maxWaiting } = this.#options;
    return this.#queue.hasRoom(slots, maxWaiting, onFull, (each) => this.#full(each, true));
  }

  /** A call may weigh more than an adaptive limit is now: it waits, and then runs alone. */
  #amount(slots: unknown): number {
    return this.#slots.amount(slots, this.#adaptive?.max);
  }

  #full(slots: Amount, dropped = false): QueueFullError {
    const { name, maxWaiting } = this.#options;
    return new QueueFullError(name, sizeOf(slots), this.#queue.permits, maxWaiting, dropped);
  }

  #leaseAtOnce(slots: number): Lease {
    this.#callStats.counts.granted += 1;
    return this.#lease(slots);
  }

  readonly #lease = (slots: number): Lease => {
    const giveBack = () => this.#free(slots);
    if (this.#learned === undefined) return new LocalLease(giveBack);
    const isLimited = this.active >= this.limit || this.waiting > 0;
    return this.#learned.lease({ active: this.active, isLimited }, giveBack);
  };

  #free(slots: number): void {
    // without a waiter the time does not matter
    const now = this.#queue.permits > 0 ? this.#queue.now() : 0;
    this.#slots.change(now, slots, this.#learned?.limit);
    this.#handOver();
  }

  #handOver(): void {
    // a caller may give its slots back at once: the call that is under way hands them to the next
    if (this.#isHandingOver || this.#queue.permits === 0) return;
    this.#isHandingOver = true;
    this.#queue.supplied();
    this.#isHandingOver = false;
  }
}

function isAdaptive(limit: unknown): limit is AdaptiveLimit {
  return isRecord(limit) && "learn" in limit;
}

/** Returns what ends a call: a lease is passed to `held`, and its result is the call's. */
function resolverOf<T>(
  resolve: (outcome: never) => void,
  held: ((lease: Lease) => T) | undefined,
): (outcome: Outcome) => void {
  const settle = resolve as (outcome: unknown) => void;
  if (held === undefined) return settle;
  return (outcome) => settle(outcome instanceof LocalLease ? held(outcome) : outcome);
}
