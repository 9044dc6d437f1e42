import { LONGEST_TIMEOUT_MS, toMillis } from "../../clock.ts";
import type { RefusedMessage } from "../../diagnostics.ts";
import type { PermitsExceedCapacityError } from "../../errors.ts";
import { type Amount, sameAmount } from "../../permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../../stores/store.ts";
import type { Meter } from "../meter.ts";
import type { Arrival, Taker } from "./call.ts";
import type { Promised, Sleeper } from "./wait-line.ts";

/** What askers need of their limiter. */
export interface Desk {
  /** Is told how each of them ended. */
  readonly meter: Meter;
  /** Whether the asker may wait where so many wait already; from then on it does. */
  seat(asker: Asker): boolean;
  /** By the limiter's clock: when the wait that the store told is over. */
  dueAt(wait: number, sentAt: number): number;
  /** It has its answer. */
  dismiss(asker: Asker): void;
  /** It has a seat, and does not want it any more. */
  leave(asker: Asker): void;
  giveBack(amount: Amount, answer: Answer): void;
  /** The store cannot be asked. */
  unanswered(asker: Asker, error: unknown): void;
  now(): number;
  /** The store has given it what it asked for. */
  took(amount: Amount, answer: Answer): void;
  full(amount: Amount): Error;
  excess(amount: Amount): PermitsExceedCapacityError;
}

/** What those need of their limiter who see for themselves what the answer says. */
export interface BookingDesk {
  took(amount: Amount, answer: Answer): void;
  booked(booking: Booking): void;
  giveBack(amount: Amount, answer: Answer): void;
}

/** What the store has promised, and how it is given back. */
interface Grant extends Promised {
  readonly answer: Answer;
}

type Resolve<T> = (outcome: T | PromiseLike<T>) => void;

/**
 * Somebody who asks the store for permits and sleeps until they can be used. What comes of it is
 * for the kinds of askers to say.
 */
export abstract class Asker<T = never> implements Taker, Sleeper {
  /**
   * When it asked, by the limiter's clock, microseconds; and how much longer than that it can wait.
   */
  readonly asked: number;
  readonly longest: number;
  readonly amount: Amount;
  readonly signal: AbortSignal | undefined;
  readonly #desk: Desk;
  protected readonly resolve: Resolve<T>;
  readonly repeatable = true;
  gone = false;
  due = 0;
  #promised: Grant | undefined;
  #asksAgain = false;

  constructor(
    desk: Desk,
    asked: number,
    amount: Amount,
    longest: number,
    signal: AbortSignal | undefined,
    resolve: Resolve<T>,
  ) {
    this.#desk = desk;
    this.resolve = resolve;
    this.asked = asked;
    this.amount = amount;
    this.longest = longest;
    this.signal = signal;
    desk.meter.seat();
  }

  protected abstract granted(waitedMs: number): void;
  protected abstract refused(full: () => Error): void;
  /** Why it is refused, unless there is another reason. */
  protected abstract readonly refusal: RefusedMessage["reason"];

  reject(reason: unknown): void {
    this.#desk.meter.ended();
    this.resolve(Promise.reject(reason));
  }

  /** The permits exceed what a policy can ever hold. */
  never(excess: PermitsExceedCapacityError): void {
    this.reject(excess);
  }

