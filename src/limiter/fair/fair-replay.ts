import type { PolicyState } from "../../stores/policy-state.ts";
import { type Promised, Replay } from "../replay.ts";
import type { Waiter } from "../waiter.ts";
import type { FairLine } from "./fair-line.ts";
import type { Turn } from "./turn.ts";

/**
 * The state after the waiters of a fair line. Waiters with a fixed place are replayed as in any line; the others
 * in the order of a forecast, anew at each look, because later callers may have overtaken them.
 */
export class FairReplay extends Replay {
  readonly #line: FairLine;
  readonly #refuse: (waiter: Waiter) => void;

  constructor(line: FairLine, released: PolicyState, refuse: (waiter: Waiter) => void) {
    super(line, released, refuse);
    this.#line = line;
    this.#refuse = refuse;
  }

  override settle(turn: Turn<Waiter>, floor: number, pausedUntil: number): void {
    this.#line.enter(turn);
    while (!this.#line.isFirst(turn)) {
      const promised = super.run(floor, pausedUntil);
      this.#line.promote(instantOf(this.#line.first as Waiter, promised, pausedUntil));
    }
  }

  /** Only waiters with a deadline need the forecast. */
  override refuseLate(floor: number, pausedUntil: number): void {
    if (this.#line.deadline < Infinity) this.run(floor, pausedUntil);
    else super.run(floor, pausedUntil);
  }

  override run(floor: number, pausedUntil: number, turn?: Turn<Waiter>): Readonly<Promised> {
    const { policyState, at } = super.run(floor, pausedUntil);
    const promised: Promised = { policyState: policyState.copy(), at, last: undefined };
    const refused: Waiter[] = [];
    const forecast = this.#line.forecast(turn);
    for (let { next } = forecast; next !== undefined; next = forecast.next) {
      if (turn !== undefined && forecast.isNext(turn)) break;
      const waiter = next.head?.item as Waiter;
      const instant = instantOf(waiter, promised, pausedUntil);
      const isRefused = Math.ceil(instant) > waiter.deadline;
      next.shift(!isRefused);
      if (isRefused) {
        refused.push(waiter);
        continue;
      }
      promised.policyState.take(instant, waiter.taken);
      promised.at = instant;
      forecast.served(next, instant);
    }
    for (const waiter of refused) this.#refuse(waiter);
    return promised;
  }
}

function instantOf(waiter: Waiter, { policyState, at }: Promised, pausedUntil: number): number {
  return policyState.earliest(Math.max(waiter.asked, at, pausedUntil), waiter.amount);
}
