import type { LocalReservation, WaitOptions } from "../api/limiter-api.ts";
import { checkSignalOptions } from "../api/options.ts";
import type { CallStats } from "../api/stats.ts";
import type { FairEntry } from "../fair/fair-entry.ts";
import { atLeastZero } from "../ground/check.ts";
import { toMillis } from "../ground/clock.ts";
import { ReservationCancelledError } from "../ground/errors.ts";
import { type Amount, combine, type Permits, sizeOf } from "../ground/permits.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { PermitQueue } from "./permit-queue.ts";
import { Waiter } from "./waiter.ts";

/** Where the difference between the reserved and the used permits is charged or refunded. */
export interface Account {
  charge(amount: Amount): void;
  refund(amount: Amount): void;
}

/** What an account is asked for. */
export type Payment = readonly [verb: keyof Account, amount: Amount];

/** That of a reservation in this process: most often its queue. */
export interface CheckedAccount extends Account {
  readonly supply: Pick<PolicyState, "amount">;
}

/**
 * Corrects the account from `before` to `used`. Policies that `used` does not name stay as they
 * are.
 *
 * @returns the permits that are taken then
 */
export function correct(account: Account, before: Amount, used: Amount): Amount {
  const more = combine(before, used, (was, is = was) => Math.max(0, is - was));
  const less = combine(before, used, (was, is = was) => Math.max(0, was - is));
  if (sizeOf(more) > 0) account.charge(more);
  if (sizeOf(less) > 0) account.refund(less);
  return replace(before, used);
}

/** Returns what is taken if a payment has failed: what may have been refunded is not refunded once more. */
export function unpaid(taken: Amount, [verb, amount]: Payment): Amount {
  if (verb === "refund") return taken;
  return combine(taken, amount, (is, by = 0) => is - by);
}

/** Returns `used`, and for policies that it does not name the permits of `before`. */
function replace(before: Amount, used: Amount): Amount {
  return combine(before, used, (was, is = was) => is);
}

/** A reservation whose account may fail later: then it has taken less, or more. */
export interface AccountedReservation extends LocalReservation {
  used: Amount;
}

/**
 * Permits that can be used later. Until then the reservation waits in the queue like any waiter, but
 * it needs no timer as long as `ready()` has not been called.
 */
export class QueuedReservation extends Waiter implements AccountedReservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #queue: PermitQueue;
  readonly #account: CheckedAccount;
  readonly #callStats: CallStats;
  /** How long it has waited until it could be used, ms. */
  #outcome: number | "waiting" | "cancelled" = "waiting";
  /** The permits that it takes: the estimate, or what `settle` made of it. */
  used: Amount;
  /** The promise of `ready()`, and what settles it. */
  #ready: Promise<number> | undefined;
  #settle: ((waitedMs: number | Promise<never>) => void) | undefined;
  /** Those of the calls of `ready()`. */
  #signals = super.signals;

  constructor(
    queue: PermitQueue,
    callStats: CallStats,
    permits: Permits,
    amount: Amount,
    fairEntry: FairEntry<Waiter> | undefined,
    isAwaited: boolean,
    account: CheckedAccount,
  ) {
    super(queue.last, amount, undefined, fairEntry);
    this.#queue = queue;
    this.#account = account;
    this.#callStats = callStats;
    this.permits = permits;
    this.waitMs = toMillis(queue.estimate(amount, fairEntry).instant - this.asked);
    callStats.granted(amount, this.waitMs * 1000);
    this.used = amount;
    if (isAwaited) {
      // it may be given up before `ready` is called
      this.#await().catch(() => {});
    }
    queue.add(this);
  }

  ready(options?: WaitOptions): Promise<number> {
    try {
      const signal = checkSignalOptions(options);
      if (this.#isWaiting()) {
        if (!signal?.aborted) {
          const isFirst = !this.awaited;
          if (signal !== undefined) this.#signals = [...this.#signals, signal];
          const ready = this.#await();
          this.#queue.attend(this, isFirst, signal);
          return ready;
        }
        this.#queue.cancel(this, signal.reason);
      }
      signal?.throwIfAborted();
      if (this.#outcome === "cancelled") throw new ReservationCancelledError(this.waitMs);
      return Promise.resolve(this.#outcome as number);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  cancel(): boolean {
    if (!this.#isWaiting()) return false;
    this.#queue.cancel(this, new ReservationCancelledError(this.waitMs));
    return true;
  }

  settle(actual: Permits): void {
    const used = this.#queue.supply.amount(actual, atLeastZero);
    if (this.#isWaiting()) {
      this.used = replace(this.used, used);
      // the caller knows `waitMs`: fewer permits may shorten the wait, more must not lengthen it
      this.#queue.resettle(
        this,
        combine(this.amount, used, (was, is = was) => Math.min(was, is)),
      );
    } else {
      this.used = correct(this.#account, this.used, used);
    }
  }

  undo(): void {
    this.cancel();
    this.settle(0);
  }

  override get taken(): Amount {
    return this.used;
  }

  override get signals(): readonly AbortSignal[] {
    return this.#signals;
  }

  override get awaited(): boolean {
    return this.#ready !== undefined;
  }

  override release(at: number, now: number): void {
    this.#outcome = toMillis((this.awaited ? now : at) - this.asked);
    this.#settle?.(this.#outcome);
  }

  override refuse(now: number, excess?: Error): void {
    this.abort(excess, now);
  }

  override abort(reason: unknown, now: number): void {
    this.#callStats.cancelled(this.amount, now - this.asked, reason);
    this.#outcome = "cancelled";
    this.used = combine(this.used, this.used, () => 0);
    this.#settle?.(Promise.reject(reason));
  }

  #isWaiting(): boolean {
    this.#queue.catchUp();
    return this.#outcome === "waiting";
  }

  #await(): Promise<number> {
    this.#ready ??= new Promise((resolve) => {
      this.#settle = resolve;
    });
    return this.#ready;
  }
}

/**
 * Permits that could be used at once. It holds only what `settle` needs, because a caller that
 * reserves for each job creates one for each job.
 */
export class GrantedReservation implements AccountedReservation {
  readonly permits: Permits;
  readonly waitMs = 0;
  readonly #account: CheckedAccount;
  used: Amount;

  constructor(account: CheckedAccount, permits: Permits, amount: Amount) {
    this.permits = permits;
    this.#account = account;
    this.used = amount;
  }

  async ready(options?: WaitOptions): Promise<number> {
    checkSignalOptions(options)?.throwIfAborted();
    return 0;
  }

  cancel(): boolean {
    return false;
  }

  settle(actual: Permits): void {
    const used = this.#account.supply.amount(actual, atLeastZero);
    this.used = correct(this.#account, this.used, used);
  }

  undo(): void {
    this.settle(0);
  }
}