  #grant(waited: number): void {
    // an answer that came late was waited for, too
    this.#desk.meter.released(this.amount, this.#asksAgain ? this.#waited : waited);
    this.granted(toMillis(waited));
  }

  #refuse(full: () => Error, reason = this.refusal): void {
    this.tellRefusal(reason);
    this.refused(full);
  }

  protected tellRefusal(reason = this.refusal): void {
    this.#desk.meter.expired(this.amount, this.#waited, reason);
  }

  get #waited(): number {
    return this.#desk.now() - this.asked;
  }

  request(late: number): StoreRequest {
    return { verb: "reserve", amount: this.amount, longest: this.patience, late, count: 1 };
  }

  get patience(): number {
    return this.#asksAgain ? this.left : this.longest;
  }

  /** How much longer it can wait, microseconds. */
  get left(): number {
    return Math.max(0, this.asked + this.longest - this.#desk.now());
  }

  answer(answer: Answer, sentAt: number): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.took(this.amount, answer);
    if (answer.wait > 0 && answer.wait < Infinity) {
      this.#promised = { instant: this.#desk.dueAt(answer.wait, sentAt), answer };
      if (this.#desk.seat(this)) return;
      this.undo(answer);
      this.#refuse(() => this.#desk.full(this.amount), "queue-full");
    } else if (answer.wait === 0) {
      this.#grant(0);
    } else if (answer.wait === REFUSED) {
      this.#refuse(() => this.#desk.full(this.amount));
    } else {
      this.never(this.#desk.excess(this.amount));
    }
    this.#desk.dismiss(this);
  }

  undo(answer: Answer): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.giveBack(this.amount, answer);
  }

  fail(error: unknown): void {
    this.#desk.unanswered(this, error);
  }

  wake(now: number): void {
    this.#desk.dismiss(this);
    this.#grant(now - this.asked);
  }

  /** Its permits are its own, though not by an answer of the store. */
  letIn(): void {
    this.wake(this.#desk.now());
  }

  turnAway(full: () => Error): void {
    this.#desk.dismiss(this);
    this.#refuse(full);
  }

  /** The store is away; it will be asked again. */
  delayed(): void {
    this.asksAgain();
  }

  /** From now on it asks for what is left of its time. */
  asksAgain(): void {
    this.#asksAgain = true;
  }

  /** It does not want them any more. */
  abort(reason: unknown): void {
    if (this.#promised === undefined) {
      this.withdraw();
    } else {
      this.gone = true;
      this.#desk.leave(this);
    }
    this.#desk.meter.cancelled(this.amount, this.#waited, reason);
    this.reject(reason);
  }

  get promised(): Grant {
    return this.#promised as Grant;
  }

  isLike(sleeper: Sleeper): boolean {
    return sameAmount(this.amount, (sleeper as Asker).amount);
  }

  takeOver(promised: Promised): void {
    this.#promised = promised as Grant;
  }

  giveUp(): void {
    this.undo(this.promised.answer);
  }

  /** It gives up what it was promised, to ask again. */
  recall(): void {
    this.giveUp();
    this.#promised = undefined;
    this.due = 0;
    this.asksAgain();
  }

  protected withdraw(): void {
    this.gone = true;
    this.#desk.dismiss(this);
  }
}

export class AcquireAsker extends Asker<number> {
  protected override readonly refusal = "queue-full";

  protected override granted(waitedMs: number): void {
    this.resolve(waitedMs);
  }

  protected override refused(full: () => Error): void {
    this.resolve(Promise.reject(full()));
  }
}

export class TryAsker extends Asker<boolean> {
  protected override readonly refusal = "too-long";
  readonly #askedMs = performance.now();
  #patience: ReturnType<typeof setTimeout> | undefined;

  protected override granted(): void {
    this.resolve(true);
  }

  protected override refused(): void {
    this.resolve(false);
  }

  /** A limit of 0 is the operators' doing, and no fault of the caller's. */
  override never(excess: PermitsExceedCapacityError): void {
    if (excess.facts.capacity > 0) {
      super.never(excess);
    } else {
      this.tellRefusal();
      this.resolve(false);
    }
  }

  /** It does not wait longer for a store that is away than it would for permits. */
  override delayed(): void {
    super.delayed();
    const ms = this.longest / 1000 - (performance.now() - this.#askedMs);
    if (this.gone || this.#patience !== undefined || ms > LONGEST_TIMEOUT_MS) return;
    this.#patience = setTimeout(() => {
      this.withdraw();
      this.tellRefusal();
      this.resolve(false);
    }, ms);
  }

  override answer(answer: Answer, sentAt: number): void {
    this.#heard();
    super.answer(answer, sentAt);
  }

  override fail(error: unknown): void {
    this.#heard();
    super.fail(error);
  }

  protected override withdraw(): void {
    this.#heard();
    super.withdraw();
  }

  #heard(): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
  }
}

/** Who sees for itself what the answer says, and when: a reservation that is under way. */
export class Booking implements Taker {
  readonly amount: Amount;
  readonly patience: number;
  readonly repeatable = true;
  readonly answered: Promise<Arrival>;
  gone = false;
  readonly #desk: BookingDesk;
  #resolve!: (arrival: Arrival) => void;
  #reject!: (reason: unknown) => void;

  constructor(desk: BookingDesk, amount: Amount, patience: number) {
    this.#desk = desk;
    this.amount = amount;
    this.patience = patience;
    this.answered = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  request(late: number): StoreRequest {
    return { verb: "reserve", amount: this.amount, longest: this.patience, late, count: 1 };
  }

  answer(answer: Answer, sentAt: number): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.took(this.amount, answer);
    this.#desk.booked(this);
    this.#resolve({ answer, sentAt });
  }

  undo(answer: Answer): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.giveBack(this.amount, answer);
  }

  fail(error: unknown): void {
    this.#desk.booked(this);
    this.#reject(error);
  }

  delayed(): void {}

  abort(reason: unknown): void {
    this.gone = true;
    this.fail(reason);
  }
}
