/**
 * The calls for permits of a limiter on a store, first in, first out. `acquire`, `tryAcquire` and `reserve`
 * make a waiter, which is sent to the store and then waits for the instant of its permits.
 */
import type { Amount, Permits } from "../../ground/permits.ts";
import type {
  Decision,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../limiter-api.ts";
import { type Entrance, ForeignMember, type RateMember } from "../member.ts";
import {
  checkShareOptions,
  checkSignalOptions,
  checkTryOptions,
  refuseShares,
  shareIn,
} from "../options.ts";
import { remoteMember } from "./combined-call.ts";
import type { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import { Caller, type Wanted } from "./remote-waiter.ts";

const AT_ONCE = Promise.resolve(0);
const GRANTED = Promise.resolve(true);

export class RemoteCalls {
  readonly #queue: RemoteQueue;

  constructor(queue: RemoteQueue) {
    this.#queue = queue;
  }

  acquire(permits: Permits, options: WaitOptions | undefined): Promise<number> {
    if (options === undefined && this.#isPrefetched(permits)) return AT_ONCE;
    return new Promise((resolve) => {
      const wanted = this.#wanted(permits, Infinity, checkSignalOptions(options));
      this.#queue.send(new Caller(this.#queue, wanted, false, resolve));
    });
  }

  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    if (wait === 0 && this.#isPrefetched(permits)) return GRANTED;
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      refuseShares(shareIn(wait));
      const wanted = this.#wanted(permits, micros, signal);
      this.#queue.send(new Caller(this.#queue, wanted, true, resolve));
    });
  }

  reserve(permits: Permits, options?: ShareOptions): Promise<Reservation> {
    return new Promise((resolve) => {
      checkShareOptions(options);
      refuseShares(options);
      const wanted = this.#wanted(permits, Infinity, undefined);
      this.#queue.send(new RemoteReservation(this.#queue, wanted, resolve));
    });
  }

  /** A caller of a limiter that serves all callers in order cannot be overtaken. */
  reserveBehind(permits: Permits, options?: ShareOptions): Promise<Reservation> {
    return this.reserve(permits, options);
  }

  /** Checks the arguments of a call for permits that can be used within `longest`, microseconds. */
  #wanted(permits: Permits, longest: number, signal: AbortSignal | undefined): Wanted {
    signal?.throwIfAborted();
    const amount = this.#queue.parts.policyState.amount(permits);
    this.#queue.checkOpen();
    return { permits, amount, longest: this.#queue.hasRoom(amount) ? longest : 0, signal };
  }

  /** Takes prefetched permits, if there are enough and no caller waits; returns whether it has. */
  #isPrefetched(permits: Permits): boolean {
    if (!this.#queue.prefetcher?.take(permits)) return false;
    this.#queue.parts.meter.counts.granted += 1;
    return true;
  }

  async decide(permits: Permits, options?: ShareOptions): Promise<Decision> {
    const amount = this.#amount(permits, options);
    const decided = await this.#queue.decide("decide", amount);
    const { meter } = this.#queue.parts;
    if (decided.allowed) meter.granted(amount, 0);
    else meter.refused(amount, "too-long", () => decided);
    return decided;
  }

  async peek(permits: Permits, options?: ShareOptions): Promise<Decision> {
    return this.#queue.decide("peek", this.#amount(permits, options));
  }

  #amount(permits: Permits, options: ShareOptions | undefined): Amount {
    checkShareOptions(options);
    refuseShares(options);
    return this.#queue.parts.policyState.amount(permits);
  }

  async refund(permits: Permits): Promise<void> {
    await this.#queue.change("refund", this.#queue.possible(permits));
  }

  /** @param enter of the fair calls in front of these */
  member(_options?: ShareOptions, enter?: Entrance): RateMember {
    return remoteMember(this.#queue, enter) ?? new ForeignMember(this, enter);
  }
}
