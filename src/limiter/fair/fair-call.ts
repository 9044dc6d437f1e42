import type { Timer } from "../../ground/clock.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { Turn } from "./turn.ts";

/** The checked arguments of a call. */
export interface FairRequest {
  readonly permits: Permits;
  readonly amount: Amount;
  readonly turn: Turn<FairCall>;
}

/** A call of `acquire` or `tryAcquire`: first in the line of its share, then with the store. */
export class FairCall implements FairRequest {
  readonly permits: Permits;
  readonly amount: Amount;
  readonly turn: Turn<FairCall>;
  /** When it was made, and when it has to be granted, the clock's microseconds. */
  readonly asked: number;
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
  /** Whether the call is a `tryAcquire`: a refusal is then a result, not an error. */
  readonly tries: boolean;
  readonly resolve: (answer: unknown) => void;
  timer: Timer | undefined;

  constructor(
    { permits, amount, turn }: FairRequest,
    asked: number,
    signal: AbortSignal | undefined,
    resolve: (answer: never) => void,
    longest?: number,
  ) {
    this.permits = permits;
    this.amount = amount;
    this.turn = turn;
    this.asked = asked;
    this.deadline = asked + (longest ?? Infinity);
    this.signal = signal;
    this.tries = longest !== undefined;
    this.resolve = resolve as FairCall["resolve"];
  }
}
