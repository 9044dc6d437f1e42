import type { Turn } from "../fair/turn.ts";
import type { Timer } from "../ground/clock.ts";
import type { Lease } from "./local-lease.ts";

/** A call of a `ConcurrencyLimiter` that waits. */
export class LeaseWaiter {
  /** When the call was made, µs. */
  readonly asked: number;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (outcome: Lease | undefined | Promise<never>) => void;
  /** Whether the call is a `tryAcquire`: a refusal is then a result, not an error. */
  readonly tries: boolean;
  readonly turn: Turn<LeaseWaiter> | undefined;
  timer: Timer | undefined;

  constructor(
    asked: number,
    signal: AbortSignal | undefined,
    resolve: LeaseWaiter["resolve"],
    tries: boolean,
    turn: Turn<LeaseWaiter> | undefined,
  ) {
    this.asked = asked;
    this.signal = signal;
    this.resolve = resolve;
    this.tries = tries;
    this.turn = turn;
  }
}
