/**
 * Limits how many calls run at once in this process. A lease is a place. Its holder gives it back
 * with `release()`, and the place goes to the caller that has waited longest.
 *
 * Time plays no role here: two leases may follow each other at once, and one may be held for ever.
 * To limit calls per second see `RateLimiter`; to limit both see `allOf`.
 *
 * A worked example, limit 2: A and B get leases; C and D wait, in this order. B releases: C runs,
 * and later callers wait behind D. `setLimit(1)` interrupts no call: A and C go on, and D runs when
 * both have released.
 *
 * `release()` itself hands the freed place to the first waiter, before any other code can run. So
 * while a caller waits no place is free, and `tryAcquire()`, which takes only free places, cannot
 * overtake.
 */

import type { TryOptions, WaitOptions } from "../api/limiter-api.ts";
import {
  checkLimiterOptions,
  checkTryOptions,
  checkWaitOptions,
  type FairOptions,
  type OnFull,
  shareIn,
} from "../api/options.ts";
import { asMember, type PlacesMember } from "../api/participant.ts";
import { type Counted, type LimiterStats, Meter } from "../api/stats.ts";
import { orderOf } from "../fair/fair-order.ts";
import type { Ranks } from "../fair/ranks.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import {
  CREATE,
  checkCreated,
  checkFunction,
  checkNumber,
  checkOptions,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { type Clock, toMicros } from "../ground/clock.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import { QueueFullError } from "../ground/errors.ts";
import { Fifo } from "../queue/fifo.ts";
import { FIFO, type Order } from "../queue/order.ts";
import { LeaseWaiter } from "./lease-waiter.ts";
import { type Lease, LocalLease } from "./local-lease.ts";
import { PlaceMember } from "./slots-participant.ts";

/** The options of `ConcurrencyLimiter.create`. */
export interface ConcurrencyOptions {
  /**
   * How many callers may wait before a further `acquire` is refused with a QueueFullError. 0 or
   * more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * What a further `acquire` does. `"reject"` (default): it rejects. `"drop-oldest"`: the caller
   * that has waited longest is dropped; its `acquire` rejects with a QueueFullError in
   * which `facts.dropped` is `true`, its `tryAcquire` gets no lease. `"wait"`: it waits like the others;
   * only `tryAcquire` is still refused.
   */
  readonly onFull?: OnFull | undefined;
  /**
   * Whether places are shared fairly: callers of one `share` are first in, first out, and across shares
   * places go in proportion to their weights. See `LimiterOptions`. Default `false`.
   */
  readonly fair?: boolean | FairOptions | undefined;
  /** The limiter's name in error messages and diagnostics. Default "limiter". */
  readonly name?: string | undefined;
  /** The clock for the time-outs of `tryAcquire`. Default: the platform's clock and timers. */
  readonly clock?: Clock | undefined;
}

const CONCURRENCY_OPTIONS = ["maxWaiting", "onFull", "fair", "name", "clock"] as const;

