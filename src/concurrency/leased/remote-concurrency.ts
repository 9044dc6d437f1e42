/**
 * Limits how many tasks run at once, in all processes together. The store keeps a lease for each running
 * task and a ticket for each waiting caller. Both lapse unless their process renews them. So a process
 * that dies holds no lease for longer than `leaseMs` after its last request.
 *
 * Waiting callers do not poll while messages come: docs/concurrency.md, "On Redis".
 *
 * Safety: a lease that is renewed by a batch sent at t lives at least until t + leaseMs, by the store's
 * clock. By our own clock this is the lease's `deadline`. If a holder could not renew its lease by then,
 * its signal is aborted, though the store may keep the lease a little longer. So at most `limit` holders
 * believe that their lease is valid, as long as all clocks run equally fast and each holder stops when its
 * signal is aborted. (In a suspended process the signal is aborted when the process resumes: its writes
 * to shared data should be fenced.)
 */

import type { TryOptions, WaitOptions } from "../../api/limiter-api.ts";
import {
  type CallLimits,
  type CallOrder,
  checkTryOptions,
  checkWaitOptions,
} from "../../api/options.ts";
import type { RemoteStats, StoreState } from "../../api/outage-stats.ts";
import { asParticipant, type ConcurrencyParticipant } from "../../api/participant.ts";
import { type RunOptions, tryArguments } from "../../api/slots-options.ts";
import type { Counted } from "../../api/stats.ts";
import { checkFunction, checkNumber, wholeAtLeastOne } from "../../ground/check.ts";
import { asyncDispose } from "../../ground/dispose.ts";
import { FIFO, type Order, orderIn } from "../../queue/order.ts";
import type { LeaseStore } from "../../stores/lease-store.ts";
import { Slots } from "../slots.ts";
import { RemoteSlotsParticipant } from "../slots-participant.ts";
import { LeaseQueue, type RemoteConcurrencyOptions } from "./lease-queue.ts";
import type { ConcurrencyStatus, RemoteLease, StoreLease, WantedLease } from "./store-lease.ts";

/** `RedisConcurrencyLimiter`, on any store: its interface says what each member does. */
export class RemoteConcurrency implements Counted, AsyncDisposable {
  readonly #order: Order;
  readonly #queue: LeaseQueue;
  readonly #declared: number;
  readonly #participant: RemoteSlotsParticipant;

  /** @param rank the key with its prefix: the same in all processes, and another one for each limiter */
  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    options: RemoteConcurrencyOptions,
    order?: CallOrder,
    rank = key,
  ) {
    this.#declared = declared;
    this.#order = orderIn({ order });
    this.#queue = new LeaseQueue(store, key, declared, options, this.#order);
    this.#participant = new RemoteSlotsParticipant(this, this.#queue, this.#order !== FIFO, rank);
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

  acquire(slots = 1, options?: WaitOptions): Promise<RemoteLease> {
    return new Promise((resolve) => {
      const limits = { micros: Infinity, signal: checkWaitOptions(options), share: options };
      this.#ask(slots, true, limits, resolve);
    });
  }

  tryAcquire(
    first: number | TryOptions = 1,
    longest?: number | TryOptions,
  ): Promise<RemoteLease | undefined> {
    return new Promise((resolve) => {
      const { slots, wait = 0 } = tryArguments(first, longest);
      this.#ask(slots, false, checkTryOptions(wait), resolve);
    });
  }

  #ask(
    asked: unknown,
    insists: boolean,
    { micros, signal, share }: CallLimits,
    resolve: (outcome: never) => void,
  ): void {
    const slots = new Slots(Math.max(this.limit, this.#declared)).amount(asked);
    const fairEntry = this.#order.entryOf<StoreLease>(share, slots);
    signal?.throwIfAborted();
    this.#queue.lease({
      ...{ slots, insists, longestMs: micros / 1000, waitSignal: signal, fairEntry },
      resolve: resolve as WantedLease["resolve"],
    });
  }

  async run<T>(fn: (lease: RemoteLease) => T | PromiseLike<T>, options?: RunOptions): Promise<T> {
    checkFunction("fn", fn);
    const { slots, ...wait } = options ?? {};
    const lease = await this.acquire(slots, options && wait);
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

  [asParticipant](): ConcurrencyParticipant {
    return this.#participant;
  }

  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }
}
