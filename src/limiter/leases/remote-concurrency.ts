/**
 * How many may run at once, in all processes together. The store keeps a lease for each that runs
 * and a ticket for each that waits; both lapse unless their process keeps them. So a process that
 * dies holds no place for longer than `leaseMs` after it was last heard of.
 *
 * Who waits does not poll. A place that is freed becomes the lease of the first ticket within the
 * store, and the process of that ticket is told by a message. Messages may be lost: every third of
 * `leaseMs`, and when the first of all leases would lapse, a process looks by itself, and with the
 * same trip keeps all that it has.
 *
 * What is safe, and when. A lease that was kept by a trip which left at t lives until t + leaseMs at
 * the least, by the store's clock. By our own clock this is the claim's `deadline`: a holder who
 * has not been able to renew until then is told that the lease is lost, though the store may keep it a
 * little longer. So never more than `limit` run who believe that they may, as long as clocks run
 * equally fast and a holder stops when it is told. (A process that is suspended is told when it
 * wakes up: what it does with others' data should be fenced.)
 */
import { checkNumber, wholeAtLeastOne } from "../../check.ts";
import { asyncDispose } from "../../dispose.ts";
import type { LeaseStore } from "../../stores/lease-store.ts";
import type { TryOptions, WaitOptions } from "../face.ts";
import { asMember, type PlacesMember } from "../member.ts";
import type { Counted } from "../meter.ts";
import { checkTryOptions, checkWaitOptions } from "../options.ts";
import { RemotePlaceMember } from "../place-member.ts";
import type { RemoteStats, StoreState } from "../remote/outage-stats.ts";
import type { ConcurrencyStatus, RemoteConcurrencyOptions } from "./lease-options.ts";
import { LeaseQueue } from "./lease-queue.ts";
import type { Claim, RemoteLease } from "./remote-lease.ts";

export class RemoteConcurrency implements Counted, AsyncDisposable {
  readonly #queue: LeaseQueue;

  constructor(store: LeaseStore, key: string, declared: number, options: RemoteConcurrencyOptions) {
    this.#queue = new LeaseQueue(store, key, declared, options);
  }

  /** How many may run at once, as the last reply told; before the first, what was declared. */
  get limit(): number {
    return this.#queue.limit;
  }

  /** How many leases this process holds; `peek` tells of all. */
  get active(): number {
    return this.#queue.active;
  }

  /** How many wait in this process. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** Whether the store answered when it was last asked; or `"closed"`. */
  get state(): StoreState {
    return this.#queue.state;
  }

  /** The counters of this process, as they are now. */
  get stats(): RemoteStats {
    return this.#queue.stats.stats;
  }

  /**
   * Waits for a place, behind all who wait already, in whichever process. `run` is safer: it cannot
   * forget to release.
   *
   * @param options.signal ends the wait
   * @returns the lease
   * @throws (as a rejection) TypeError on a bad argument, QueueFullError, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.acquire();
   * await work(lease.signal);
   */
  acquire(options?: WaitOptions): Promise<RemoteLease> {
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      this.#queue.claim(true, Infinity, signal, resolve as Claim["resolve"]);
    });
  }

  /**
   * A lease if a place is free, else `undefined`; with `wait`, waits for one, but no longer than
   * that.
   *
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Absent: 0
   * @returns the lease; `undefined` when the time is over, or at once where `maxWaiting` wait. The
   *   answer of a store that is slow is awaited even when the time is over
   * @throws (as a rejection) RangeError or TypeError on a bad argument, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.tryAcquire(250);
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(wait: number | TryOptions = 0): Promise<RemoteLease | undefined> {
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      this.#queue.claim(false, micros / 1000, signal, resolve);
    });
  }

  /**
   * Runs a function while it holds a place, and gives the place back however it ends.
   *
   * @param fn what to run; it is given the lease, whose `signal` says when to stop
   * @param options.signal ends the wait for the place; `fn`, once it runs, is not interrupted
   * @returns what `fn` returns
   * @throws (as a rejection) what `fn` throws, or what `acquire` does: `fn` has not been called then
   * @example
   * await limiter.run(({ signal }) => fetch(url, { signal }));
   */
  async run<T>(fn: (lease: RemoteLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }

  /**
   * Another limit from now on for everyone who was created under this name with the same limit, in
   * whichever process, until it is set again or taken back with `resetLimit`. When it is higher,
   * those who wait go at once, in order; when it is lower, nobody is interrupted. Code that declares
   * another limit is not held to it.
   *
   * @param limit how many, a whole number, 1 or more
   */
  async setLimit(limit: number): Promise<void> {
    await this.#queue.setLimit(checkNumber("limit", limit, wholeAtLeastOne));
  }

  /** The declared limit again. */
  async resetLimit(): Promise<void> {
    await this.#queue.setLimit();
  }

  /**
   * How the limiter stands, all processes together; where calls are let in while Redis is away: how
   * it stands here.
   */
  peek(): Promise<ConcurrencyStatus> {
    return this.#queue.status();
  }

  [asMember](): PlacesMember {
    return new RemotePlaceMember(this);
  }

  /**
   * Ends the limiter in this process: who waits is rejected with a LimiterClosedError, and so is
   * every further call; the connection that listens is closed, timers end. It does not release what
   * is held: that is no longer renewed (so each `lease.signal` is aborted) and comes back when its
   * holder releases it, or after `leaseMs` at the most.
   *
   * @returns when the store knows who does not wait any more, or could not be told
   */
  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }
}
