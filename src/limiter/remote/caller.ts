import { LONGEST_TIMEOUT_MS, toMillis } from "../../ground/clock.ts";
import type { RefusedMessage } from "../../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../../ground/errors.ts";
import { sameAmount, sizeOf } from "../../ground/permits.ts";
import type { Answer } from "../../stores/store.ts";
import { type Grant, RemoteWaiter, type WaiterHost, type Wanted } from "./remote-waiter.ts";
import type { Sleeper } from "./wait-line.ts";

/** The results of a call: for `acquire` and `tryAcquire`. */
export interface Outcome<T> {
  /** The reason of a rejection, unless a more specific one is given. */
  readonly refusal: RefusedMessage["reason"];
  /** Whether a rejection is no error, and the longest wait covers the wait for the store, too. */
  readonly timesOut: boolean;
  granted(waitedMs: number): T;
  refused(full: () => Error): T | Promise<never>;
}

export const ACQUIRED: Outcome<number> = {
  refusal: "queue-full",
  timesOut: false,
  granted: (waitedMs) => waitedMs,
  refused: (full) => Promise.reject(full()),
};

export const TRIED: Outcome<boolean> = {
  refusal: "too-long",
  timesOut: true,
  granted: () => true,
  refused: () => false,
};

/** A caller of `acquire` or `tryAcquire`, which sleeps in the line until its permits can be used. */
export class Caller<T> extends RemoteWaiter implements Sleeper {
  due = 0;
  readonly #outcome: Outcome<T>;
  readonly #resolve: (outcome: T | PromiseLike<T>) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    host: WaiterHost,
    wanted: Wanted,
    outcome: Outcome<T>,
    resolve: (outcome: T | PromiseLike<T>) => void,
  ) {
    super(host, wanted);
    this.#outcome = outcome;
    this.#resolve = resolve;
    host.parts.meter.enqueued();
  }

  override get isAwaited(): boolean {
    return true;
  }

  get size(): number {
    return sizeOf(this.amount);
  }

  // -- outcomes --

  override accept(answer: Answer, sentAt: number): void {
    if (answer.wait > 0) super.accept(answer, sentAt);
    // after an outage the wait for the store counts, too
    else this.#release(this.isAgain ? this.waited : 0);
  }

  override granted(): void {
    this.host.parts.line.add(this, this.asked + this.longest);
  }

  wake(now: number): void {
    this.#release(now - this.asked);
  }

  override letIn(): void {
    this.#release(this.waited);
  }

  #release(waited: number): void {
    this.untrack();
    this.host.parts.meter.released(this.amount, waited);
    this.#resolve(this.#outcome.granted(toMillis(waited)));
  }

  override refuse(full: () => Error, reason = this.#outcome.refusal): void {
    this.untrack();
    this.host.parts.meter.expired(this.amount, this.waited, reason);
    this.#resolve(this.#outcome.refused(full));
  }

  /** With a limit of 0, which operators have set, `tryAcquire` returns false rather than throw. */
  override never(excess: PermitsExceedCapacityError): void {
    if (this.#outcome.timesOut && excess.facts.capacity === 0) this.refuse(() => excess);
    else super.never(excess);
  }

  protected override reject(reason: unknown): void {
    this.host.parts.meter.ended();
    this.#resolve(Promise.reject(reason));
  }

  override leave(reason: unknown): void {
    this.#depart();
    this.host.parts.meter.cancelled(this.amount, this.waited, reason);
    this.reject(reason);
  }

  #depart(): void {
    this.gone = true;
    this.untrack();
    this.leaveHere?.();
    if (this.grant === undefined) this.answered();
    else this.host.parts.line.leave(this);
  }

  // -- while the store is away --

  override delayed(): void {
    this.isAgain = true;
    const ms = this.left / 1000;
    const isTimed = this.#outcome.timesOut && ms <= LONGEST_TIMEOUT_MS;
    if (!isTimed || this.gone || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#depart();
      this.refuse(() => this.host.full(this.amount));
    }, ms);
  }

  protected override answered(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    super.answered();
  }

  // -- in the line --

  get promised(): Grant {
    return this.grant as Grant;
  }

  set promised(promised: Grant) {
    this.grant = promised;
  }

  isLike(other: Sleeper): boolean {
    return sameAmount(this.amount, (other as this).amount);
  }

  /** Returns the promised permits; the caller can then be requested again. */
  returnPromised(): void {
    if (this.grant !== undefined) this.returnToStore(this.grant.answer);
    this.grant = undefined;
    this.isAgain = true;
  }
}
