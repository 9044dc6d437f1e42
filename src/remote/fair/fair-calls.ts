/**
 * Calls for permits of a fair limiter on a store, in front of its queue. They wait in this process, in fair
 * order, and are sent to the store a few at a time (`store-window.ts`).
 */

import type {
  Decision,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../../api/limiter-api.ts";
import { checkShareOptions, checkTryOptions, checkWaitOptions } from "../../api/options.ts";
import type { OrderedRequest, Taken } from "../../api/participant.ts";
import type { FairEntry } from "../../fair/fair-entry.ts";
import type { Ranks } from "../../fair/ranks.ts";
import type { Permits } from "../../ground/permits.ts";
import type { Order } from "../../queue/order.ts";
import type { RemoteCalls } from "../remote-calls.ts";
import { RemoteReservation } from "../remote-reservation.ts";
import { FairEstimate } from "./fair-estimate.ts";
import type { FairRequest, OrderedCaller } from "./ordered-caller.ts";
import { WaitingReservation } from "./waiting-reservation.ts";
import { WindowedCallers } from "./windowed-callers.ts";

export class FairCalls {
  /** The queue behind this one: it asks the store. */
  readonly #store: RemoteCalls;
  readonly #order: Order;
  readonly #queue: WindowedCallers;
  readonly #outlook: FairEstimate;

  constructor(store: RemoteCalls, order: Order) {
    this.#store = store;
    this.#order = order;
    this.#queue = new WindowedCallers(store, order.ranks() as Ranks<OrderedCaller>);
    this.#outlook = new FairEstimate(store, this.#queue);
  }

  acquire(permits: Permits, options: WaitOptions | undefined): Promise<number> {
    return new Promise((resolve) => {
      this.#acquire(permits, options, resolve);
    });
  }

  #acquire(
    permits: Permits,
    options: WaitOptions | undefined,
    resolve: (outcome: never) => void,
  ): OrderedCaller {
    const asked = this.#asked(permits, options, Infinity, checkWaitOptions(options));
    this.#store.checkOpen();
    return this.#queue.enter(asked, false, resolve);
  }

  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    return new Promise((resolve) => {
      const { micros, signal, share } = checkTryOptions(wait);
      const asked = this.#asked(permits, share, micros, signal);
      this.#store.checkOpen();
      if (micros === 0) {
        resolve(this.#tryNow(asked));
        return;
      }
      this.#queue.enter(asked, true, resolve);
    });
  }

  async #tryNow(asked: FairRequest): Promise<boolean> {
    const { permits, signal } = asked;
    if (!this.#queue.ranks.isNext(asked.fairEntry)) {
      this.#store.parts.callStats.refused(asked.amount, "too-long");
      return false;
    }
    const isGranted = await this.#store.tryAcquire(permits, { timeoutMs: 0, signal });
    if (isGranted) this.#queue.grantedAtOnce(asked);
    return isGranted;
  }

  async reserve(permits: Permits, options?: ShareOptions): Promise<Reservation> {
    checkShareOptions(options);
    const asked = this.#asked(permits, options);
    const { ranks } = this.#queue;
    if (ranks.size > 0 && this.#queue.isFull(asked.amount)) {
      this.#store.checkOpen();
      this.#store.parts.callStats.refused(asked.amount, "queue-full");
      throw this.#queue.full(asked.amount);
    }
    const refund = () => ranks.refund(asked.fairEntry);
    // calls that are made before the reply come behind it
    ranks.charge(asked.fairEntry, this.#queue.now());
    try {
      const reservation = await this.#store.reserve(permits);
      reservation.onReturned = refund;
      return reservation;
    } catch (error) {
      refund();
      throw error;
    }
  }

  /** For a caller that waits for the reservation at once: others may overtake it. */
  async reserveAwaited(permits: Permits, options?: ShareOptions): Promise<Reservation> {
    const enter = (resolve: (outcome: never) => void) => this.#acquire(permits, options, resolve);
    const reservation = new WaitingReservation(this.#store, this.#queue.ranks, permits, enter);
    const { call, granted } = reservation;
    // if the store cannot be asked, the call fails, too
    const seen = this.#outlook.peek(call).then(
      ({ waitMs }) => waitMs,
      () => granted,
    );
    reservation.waitMs = await Promise.race([granted.then(() => 0), seen]);
    return reservation;
  }

  async decide(permits: Permits, options?: ShareOptions): Promise<Decision> {
    checkShareOptions(options);
    const asked = this.#asked(permits, options);
    if (!this.#queue.ranks.isNext(asked.fairEntry)) {
      const refusal = await this.#outlook.peek(asked);
      if (!refusal.allowed) {
        this.#store.parts.callStats.refused(asked.amount, "too-long", () => refusal);
        return refusal;
      }
    }
    const decided = await this.#store.decide(permits);
    if (decided.allowed) this.#queue.grantedAtOnce(asked);
    return decided;
  }

  async peek(permits: Permits, options?: ShareOptions): Promise<Decision> {
    checkShareOptions(options);
    return this.#outlook.peek(this.#asked(permits, options));
  }

  /** A request of a combination. */
  enter(permits: Permits, options?: ShareOptions): OrderedRequest {
    const asked = this.#asked(permits, options);
    return {
      isNext: this.#queue.ranks.isNext(asked.fairEntry),
      seen: (decision) => this.#outlook.behindOthers(asked, decision),
      charged: (taken) => this.#charged(asked, taken),
    };
  }

  #charged(asked: FairRequest, taken: Taken): Taken {
    const { ranks } = this.#queue;
    const { reservation, undo } = taken;
    const refund = () => ranks.refund(asked.fairEntry);
    if (reservation === undefined || reservation.waitMs === 0) this.#queue.grantedAtOnce(asked);
    else ranks.charge(asked.fairEntry, this.#queue.now());
    if (reservation instanceof RemoteReservation) {
      reservation.onReturned = refund;
      return taken;
    }
    return {
      undo: () => {
        refund();
        return undo();
      },
    };
  }

  #asked(
    permits: Permits,
    options: ShareOptions | undefined,
    longest = 0,
    signal?: AbortSignal,
  ): FairRequest {
    signal?.throwIfAborted();
    const amount = this.#store.parts.policyState.amount(permits);
    const fairEntry = this.#order.entryOf<OrderedCaller>(
      options,
      amount,
    ) as FairEntry<OrderedCaller>;
    return { permits, amount, longest, signal, fairEntry };
  }
}
