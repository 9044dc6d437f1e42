/**
 * Limits how many tasks run at once, in all processes together. The store keeps a lease for each running
 * task and a ticket for each waiting caller. Both lapse unless their process renews them. So a process
 * that dies holds no lease for longer than `leaseMs` after its last request.
 *
 * Waiting callers do not poll. When a lease is released, the store turns the first ticket into a lease
 * and notifies the process of that ticket by a message. Messages may be lost. So a process with waiting
 * callers asks the store every third of `leaseMs`, and when the first of all leases would lapse; the same
 * batch renews all its leases and tickets.
 *
 * Safety: a lease that is renewed by a batch sent at t lives at least until t + leaseMs, by the store's
 * clock. By our own clock this is the claim's `deadline`. If a holder could not renew its lease by then,
 * its signal is aborted, though the store may keep the lease a little longer. So at most `limit` holders
 * believe that their lease is valid, as long as all clocks run equally fast and each holder stops when its
 * signal is aborted. (In a suspended process the signal is aborted when the process resumes: its writes
 * to shared data should be fenced.)
 */
import { checkNumber, wholeAtLeastOne } from "../../ground/check.ts";
import { asyncDispose } from "../../ground/dispose.ts";
import type { LeaseStore } from "../../stores/lease-store.ts";
import type { TryOptions, WaitOptions } from "../limiter-api.ts";
import { asMember, type PlacesMember } from "../member.ts";
import type { Counted } from "../meter.ts";
import { checkSignalOptions, checkTryOptions, refuseShares, shareIn } from "../options.ts";
import { RemotePlaceMember } from "../place-member.ts";
import type { RemoteStats, StoreState } from "../remote/outage-stats.ts";
import {
  type ConcurrencyStatus,
  LeaseQueue,
  type RemoteConcurrencyOptions,
} from "./lease-queue.ts";
import type { Claim, RemoteLease } from "./remote-lease.ts";

export class RemoteConcurrency implements Counted, AsyncDisposable {
  readonly #queue: LeaseQueue;

  constructor(store: LeaseStore, key: string, declared: number, options: RemoteConcurrencyOptions) {
    this.#queue = new LeaseQueue(store, key, declared, options);
  }

  /** How many leases may be held at once, by the last reply; before the first, the declared number. */
  get limit(): number {
    return this.#queue.limit;
  }

  /** How many leases this process holds; `peek` returns the number for all processes. */
  get active(): number {
    return this.#queue.active;
  }

  /** How many callers wait in this process. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** Whether the store answered the last request; or `"closed"`. */
  get state(): StoreState {
    return this.#queue.state;
  }

  /** The present counters of this process. */
  get stats(): RemoteStats {
    return this.#queue.stats.stats;
  }

  /**
   * Waits for a lease, behind all callers that wait already, in every process. Prefer `run`, which always
   * releases the lease.
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
      const signal = checkSignalOptions(options);
      signal?.throwIfAborted();
      this.#queue.claim(true, Infinity, signal, resolve as Claim["resolve"]);
    });
  }

  /**
   * Returns a lease if one is free, else `undefined`. With `wait` it waits for one, but no longer than
   * that.
   *
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Default: 0
   * @returns the lease; `undefined` when the time is over, or at once if `maxWaiting` callers wait. A
   *   reply that is under way is awaited even when the time is over
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
      refuseShares(shareIn(wait));
      signal?.throwIfAborted();
      this.#queue.claim(false, micros / 1000, signal, resolve);
    });
  }

  /**
   * Runs a function with a lease, and releases the lease when the function returns or throws.
   *
   * @param fn the function; it gets the lease, and should stop when the lease's `signal` is aborted
   * @param options.signal ends the wait for the lease; it does not interrupt `fn` once it runs
   * @returns what `fn` returns
   * @throws (as a rejection) what `fn` throws; or what `acquire` throws, and then `fn` was not called
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
   * Changes the limit from now on for every limiter that was created with this name and the same limit,
   * in all processes, until the next `setLimit` or `resetLimit`. A higher limit grants leases to waiting
   * callers at once, in order; a lower one interrupts no holder. Code that declares another limit does not
   * follow it.
   *
   * @param limit how many leases may be held at once: a whole number, 1 or more
   */
  async setLimit(limit: number): Promise<void> {
    await this.#queue.setLimit(checkNumber("limit", limit, wholeAtLeastOne));
  }

  /** Restores the declared limit. */
  async resetLimit(): Promise<void> {
    await this.#queue.setLimit();
  }

  /**
   * Returns the status for all processes together. During an outage with `whenUnavailable` `"local"` or
   * `"allow"` it returns the status of this process.
   */
  peek(): Promise<ConcurrencyStatus> {
    return this.#queue.status();
  }

  [asMember](): PlacesMember {
    return new RemotePlaceMember(this);
  }

  /**
   * Ends the limiter in this process. Waiting callers are rejected with a LimiterClosedError, and so is
   * every later call. It closes the connection that listens, and ends all timers. Leases that are held
   * are not released, but no longer renewed: each `lease.signal` is aborted, and the lease ends when its
   * holder releases it, or after at most `leaseMs`.
   *
   * @returns a promise that resolves when the store has removed the waiting callers' tickets, or these
   *   requests have failed
   */
  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }
}
