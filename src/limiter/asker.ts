import { LONGEST_TIMEOUT_MS, toMillis } from "../clock.ts";
import { type Amount, sameAmount } from "../permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../stores/store.ts";
import type { Arrival, Call } from "./call.ts";
import type { Sleeper } from "./wait-line.ts";

/** What askers need of their limiter. */
export interface Desk {
  /** Whether the asker may wait where so many wait already; from then on it does. */
  seat(asker: SleepyAsker, wait: number, sentAt: number): boolean;
  /** It has its answer. */
  dismiss(asker: Asker): void;
  /** It has a seat, and does not want it any more. */
  leave(asker: SleepyAsker): void;
  giveBack(amount: Amount, answer: Answer): void;
  full(amount: Amount): Error;
  excess(amount: Amount): Error;
}

type Resolve<T> = (outcome: T | PromiseLike<T>) => void;

/** Somebody who asks the store for permits. What comes of it is for the kinds of askers to say. */
export abstract class Asker<T = never> implements Call {
  /**
   * When it asked, by the limiter's clock, microseconds; and how much longer than that it can wait.
   */
  readonly asked: number;
  readonly longest: number;
  readonly amount: Amount;
  readonly signal: AbortSignal | undefined;
  protected readonly desk: Desk;
  protected readonly resolve: Resolve<T>;
  readonly repeatable = true;
  gone = false;

  constructor(
    desk: Desk,
    asked: number,
    amount: Amount,
    longest: number,
    signal: AbortSignal | undefined,
    resolve: Resolve<T>,
  ) {
    this.desk = desk;
    this.resolve = resolve;
    this.asked = asked;
    this.amount = amount;
    this.longest = longest;
    this.signal = signal;
  }

  abstract answer(answer: Answer, sentAt: number): void;

  reject(reason: unknown): void {
    this.resolve(Promise.reject(reason));
  }

  request(late: number): StoreRequest {
    return { verb: "reserve", amount: this.amount, longest: this.longest, late, count: 1 };
  }

  undo(answer: Answer): void {
    if (answer.wait >= 0 && answer.wait < Infinity) this.desk.giveBack(this.amount, answer);
  }

  fail(error: unknown): void {
    this.desk.dismiss(this);
    this.reject(error);
  }

  /** The store is away; it will be asked again. */
  delayed(): void {}

  /** It does not want them any more. */
  abort(reason: unknown): void {
    this.withdraw();
    this.reject(reason);
  }

  protected withdraw(): void {
    this.gone = true;
    this.desk.dismiss(this);
  }
}

/** Who sleeps here until they can be used. */
export abstract class SleepyAsker<T = never> extends Asker<T> implements Sleeper {
  due = 0;
  #promised: Answer | undefined;

  protected abstract granted(waitedMs: number): void;
  protected abstract refused(full: () => Error): void;

  answer(answer: Answer, sentAt: number): void {
    if (answer.wait > 0 && answer.wait < Infinity) {
      this.#promised = answer;
      if (this.desk.seat(this, answer.wait, sentAt)) return;
      this.undo(answer);
      this.refused(() => this.desk.full(this.amount));
    } else if (answer.wait === 0) {
      this.granted(0);
    } else if (answer.wait === REFUSED) {
      this.refused(() => this.desk.full(this.amount));
    } else {
      this.reject(this.desk.excess(this.amount));
    }
    this.desk.dismiss(this);
  }

  wake(now: number): void {
    this.desk.dismiss(this);
    this.granted(toMillis(now - this.asked));
  }

  override abort(reason: unknown): void {
    if (this.#promised === undefined) {
      super.abort(reason);
    } else {
      this.gone = true;
      this.desk.leave(this);
      this.reject(reason);
    }
  }

  defer(due: number): void {
    this.due = due;
  }

  swap(sleeper: Sleeper): boolean {
    const other = sleeper as SleepyAsker;
    if (!sameAmount(this.amount, other.amount)) return false;
    [this.#promised, other.#promised] = [other.#promised, this.#promised];
    [this.due, other.due] = [other.due, this.due];
    return true;
  }

  giveUp(): void {
    this.undo(this.#promised as Answer);
  }
}

export class AcquireAsker extends SleepyAsker<number> {
  protected override granted(waitedMs: number): void {
    this.resolve(waitedMs);
  }

  protected override refused(full: () => Error): void {
    this.reject(full());
  }
}

export class TryAsker extends SleepyAsker<boolean> {
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

/** Who sees for itself what the answer says, and when. */
export class ReserveAsker extends Asker<Arrival> {
  answer(answer: Answer, sentAt: number): void {
    this.desk.dismiss(this);
    this.resolve({ answer, sentAt });
  }
}
