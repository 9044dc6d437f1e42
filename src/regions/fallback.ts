import type {
  Decision,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import type { Permits } from "../ground/permits.ts";
import type { AccountedReservation, CheckedAccount, Payment } from "../queue/reservation.ts";
import type { Part } from "./part.ts";
import type { Region } from "./region.ts";
import { RegionalReservation } from "./reservation.ts";

/** One promise is enough for all calls, because it never changes. */
export const GRANTED = Promise.resolve(true);
const REFUSED = Promise.resolve(false);

/** What becomes of a call that the part of its key does not serve at once: it waits for the part, or is refused. */
export class Fallback {
  protected readonly region: Region;
  protected readonly key: string | undefined;

  constructor(region: Region, key: string | undefined) {
    this.region = region;
    this.key = key;
  }

  acquire(part: Part, permits: Permits, options: WaitOptions | undefined): Promise<number> {
    return this.waits(part, permits, part.limiter.acquire(permits, options));
  }

  /** Asks the part as well, so that a refusal takes one look at it. */
  tryAcquire(part: Part, permits: Permits): Promise<boolean> {
    if (part.tryAcquire(permits)) return GRANTED;
    this.region.member.lack(part);
    return REFUSED;
  }

  tryWithin(part: Part, permits: Permits, options: TryOptions): Promise<boolean> {
    return this.waits(part, permits, part.limiter.tryAcquire(permits, options));
  }

  /** Each is accounted like a caller that waits, because a smaller part delays it. */
  async reserve(
    part: Part,
    permits: Permits,
    sequence: RequestSequence | undefined,
    options: ShareOptions | undefined,
  ): Promise<Reservation> {
    const reservation = this.reservation(part, (account) => {
      try {
        return part.limiter[reserveAwaited](permits, sequence, options, account);
      } catch (error) {
        // the line is full
        this.lack();
        throw error;
      }
    });
    if (reservation.waitMs === 0) return reservation;
    const isKnown = reservation.waitMs < Infinity;
    let isServed = false;
    const ready = this.waits(part, permits, reservation.ready()).then((waitedMs) => {
      isServed = true;
      if (!isKnown) part.waited(permits, waitedMs);
    });
    // rejected where it is cancelled: by the caller, or by `close`
    ready.catch(() => {});
    const waitMs = await this.looked(part, reservation.place, ready);
    reservation.waitMs = isServed ? 0 : Math.min(reservation.waitMs, waitMs);
    return reservation;
  }

  protected reservation(
    part: Part,
    make: (account: CheckedAccount) => AccountedReservation,
  ): RegionalReservation {
    const { region, key } = this;
    return new RegionalReservation(
      part.queue.supply,
      make,
      (payments, ...how) => {
        const current = region.member.current(region.partOf(key));
        current.paid(payments);
        return this.pay(current, payments, ...how);
      },
      () => this.changed(part),
    );
  }

  /** Returns the decision that the caller gets, for one of the part that does not allow the request. */
  async decide(_part: Part, _permits: Permits, own: Decision): Promise<Decision> {
    return own;
  }

  /** The same, without taking permits. */
  async look(_part: Part, _permits: Permits, own: Decision): Promise<Decision> {
    return own;
  }

  /** Counts a call that fails with a store: without one none does. */
  counted<T>(answer: T | Promise<T>): Promise<T> {
    return Promise.resolve(answer);
  }

  /**
   * Charges and refunds.
   *
   * @param _isOfReserve whether the reserve has served what is settled; absent: that is not known
   * @param _failed called for each payment that was not made
   */
  async pay(
    part: Part,
    payments: readonly Payment[],
    _isOfReserve?: boolean,
    _failed?: (payment: Payment) => void,
  ): Promise<void> {
    for (const [verb, amount] of payments) part.queue[verb](amount);
    // without a part there is nothing that pays what is charged
    if (part.fraction === 0 && part.owedMs > 0) this.lack();
  }

  async pause(_ms: number): Promise<void> {}

  async reset(): Promise<void> {}

  /** Counts the caller among those that wait, in a part that lacks permits. */
  protected waits<T>(part: Part, permits: Permits, answer: Promise<T>): Promise<T> {
    this.region.member.waits(part, part.costOf(permits), answer);
    this.lack();
    return answer;
  }

  /** The part lacks permits. While others were asked the key may have been forgotten: then it has another part now. */
  protected lack(): void {
    this.region.member.lack(this.region.partOf(this.key));
  }

  /** Returns how long the caller waits for others than the part, ms, once that is known; `Infinity` if it is not. */
  protected async looked(_part: Part, _place: object, _ready: Promise<unknown>): Promise<number> {
    return Infinity;
  }

  /** A caller that waits has left, or needs other permits. */
  protected changed(_part: Part): void {}
}
