/** The waiters of `acquire` and of `tryAcquire` with a time-out. */
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { Turn } from "./fair/turn.ts";
import type { Meter } from "./meter.ts";
import { Waiter } from "./waiter.ts";

/** A caller of `acquire`, or one of `tryAcquire`, which has a deadline and is answered yes or no. */
class Caller extends Waiter {
  readonly #meter: Meter;
  readonly #resolve: Resolve<number | boolean>;
  readonly #deadline: number | undefined;

  constructor(
    meter: Meter,
    asked: number,
    amount: Amount,
    signal: AbortSignal | undefined,
    resolve: Resolve<never>,
    deadline?: number,
  ) {
    super(asked, amount, signal);
    this.#meter = meter;
    this.#resolve = resolve as Resolve<number | boolean>;
    this.#deadline = deadline;
    meter.enqueued();
  }

  override get deadline(): number {
    return this.#deadline ?? Infinity;
  }

  override release(_at: number, now: number): void {
    const waited = now - this.asked;
    this.#meter.released(this.amount, waited);
    this.#resolve(this.#deadline === undefined ? toMillis(waited) : true);
  }

  override refuse(now: number): void {
    this.#meter.expired(this.amount, now - this.asked);
    this.#resolve(false);
  }

  override drop(reason: Error, now: number): void {
    this.#meter.expired(this.amount, now - this.asked, "queue-full");
    this.#resolve(this.#deadline === undefined ? Promise.reject(reason) : false);
  }

  override abort(reason: unknown, now: number): void {
    this.#meter.left(this.amount, now - this.asked, reason);
    this.#resolve(Promise.reject(reason));
  }
}

/** A caller of a fair limiter. */
class FairCaller extends Caller {
  readonly #turn: Turn<Waiter>;

  constructor(turn: Turn<Waiter>, ...rest: ConstructorParameters<typeof Caller>) {
    super(...rest);
    this.#turn = turn;
  }

  override get turn(): Turn<Waiter> {
    return this.#turn;
  }
}

/** Returns the waiter of a call, which resolves its promise. */
export function callerOf(
  turn: Turn<Waiter> | undefined,
  meter: Meter,
  asked: number,
  amount: Amount,
  signal: AbortSignal | undefined,
  resolve: Resolve<never>,
  deadline?: number,
): Caller {
  return turn === undefined
    ? new Caller(meter, asked, amount, signal, resolve, deadline)
    : new FairCaller(turn, meter, asked, amount, signal, resolve, deadline);
}

type Resolve<T> = (answer: T | PromiseLike<T>) => void;
