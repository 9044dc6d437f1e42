import { LONGEST_TIMEOUT_MS, toMillis } from "../ground/clock.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Answer } from "../stores/store.ts";
import type { PromisedCaller } from "./grant-queue.ts";
import type { Grant } from "./grants.ts";
import { isGranted } from "./permit-request.ts";
import { type Outcome, RemoteWaiter, type WaiterHost, type Wanted } from "./remote-waiter.ts";

/** A caller of `acquire` or `tryAcquire`, which waits in the queue until its permits can be used. */
export class StoreCaller extends RemoteWaiter implements PromisedCaller {
  /**
   * Whether it calls `tryAcquire`: a rejection is then no error, and the longest wait covers the wait for
   * the store, too.
   */
  readonly #tries: boolean;
  readonly #resolve: (outcome: Outcome) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(host: WaiterHost, wanted: Wanted, tries: boolean, resolve: (outcome: never) => void) {
    super(host, wanted);
    this.#tries = tries;
    this.#resolve = resolve as (outcome: unknown) => void;
    host.parts.callStats.enqueued();
  }

  override get isAwaited(): boolean {
    return true;
  }

  override granted(wait: number, grant?: Grant): void {
    const { queue } = this.host.parts;
    if (grant === undefined || (wait === 0 && !queue.hasCallers)) {
      // after an outage the wait for the store counts, too
      this.#released(this.isAgain ? this.waited : 0);
    } else {
      this.promised();
      queue.enter(this, grant);
    }
  }

  /** Called before it comes into the queue: a waiter is in one list at a time, and the queue has its signals then. */
  protected promised(): void {
    this.untrack();
    this.isPromised = true;
  }

  override release(_at: number, now: number): void {
    this.#released(now - this.asked);
  }

  #released(waited: number): void {
    this.untrack();
    this.host.parts.callStats.released(this.amount, waited);
    this.settle(this.#tries || toMillis(waited));
  }

  override refuse(): void {
    this.host.parts.queue.returnSoon();
    this.decline(() => this.host.full(this.amount));
  }

  override decline(
    full: () => Error,
    reason: RefusedMessage["reason"] = this.#tries ? "too-long" : "queue-full",
  ): void {
    this.untrack();
    this.host.parts.callStats.expired(this.amount, this.waited, reason);
    this.settle(this.#tries ? false : Promise.reject(full()));
  }

  protected settle(outcome: Outcome): void {
    this.#resolve(outcome);
  }

  /** With a limit of 0, which operators have set, `tryAcquire` returns false rather than throw. */
  override never(excess: PermitsExceedCapacityError): void {
    if (this.#tries && excess.facts.capacity === 0) this.decline(() => excess);
    else super.never(excess);
  }

  protected override reject(reason: unknown): void {
    this.host.parts.callStats.ended();
    this.settle(Promise.reject(reason));
  }

  leave(reason: unknown): void {
    if (this.isPromised) this.host.parts.queue.remove(this);
    this.abort(reason);
  }

  override abort(reason: unknown): void {
    this.#depart();
    this.host.parts.callStats.cancelled(this.amount, this.waited, reason);
    this.reject(reason);
  }

  #depart(): void {
    this.gone = true;
    this.leaveFallback?.();
    if (this.isPromised) return;
    this.untrack();
    this.answered();
  }

  protected override untrack(): void {
    if (!this.isPromised) super.untrack();
  }

  /** Called when the store has its permits again: it is requested once more. */
  again(): void {
    this.isPromised = false;
    this.isAgain = true;
    this.host.track(this, this.signals);
  }

  // -- while the store is away --

  override delayed(): void {
    this.isAgain = true;
    const ms = this.left / 1000;
    const isTimed = this.#tries && ms <= LONGEST_TIMEOUT_MS;
    if (!isTimed || this.gone || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#depart();
      this.decline(() => this.host.full(this.amount));
    }, ms);
  }

  protected override answered(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    super.answered();
  }

  /** Permits of one that has left go to callers behind it, like those that were promised before. */
  override returnToStore(answer: Answer, sentAt?: number): void {
    if (sentAt === undefined || !isGranted(answer)) super.returnToStore(answer);
    else this.host.parts.queue.addSpare(this.grantOf(answer, sentAt));
  }
}
