/**
 * Limits how many tasks run at once, in all processes together. The store keeps a lease for each running
 * task and a ticket for each waiting caller. Both lapse unless their process renews them. So a process
 * that dies holds no lease for longer than `leaseMs` after its last request.
 *
 * Waiting callers do not poll while messages come: docs/concurrency.md, "On Redis".
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
import { orderOf } from "../fair/fair-order.ts";
import type { TryOptions, WaitOptions } from "../limiter-api.ts";
import { asMember, type PlacesMember } from "../member.ts";
import type { Counted } from "../meter.ts";
import { checkTryOptions, checkWaitOptions, type FairOptions, shareIn } from "../options.ts";
import { FIFO, type Order } from "../order.ts";
import { RemotePlaceMember } from "../place-member.ts";
import type { RemoteStats, StoreState } from "../remote/outage-stats.ts";
import { LeaseQueue, type RemoteConcurrencyOptions } from "./lease-queue.ts";
import type { Claim, ConcurrencyStatus, RemoteLease, WantedLease } from "./remote-lease.ts";

/** `RedisConcurrencyLimiter`, on any store: its interface says what each member does. */
export class RemoteConcurrency implements Counted, AsyncDisposable {
  readonly #order: Order;
  readonly #queue: LeaseQueue;

  /** @param fair the option `fair` */
  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    options: RemoteConcurrencyOptions,
    fair?: boolean | FairOptions,
  ) {
    this.#order = orderOf(fair);
    this.#queue = new LeaseQueue(store, key, declared, options, this.#order);
  }

  get limit(): number {
    return this.#queue.limit;
  }

  get active(): number {
    return this.#queue.active;
  }

  get waiting(): number {
    return this.#queue.waiting;
  }

  get state(): StoreState {
    return this.#queue.state;
  }

  get stats(): RemoteStats {
    return this.#queue.stats.stats;
  }

  acquire(options?: WaitOptions): Promise<RemoteLease> {
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      const turn = this.#order.turnOf<Claim>(options, 1);
      signal?.throwIfAborted();
      const settle = resolve as WantedLease["resolve"];
      const wanted = { insists: true, longestMs: Infinity, waitSignal: signal, turn };
      this.#queue.claim({ ...wanted, resolve: settle });
    });
  }

  tryAcquire(wait: number | TryOptions = 0): Promise<RemoteLease | undefined> {
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      const turn = this.#order.turnOf<Claim>(shareIn(wait), 1);
      signal?.throwIfAborted();
      const wanted = { insists: false, longestMs: micros / 1000, waitSignal: signal, turn };
      this.#queue.claim({ ...wanted, resolve });
    });
  }

  async run<T>(fn: (lease: RemoteLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }

  async setLimit(limit: number): Promise<void> {
    await this.#queue.setLimit(checkNumber("limit", limit, wholeAtLeastOne));
  }

  async resetLimit(): Promise<void> {
    await this.#queue.setLimit();
  }

  peek(): Promise<ConcurrencyStatus> {
    return this.#queue.status();
  }

  [asMember](): PlacesMember {
    return new RemotePlaceMember(this, this.#order !== FIFO);
  }

  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }
}
