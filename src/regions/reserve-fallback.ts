import type {
  Decision,
  RemoteLimiter,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import type { RequestSequence } from "../api/reserve-awaited.ts";
import {
  LimiterClosedError,
  PermitsExceedCapacityError,
  StoreUnavailableError,
} from "../ground/errors.ts";
import { allEnded } from "../ground/in-turn.ts";
import type { Permits } from "../ground/permits.ts";
import { GrantedReservation, type Payment } from "../queue/reservation.ts";
import { Fallback, GRANTED } from "./fallback.ts";
import { serve } from "./feed.ts";
import type { Part } from "./part.ts";
import type { Region } from "./region.ts";
import type { Reserve } from "./reserve.ts";

/** What the part refuses is taken from the region's reserve in its store; who waits, waits for both. */
export class ReserveFallback extends Fallback {
  readonly #reserves: Reserve;

  constructor(region: Region, key: string | undefined, reserves: Reserve) {
    super(region, key);
    this.#reserves = reserves;
  }

  get #reserve(): RemoteLimiter {
    return this.#reserves.of(this.key);
  }

  override async acquire(
    part: Part,
    permits: Permits,
    options: WaitOptions | undefined,
  ): Promise<number> {
    const mayWait = part.hasRoom(permits) || !(part.isIdle || this.region.onFull === "reject");
    if (!mayWait && (await this.#takes(permits, false, options?.signal))) return 0;
    return super.acquire(mayWait ? part : this.region.open(this.key), permits, options);
  }

  override tryAcquire(part: Part, permits: Permits): Promise<boolean> {
    return part.grants(permits) ? GRANTED : this.#tryAtOnce(permits);
  }

  /** What the part refuses is taken from the reserve, if that has it at once. */
  async #tryAtOnce(permits: Permits, options?: TryOptions): Promise<boolean> {
    if (await this.#takes(permits, true, options?.signal)) return true;
    const { limiter } = this.region.open(this.key);
    return limiter.tryAcquire(permits, { ...options, timeoutMs: 0 });
  }

  override async tryWithin(part: Part, permits: Permits, options: TryOptions): Promise<boolean> {
    const { timeoutMs = Infinity } = options;
    const waitMs = part.waitMs(permits, options);
    if (isUnknown(part, waitMs) && timeoutMs > 0 && part.hasRoom(permits)) {
      const askedMs = part.now();
      if (await this.#takes(permits, false, options.signal)) return true;
      const current = this.region.open(this.key);
      const leftMs = Math.max(0, timeoutMs - (current.now() - askedMs));
      return super.tryWithin(current, permits, { ...options, timeoutMs: leftMs });
    }
    // what is not known may still be in time
    const isInTime = waitMs <= timeoutMs || (waitMs === Infinity && timeoutMs > 0);
    const mayWait = isInTime && part.hasRoom(permits);
    return mayWait ? super.tryWithin(part, permits, options) : this.#tryAtOnce(permits, options);
  }

  /**
   * Takes the permits from the reserve, if it has them now. A key that its reserve serves never becomes hot.
   *
   * @throws StoreUnavailableError if the call can do nothing else: `isLast`; the signal's reason
   */
  async #takes(
    permits: Permits,
    isLast: boolean,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    const { stats } = this.region;
    const part = this.region.partOf(this.key);
    const askedMs = part.now();
    let isGranted = false;
    stats.counts.waiting += 1;
    try {
      isGranted = await this.#reserve.tryAcquire(permits, { timeoutMs: 0, signal });
      if (isGranted) this.#granted(permits);
    } catch (reason) {
      const error = signal?.aborted ? reason : this.#named(reason);
      if (signal?.aborted || error instanceof LimiterClosedError) {
        part.cancelled(permits, part.now() - askedMs, error);
      }
      const isAway = error instanceof StoreUnavailableError;
      if (isAway ? isLast : !mayWait(error)) throw stats.failed(error);
    } finally {
      stats.counts.waiting -= 1;
      if (!isGranted) this.lack();
    }
    return isGranted;
  }

  /** Counts a call that the reserve has granted. */
  #granted(permits: Permits): void {
    this.region.stats.counts.granted += 1;
    const part = this.region.partOf(this.key);
    part.grantedByReserve(part.amountOf(permits));
  }

  override async reserve(
    part: Part,
    permits: Permits,
    sequence: RequestSequence | undefined,
    options: ShareOptions | undefined,
  ): Promise<Reservation> {
    const waitMs = part.waitMs(permits, options);
    const mayWait = waitMs === 0 || (part.hasRoom(permits) && !isUnknown(part, waitMs));
    if (mayWait) return super.reserve(part, permits, sequence, options);
    const isServed = await this.#takes(permits, false, undefined);
    const current = this.region.open(this.key);
    if (!isServed) return super.reserve(current, permits, sequence, options);
    return this.reservation(current, (account) => {
      const made = new GrantedReservation(account, permits, account.supply.amount(permits));
      serve(made);
      return made;
    });
  }

  protected override waits<T>(part: Part, permits: Permits, answer: Promise<T>): Promise<T> {
    this.region.member.waits(part, part.costOf(permits), answer);
    const left = () => this.changed(part);
    answer.then(left, left);
    this.#reserves.feed(part);
    return answer;
  }

  protected override async looked(
    part: Part,
    place: object,
    ready: Promise<unknown>,
  ): Promise<number> {
    const feed = this.#reserves.feed(part);
    await Promise.race([feed.looked(), ready]);
    this.region.checkOpen();
    return feed.waitMs(place);
  }

  protected override changed(part: Part): void {
    this.#reserves.feedOf(part)?.changed();
  }

  override async decide(part: Part, permits: Permits, own: Decision): Promise<Decision> {
    const other = await this.#fitting(this.#reserve.decide(permits));
    if (other?.allowed) this.#granted(permits);
    return sooner(own, other, part.callers === 0);
  }

  override async look(part: Part, permits: Permits, own: Decision): Promise<Decision> {
    const other = await this.#fitting(this.#reserve.peek(permits));
    return sooner(own, other, part.callers === 0);
  }

  /** Who has served it pays. Without a part the reserve pays: a debt of no part would be there for ever. */
  override async pay(
    part: Part,
    payments: readonly Payment[],
    isOfReserve?: boolean,
    failed?: (payment: Payment) => void,
  ): Promise<void> {
    const paid = payments.map((payment) => this.#pay(part, payment, isOfReserve, failed));
    await this.counted(allEnded(paid));
  }

  async #pay(
    part: Part,
    payment: Payment,
    isOfReserve: boolean | undefined,
    failed?: (payment: Payment) => void,
  ): Promise<void> {
    const [verb, amount] = payment;
    const isPlain = verb === "charge" && isOfReserve === undefined;
    const byReserve = isPlain ? this.#reserves.owes(part, amount) : isOfReserve;
    if (part.fraction > 0 && !byReserve) {
      part.queue[verb](amount);
      return;
    }
    try {
      await this.#reserves.pay(part, payment);
      if (verb === "charge") part.granted(amount);
    } catch (error) {
      const current = this.region.member.current(this.region.partOf(this.key));
      if (isPlain && current.fraction > 0) {
        // if only the reply was lost it is charged twice, and nothing is granted in excess
        current.queue.charge(amount);
        return;
      }
      failed?.(payment);
      throw error;
    }
  }

  override async pause(ms: number): Promise<void> {
    await this.#renewed(this.#reserve.pause(ms));
  }

  override async reset(): Promise<void> {
    await this.#renewed(this.#reserve.reset());
  }

  /** What the reserve has promised the head of the line does not hold any more. */
  async #renewed(answer: void | Promise<void>): Promise<void> {
    const renew = () => this.#reserves.feedOf(this.region.partOf(this.key))?.renew();
    renew();
    await this.counted(answer);
    renew();
  }

  override async counted<T>(answer: T | Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw this.region.stats.failed(this.#named(error));
    }
  }

  /** Returns the reserve's answer; undefined if the request is larger than the reserve, though it may fit a part. */
  async #fitting<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch (error) {
      if (error instanceof PermitsExceedCapacityError) return undefined;
      throw this.#named(error);
    }
  }

  /** Returns the error as one of the region: its limiters of keys in the store have names of their own. */
  #named(error: unknown): unknown {
    return error instanceof LimiterClosedError ? new LimiterClosedError(this.region.name) : error;
  }
}

/** Whether the part says nothing, and no caller waits: then several calls may ask the reserve at once. */
function isUnknown(part: Part, waitMs: number): boolean {
  return waitMs === Infinity && part.isIdle;
}

/** Whether a call that the reserve fails with this error may wait for the part. */
function mayWait(error: unknown): boolean {
  return error instanceof PermitsExceedCapacityError || error instanceof StoreUnavailableError;
}

/**
 * Returns the decision with the shorter wait.
 *
 * @param isHead whether no caller waits: behind others it is not known what the reserve will do
 */
export function sooner(own: Decision, other: Decision | undefined, isHead: boolean): Decision {
  if (own.allowed || other === undefined) return own;
  if (!other.allowed && !isHead) return { ...other, waitMs: own.waitMs };
  return other.allowed || other.waitMs <= own.waitMs ? other : own;
}
