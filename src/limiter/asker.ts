import { LONGEST_TIMEOUT_MS, toMillis } from "../clock.ts";
import { type Amount, sameAmount } from "../permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../stores/store.ts";
import type { Call } from "./call.ts";
import type { Sleeper } from "./wait-line.ts";

/** What askers need of their limiter. */
export interface Desk {
  /** Whether the asker may wait where so many wait already; from then on it does. */
  seat(asker: Asker, wait: number, sentAt: number): boolean;
  /** It has its answer. */
  dismiss(asker: Asker): void;
  /** It has a seat, and does not want it any more. */
  leave(asker: Asker): void;
  giveBack(amount: Amount, answer: Answer): void;
  /** The store cannot be asked. */
  failed(asker: Asker, error: unknown): void;
  now(): number;
  /** The store has given it what it asked for. */
  took(amount: Amount): void;
  full(amount: Amount): Error;
  excess(amount: Amount): Error;
}

type Resolve<T> = (outcome: T | PromiseLike<T>) => void;

/**
 * Somebody who asks the store for permits and sleeps until they can be used. What comes of it is
 * for the kinds of askers to say.
 */
export abstract class Asker<T = never> implements Call, Sleeper {
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
  #answer: Answer | undefined;
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
  }

  protected abstract granted(waitedMs: number): void;
  protected abstract refused(full: () => Error): void;

  reject(reason: unknown): void {
    this.resolve(Promise.reject(reason));
  }

  request(late: number): StoreRequest {
    const longest = this.#asksAgain ? this.left : this.longest;
    return { verb: "reserve", amount: this.amount, longest, late, count: 1 };
  }

  /** How much longer it can wait, microseconds. */
  get left(): number {
    return Math.max(0, this.asked + this.longest - this.#desk.now());
  }

  answer(answer: Answer, sentAt: number): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.took(this.amount);
    if (answer.wait > 0 && answer.wait < Infinity) {
      this.#answer = answer;
      if (this.#desk.seat(this, answer.wait, sentAt)) return;
      this.undo(answer);
      this.refused(() => this.#desk.full(this.amount));
    } else if (answer.wait === 0) {
      this.granted(0);
    } else if (answer.wait === REFUSED) {
      this.refused(() => this.#desk.full(this.amount));
    } else {
      this.reject(this.#desk.excess(this.amount));
    }
    this.#desk.dismiss(this);
  }

  undo(answer: Answer): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.#desk.giveBack(this.amount, answer);
  }

  fail(error: unknown): void {
    this.#desk.failed(this, error);
  }

  wake(now: number): void {
    this.#desk.dismiss(this);
    this.granted(toMillis(now - this.asked));
  }

  /** Its permits are its own, though not by an answer of the store. */
  letIn(): void {
    this.wake(this.#desk.now());
  }

  turnAway(full: () => Error): void {
    this.#desk.dismiss(this);
    this.refused(full);
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
    if (this.#answer === undefined) {
      this.withdraw();
    } else {
      this.gone = true;
      this.#desk.leave(this);
    }
    this.reject(reason);
  }

  defer(due: number): void {
    this.due = due;
  }

  swap(sleeper: Sleeper): boolean {
    const other = sleeper as Asker;
    if (!sameAmount(this.amount, other.amount)) return false;
    [this.#answer, other.#answer] = [other.#answer, this.#answer];
    [this.due, other.due] = [other.due, this.due];
    return true;
  }

  giveUp(): void {
    this.undo(this.#answer as Answer);
  }

  /** It gives up what it was promised, to ask again. */
  recall(): void {
    this.giveUp();
    this.#answer = undefined;
    this.due = 0;
    this.asksAgain();
  }

  protected withdraw(): void {
    this.gone = true;
    this.#desk.dismiss(this);
  }
}

export class AcquireAsker extends Asker<number> {
  protected override granted(waitedMs: number): void {
    this.resolve(waitedMs);
  }

  protected override refused(full: () => Error): void {
    this.reject(full());
  }
}

export class TryAsker extends Asker<boolean> {
  readonly #askedMs = performance.now();
  #patience: ReturnType<typeof setTimeout> | undefined;

  protected override granted(): void {
    this.resolve(true);
  }

  protected override refused(): void {
    this.resolve(false);
  }

  /** It does not wait longer for a store that is away than it would for permits. */
  override delayed(): void {
    super.delayed();
    const ms = this.longest / 1000 - (performance.now() - this.#askedMs);
    if (this.#patience !== undefined || ms > LONGEST_TIMEOUT_MS) return;
    this.#patience = setTimeout(() => {
      this.withdraw();
      this.resolve(false);
    }, ms);
  }

  override answer(answer: Answer, sentAt: number): void {
    clearTimeout(this.#patience);
    super.answer(answer, sentAt);
  }

  protected override withdraw(): void {
    clearTimeout(this.#patience);
    super.withdraw();
  }
}
