/**
 * The callers of one process that want leases of a fair concurrency limiter on a store. They wait in this
 * process, in fair order, and only a few of them have requested a lease from the store.
 *
 * The store serves the processes first in, first out: the tickets that a process has there keep all other
 * processes waiting, and no new share of its own can go before them. So the next call is sent only while
 *
 *     the calls with the store that have no lease  <  1 + free + released
 *
 * where `free` is how many leases were free by the last reply, and `released` is how many leases this process
 * is giving back: the request for the next one travels in the same batch, so the place is taken again at once.
 * Both are at most the limit. While nothing is free, each process has one ticket, and gets places in its turn.
 *
 * With N processes a new caller waits for at most (N − 1) × (1 + free + released) callers of other processes.
 */
import { systemClock, toMicros } from "../../ground/clock.ts";
import { LimiterClosedError, QueueFullError, StoreUnavailableError } from "../../ground/errors.ts";
import type { LeaseQueue, RemoteConcurrencyOptions } from "../leases/lease-queue.ts";
import type { Claim, ConcurrencyStatus, RemoteLease } from "../leases/remote-lease.ts";
import type { Order } from "../order.ts";
import { CallLine } from "./call-line.ts";
import { FairCall } from "./fair-call.ts";
import type { Ranks } from "./ranks.ts";
import type { ShareQueue } from "./share-queue.ts";
import type { Turn } from "./turn.ts";

export class FairLeaseQueue {
  readonly #queue: LeaseQueue;
  readonly #options: Pick<RemoteConcurrencyOptions, "name" | "maxWaiting">;
  readonly #line: CallLine;
  /** How many calls are with the store without a lease. */
  #asked = 0;
  /** How many leases are being given back. */
  #released = 0;
  #isLooking = false;

  constructor(
    queue: LeaseQueue,
    order: Order,
    options: Pick<RemoteConcurrencyOptions, "name" | "maxWaiting">,
  ) {
    this.#queue = queue;
    this.#options = options;
    this.#line = new CallLine(order.ranks() as Ranks<FairCall, ShareQueue<FairCall>>, {
      ...{ clock: systemClock, refusal: undefined },
      ...{ stats: queue.stats, meter: queue.stats.meter([], undefined) },
    });
    queue.onRelease = (released) => void this.#givenBack(released);
  }

  get waiting(): number {
    return this.#queue.waiting + this.#line.size;
  }

  /** As that of `LeaseQueue`. @param turn the place of the call in the order of the shares */
  claim(
    insists: boolean,
    longestMs: number,
    signal: AbortSignal | undefined,
    resolve: Claim["resolve"],
    turn: Turn<FairCall> | undefined,
  ): void {
    if (this.#queue.state === "closed") throw this.#closed();
    const request = { permits: 1, amount: 1, turn: turn as Turn<FairCall> };
    const longest = insists ? undefined : 1000 * longestMs;
    const now = toMicros(systemClock.now());
    const call = new FairCall(request, now, signal, resolve, longest);
    // no caller waits: no share owes anything
    if (this.#line.size === 0 && this.#asked === 0) this.#line.forget();
    if (longestMs === 0) void this.#tryNow(call);
    else if (this.#line.size + this.#asked >= this.#options.maxWaiting) this.#whenFull(call);
    else this.#append(call);
  }

  async setLimit(limit?: number): Promise<void> {
    await this.#queue.setLimit(limit);
    this.#fill();
  }

  async status(): Promise<ConcurrencyStatus> {
    const status = await this.#queue.status();
    return { ...status, waiting: status.waiting + this.#line.size };
  }

  close(): Promise<void> {
    const closed = this.#queue.close();
    this.#line.failAll(this.#closed());
    return closed;
  }

  #closed(): LimiterClosedError {
    return new LimiterClosedError(this.#options.name);
  }

  #append(call: FairCall): void {
    this.#line.append(call);
    this.#fill();
    this.#line.limitWait(call);
    if (this.#line.isWaiting(call) && this.#hasTickets) void this.#look();
  }

  /** Whether all calls with the store are known to wait there: no reply is under way. */
  get #hasTickets(): boolean {
    return this.#asked === this.#queue.waiting;
  }

  /** Asks the store, so that an outage is noticed although no new call is sent. */
  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      await this.#queue.status();
    } catch (error) {
      this.#line.failAll(error);
    }
    this.#isLooking = false;
    this.#fill();
  }

  #fill(): void {
    while (this.#line.size > 0 && this.#asked < 1 + this.#queue.free + this.#released) {
      void this.#send(this.#line.next());
    }
  }

  /** Requests a lease for a call of which the share has been charged. */
  async #send(call: FairCall): Promise<void> {
    this.#asked += 1;
    try {
      const leftMs = (call.deadline - toMicros(systemClock.now())) / 1000;
      const lease = await this.#ask(!call.tries, Math.max(0, leftMs), call.signal);
      this.#asked -= 1;
      if (lease === undefined) this.#line.refund(call.turn);
      call.resolve(lease);
    } catch (error) {
      this.#asked -= 1;
      this.#line.refund(call.turn);
      call.resolve(Promise.reject(error));
      if (error instanceof StoreUnavailableError) this.#line.failAll(error);
    }
    this.#fill();
  }

  #ask(
    insists: boolean,
    longestMs: number,
    signal: AbortSignal | undefined,
  ): Promise<RemoteLease | undefined> {
    return new Promise((resolve) => {
      this.#queue.claim(insists, longestMs, signal, resolve);
    });
  }

  /** The next call is sent with the release, and takes the place that it frees. */
  async #givenBack(released: Promise<void>): Promise<void> {
    this.#released += 1;
    this.#fill();
    await released;
    this.#released -= 1;
  }

  async #tryNow(call: FairCall): Promise<void> {
    if (!this.#line.isNext(call.turn)) {
      this.#line.refuse(call, "too-long", () => this.#full());
      return;
    }
    try {
      const lease = await this.#ask(false, 0, call.signal);
      if (lease !== undefined) this.#line.charge(call.turn);
      call.resolve(lease);
    } catch (error) {
      call.resolve(Promise.reject(error));
    }
  }

  /** `maxWaiting` calls wait, or will get a lease at once: the reply has not arrived. */
  #whenFull(call: FairCall): void {
    if (this.#line.size === 0) {
      // the queue behind this one decides whether it may wait
      this.#line.charge(call.turn);
      void this.#send(call);
    } else if (this.#hasTickets) {
      this.#line.refuse(call, "queue-full", () => this.#full());
    } else {
      void this.#tryBeside(call);
    }
  }

  /** Requests a lease that is free now. The call that is next gets it, and this one has room to wait. */
  async #tryBeside(call: FairCall): Promise<void> {
    try {
      const lease = await this.#ask(true, 0, call.signal);
      this.#line.append(call);
      this.#line.next().resolve(lease);
      this.#line.limitWait(call);
    } catch (error) {
      const isFull = error instanceof QueueFullError;
      if (isFull && call.tries) call.resolve(undefined);
      else call.resolve(Promise.reject(isFull ? this.#full() : error));
    }
  }

  #full(): QueueFullError {
    const { name, maxWaiting } = this.#options;
    return new QueueFullError(name, 1, this.#line.size + this.#asked, maxWaiting);
  }
}