/** Limits how many calls run at once, in this process. */
export class ConcurrencyLimiter implements Counted {
  readonly #options: ReturnType<typeof checkLimiterOptions>;
  readonly #meter: Meter;
  readonly #order: Order;
  readonly #line: Ranks<LeaseWaiter> | Fifo<LeaseWaiter>;
  readonly #signals = new AbortGroups<LeaseWaiter>((waiter, reason) =>
    this.#cancel(waiter, reason),
  );
  #limit: number;
  #active = 0;
  #isGranting = false;

  /**
   * Creates a limit on how many calls run at once in this process.
   *
   * @param limit how many, a whole number, 1 or more
   * @param options `maxWaiting`: how many callers may wait (default `Infinity`); `onFull`: what a
   *   further `acquire` does (default `"reject"`); `fair`: whether places are shared fairly (default
   *   `false`); `name`: for error messages (default "limiter"); `clock`: for time-outs
   * @returns the limiter, with all places free
   * @throws RangeError or TypeError that names the argument, its bound and what it got
   * @example
   * const limiter = ConcurrencyLimiter.create(10);
   * const page = await limiter.run(() => fetch(url));
   */
  static create(limit: number, options: ConcurrencyOptions = {}): ConcurrencyLimiter {
    return new ConcurrencyLimiter(CREATE, limit, options);
  }

  private constructor(made: typeof CREATE, limit: number, options: ConcurrencyOptions) {
    checkCreated("ConcurrencyLimiter", made);
    this.#limit = checkNumber("limit", limit, wholeAtLeastOne);
    checkOptions("options", options, CONCURRENCY_OPTIONS);
    this.#options = checkLimiterOptions(options);
    this.#order = orderOf(options.fair);
    this.#line = this.#order.ranks<LeaseWaiter>() ?? new Fifo<LeaseWaiter>();
    this.#meter = new Meter({ limiter: this.#options.name }, []);
  }

  /** How many calls may run at once. */
  get limit(): number {
    return this.#limit;
  }

  /** How many leases are held. May exceed `limit` for a while after `setLimit` has lowered it. */
  get active(): number {
    return this.#active;
  }

  /** How many callers wait for a lease. */
  get waiting(): number {
    return this.#line.size;
  }

  /** The current counters, as a plain object. `LimiterStats` says what each counts. */
  get stats(): LimiterStats {
    return { ...this.#meter.counts };
  }

  /**
   * Waits for a place, behind all callers that wait already. `run` is safer: it always releases.
   *
   * @param options.signal ends the wait
   * @param options.share, options.weight, options.priority on a fair limiter: the share it counts for
   * @returns the lease
   * @throws (as a rejection) TypeError on a bad argument, QueueFullError, or the signal's own
   *   reason
   * @example
   * using lease = await limiter.acquire();
   * await work();
   */
  acquire(options?: WaitOptions): Promise<Lease> {
    return this.#acquire(options, undefined);
  }

  /** @param held called with the lease at the instant of the grant; its result is the call's */
  #acquire<T = Lease>(
    options: WaitOptions | undefined,
    held: ((lease: Lease) => T) | undefined,
  ): Promise<T> {
    return new Promise((granted) => {
      const resolve = resolverOf(granted, held);
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const turn = this.#order.turnOf<LeaseWaiter>(options, 1);
      if (this.#isFree()) {
        resolve(this.#leaseAtOnce());
      } else if (this.#hasRoom() || this.#makesRoom()) {
        this.#wait(signal, resolve, turn);
      } else {
        this.#refused("queue-full");
        throw this.#fullError(false);
      }
    });
  }

  /** Returns a lease if a place is free now, otherwise `undefined`. */
  tryAcquire(): Lease | undefined;
  /**
   * Waits for a place, at most `wait`.
   *
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`
   * @returns the lease; `undefined` when the time is over, or at once if `maxWaiting` callers wait
   * @throws (as a rejection) RangeError or TypeError on a bad argument, or the signal's own reason
   * @example
   * using lease = await limiter.tryAcquire(250);
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(wait: number | TryOptions): Promise<Lease | undefined>;
  tryAcquire(wait?: number | TryOptions): Lease | undefined | Promise<Lease | undefined> {
    if (wait === undefined) return this.#isFree() ? this.#leaseAtOnce() : this.#refused();
    return this.#tryWithin(wait, undefined);
  }

  #tryWithin<T = Lease>(
    wait: number | TryOptions,
    held: ((lease: Lease) => T) | undefined,
  ): Promise<T | undefined> {
    return new Promise((granted) => {
      const resolve = resolverOf(granted, held);
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const turn = this.#order.turnOf<LeaseWaiter>(shareIn(wait), 1);
      if (this.#isFree()) resolve(this.#leaseAtOnce());
      else if (micros === 0) resolve(this.#refused());
      else if (!this.#hasRoom()) resolve(this.#refused("queue-full"));
      else this.#wait(signal, resolve, turn, micros / 1000);
    });
  }

  /**
   * Runs a function while it holds a place, and releases the place when the function has ended.
   *
   * @param fn the function; it receives the lease
   * @param options.signal ends the wait for the place; it does not interrupt `fn`
   * @returns what `fn` returns
   * @throws (as a rejection) what `fn` throws, or what `acquire` throws; `fn` is not called then
   * @example
   * const pages = await Promise.all(urls.map((url) => limiter.run(() => fetch(url))));
   */
  async run<T>(fn: (lease: Lease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    checkFunction("fn", fn);
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      lease.release();
    }
  }

  /**
   * Sets another limit from now on. If it is higher, waiting callers start at once, in order. If it
   * is lower, no call is interrupted, and no caller starts until enough leases are released.
   *
   * @param limit how many, a whole number, 1 or more
   */
  setLimit(limit: number): void {
    this.#limit = checkNumber("limit", limit, wholeAtLeastOne);
    this.#grant();
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
    for (const waiter of [...this.#line]) this.#cancel(waiter, reason);
  }

  [asMember](): PlacesMember {
    return new PlaceMember({
      status: () => ({ limit: this.#limit, active: this.#active }),
      take: () => (this.#isFree() ? this.#leaseAtOnce() : undefined),
      refused: () => this.#refused(),
      queue: {
        acquire: (options, held) => this.#acquire(options, held),
        tryAcquire: (wait, held) => this.#tryWithin(wait, held),
        isFair: this.#order !== FIFO,
        now: () => this.#options.clock.now(),
      },
    });
  }

  /** While a caller waits no place is free: see the head of this file. */
  #isFree(): boolean {
    return this.#active < this.#limit;
  }

  #hasRoom(): boolean {
    return this.waiting < this.#options.maxWaiting;
  }

  /** Whether `acquire` may wait although `maxWaiting` callers wait already. */
  #makesRoom(): boolean {
    const { onFull } = this.#options;
    if (onFull !== "drop-oldest") return onFull === "wait";
    const oldest = this.#line.head;
    if (oldest === undefined) return false;
    this.#refuse(oldest, this.#fullError(true));
    return true;
  }

  #fullError(dropped: boolean): QueueFullError {
    const { name, maxWaiting } = this.#options;
    return new QueueFullError(name, 1, this.waiting, maxWaiting, dropped);
  }

  #refused(reason: RefusedMessage["reason"] = "too-long"): undefined {
    this.#meter.refused(1, reason);
  }

  #now(): number {
    return toMicros(this.#options.clock.now());
  }

  #waited(waiter: LeaseWaiter): number {
    return this.#now() - waiter.asked;
  }

  /** Adds a waiter. @param timeoutMs the longest wait of a `tryAcquire`; absent: an `acquire` */
  #wait(
    signal: AbortSignal | undefined,
    resolve: LeaseWaiter["resolve"],
    turn: LeaseWaiter["turn"],
    timeoutMs?: number,
  ): void {
    const { clock } = this.#options;
    const waiter = new LeaseWaiter(this.#now(), signal, resolve, timeoutMs !== undefined, turn);
    this.#meter.enqueued();
    // no caller waits: no share owes anything
    if (this.waiting === 0 && !(this.#line instanceof Fifo)) this.#line.reset();
    this.#line.append(waiter, waiter.asked);
    if (signal !== undefined) this.#signals.add(signal, waiter);
    if (timeoutMs === undefined || timeoutMs === Infinity) return;
    waiter.timer = clock.wakeAt(clock.now() + timeoutMs, () => this.#refuse(waiter));
  }

  /** Refuses a waiter: its time is over, or it is dropped. */
  #refuse(waiter: LeaseWaiter, dropped?: Error): void {
    this.#leave(waiter);
    this.#meter.expired(1, this.#waited(waiter), dropped && "queue-full");
    waiter.resolve(waiter.tries ? undefined : Promise.reject(dropped));
  }

  #cancel(waiter: LeaseWaiter, reason: unknown): void {
    this.#leave(waiter);
    this.#meter.left(1, this.#waited(waiter), reason);
    waiter.resolve(Promise.reject(reason));
  }

  /** Removes the timer and the signal of a waiter that has left the queue. */
  #leave(waiter: LeaseWaiter): void {
    this.#line.remove(waiter);
    waiter.timer?.cancel();
    if (waiter.signal !== undefined) this.#signals.delete(waiter.signal, waiter);
  }

  #grant(): void {
    // a waiter may give its place back at once: the loop that is under way grants it to the next
    if (this.#isGranting) return;
    this.#isGranting = true;
    for (let head = this.#line.head; head !== undefined && this.#isFree(); head = this.#line.head) {
      this.#line.shift(this.#now());
      this.#leave(head);
      this.#meter.released(1, this.#waited(head));
      head.resolve(this.#lease());
    }
    this.#isGranting = false;
  }

  #leaseAtOnce(): Lease {
    this.#meter.counts.granted += 1;
    return this.#lease();
  }

  #lease(): Lease {
    this.#active += 1;
    return new LocalLease(() => {
      this.#active -= 1;
      this.#grant();
    });
  }
}

/** Returns the function for the outcome of a call, of which only a lease is passed to `held`. */
function resolverOf<T>(
  resolve: (outcome: never) => void,
  held: ((lease: Lease) => T) | undefined,
): LeaseWaiter["resolve"] {
  const settle = resolve as (outcome: unknown) => void;
  if (held === undefined) return settle;
  return (outcome) => settle(outcome instanceof LocalLease ? held(outcome) : outcome);
}
