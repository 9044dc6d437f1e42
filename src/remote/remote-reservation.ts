import type { Reservation, WaitOptions } from "../api/limiter-api.ts";
import { checkSignalOptions } from "../api/options.ts";
import { type Timer, toMillis } from "../ground/clock.ts";
import { ReservationCancelledError } from "../ground/errors.ts";
import { inTurn } from "../ground/in-turn.ts";
import { type Amount, combine, type Permits, sameAmount } from "../ground/permits.ts";
import type { Grant } from "./grants.ts";
import { type Charged, RemoteWaiter, type WaiterHost, type Wanted } from "./remote-waiter.ts";

/**
 * Permits that are promised, or requested. No caller awaits them until `ready()` is called. The promised
 * instant never changes; only a pause defers it. The fallback makes such promises, too, while the store is
 * away: they are charged to the store when it is back.
 */
export class RemoteReservation extends RemoteWaiter implements Reservation, Charged {
  readonly isAwaited = false;
  readonly permits: Permits;
  waitMs = 0;
  /** Called once, when its permits are given back. */
  onReturned: (() => void) | undefined;
  readonly #resolve: (outcome: RemoteReservation | PromiseLike<never>) => void;
  charged: Amount;
  next: Charged["next"];
  grant: Grant | undefined;
  /** From when its permits can be used; Infinity: they are not granted yet. */
  #instant = Infinity;
  /** The promise behind `ready()`; the signals below can end it. */
  #ready: Promise<void> | undefined;
  #rejectReady: ((reason: unknown) => void) | undefined;
  #alarm: Timer | undefined;
  readonly #awaitedUnder = new Set<AbortSignal>();

  constructor(
    host: WaiterHost,
    wanted: Wanted,
    resolve: (outcome: RemoteReservation | PromiseLike<never>) => void = () => {},
  ) {
    super(host, wanted);
    this.permits = wanted.permits;
    this.charged = wanted.amount;
    this.#resolve = resolve;
  }

  // -- requested --

  override granted(wait: number, grant?: Grant): void {
    const { queue, callStats } = this.host.parts;
    this.grant = grant;
    this.#instant = grant?.instant ?? queue.now() + wait;
    this.waitMs = toMillis(wait);
    this.untrack();
    // the fallback counts those that wait in it
    if (grant !== undefined) this.host.reserved(this);
    callStats.granted(this.amount, wait);
    this.#resolve(this);
  }

  override decline(full: () => Error): void {
    this.untrack();
    this.host.parts.callStats.refused(this.amount, "queue-full");
    this.reject(full());
  }

  protected override reject(reason: unknown): void {
    this.#resolve(Promise.reject(reason));
  }

  /** Cancels the request or gives back its permits: the signal was aborted, or the limiter closed. */
  override abort(reason: unknown): void {
    if (this.#instant < Infinity) {
      // no caller waits for this request: if it fails, the permits are lost
      if (this.#leave(reason)) this.#return().catch(() => {});
    } else {
      this.gone = true;
      this.fail(reason);
    }
  }

  /** Does nothing: it waits beside the queue, by a timer of its own. */
  override release(): void {}

  // -- promised --

  /** Whether the reservation is neither cancelled nor due. */
  get isPending(): boolean {
    return !this.gone && !this.#isDue;
  }

  get #isDue(): boolean {
    return this.host.parts.queue.reached(this.#instant);
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkSignalOptions(options);
    if (signal?.aborted) {
      this.abort(signal.reason);
      throw signal.reason;
    }
    if (this.gone) throw new ReservationCancelledError(this.waitMs);
    if (this.#isDue) return this.waitMs;
    this.host.checkOpen();
    if (signal !== undefined) this.#awaitedUnder.add(signal);
    this.host.track(this, [...this.#awaitedUnder]);
    this.#ready ??= new Promise((resolve, reject) => {
      this.#rejectReady = reject;
      this.#alarm = this.host.parts.queue.alarm(this.#instant, () => {
        this.#stopWaiting();
        resolve();
      });
    });
    await this.#ready;
    return this.waitMs;
  }

  async cancel(): Promise<boolean> {
    if (!this.#leave(new ReservationCancelledError(this.waitMs))) return false;
    await this.#return();
    return true;
  }

  async undo(): Promise<void> {
    if (await this.cancel()) return;
    this.#returned();
    await this.settle(0);
  }

  settle(actual: Permits): Promise<void> {
    return this.host.settle(this, actual);
  }

  /** Cancels the reservation. @returns false if it was already cancelled or due */
  #leave(reason: unknown): boolean {
    if (!this.isPending) return false;
    this.gone = true;
    this.host.parts.callStats.cancelled(this.amount, Math.max(0, this.waited), reason);
    this.#alarm?.cancel();
    this.#stopWaiting();
    this.#rejectReady?.(reason);
    this.#returned();
    return true;
  }

  #returned(): void {
    this.onReturned?.();
    this.onReturned = undefined;
  }

  #stopWaiting(): void {
    this.host.untrack(this, [...this.#awaitedUnder]);
    this.#awaitedUnder.clear();
  }

  #return(): Promise<void> {
    // what is settled from now on is settled after it
    this.next = undefined;
    return inTurn(this, () => {
      const { charged: taken, grant } = this;
      const nothing = combine(taken, taken, () => 0);
      // the place in the fallback, and a return as if it had never been granted, fit only the granted amount
      const isWhole = sameAmount(taken, this.amount);
      if (!isWhole || (this.leaveFallback ?? grant) === undefined) {
        return this.host.pay(this, nothing);
      }
      this.charged = nothing;
      this.grant = undefined;
      if (this.leaveFallback !== undefined) return this.leaveFallback();
      return grant && this.host.returnToStore(taken, grant);
    });
  }
}
