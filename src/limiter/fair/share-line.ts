import { FairFifo, type Placed } from "./fair-fifo.ts";
import type { Turn } from "./turn.ts";

/**
 * The calls of a fair limiter on a store that have not been sent yet. Its shares are also charged for calls
 * that did not wait here, and their debts are kept until `forget` is called: whether the limiter is idle
 * depends on the store.
 */
export class ShareLine<Call extends Placed<Call>> extends FairFifo<Call> {
  /** How many permits the calls ask for. */
  get permits(): number {
    return this.ranks.permits;
  }

  /** Whether a call that is made now goes before all that wait. */
  isNext(turn: Turn<Call>): boolean {
    return this.ranks.enter(turn);
  }

  /** Charges the share of a call that does not wait here. */
  charge(turn: Turn<Call>): void {
    this.ranks.enter(turn);
    this.ranks.charge(turn, this.now());
  }

  /** Undoes the charge for a call that got no permits. */
  refund(turn: Turn<Call>): void {
    this.ranks.refund(turn);
  }

  /** Called when the limiter is idle: no share owes anything. */
  forget(): void {
    this.ranks.reset();
  }

  /**
   * The calls in the order in which they go if no other comes.
   *
   * @param turn only those that go before this call, which waits or is made now
   */
  *upcoming(turn?: Turn<Call>): Generator<Call> {
    if (turn?.item !== undefined && turn.share === undefined) return; // it has gone
    if (turn?.share === undefined && turn !== undefined) this.ranks.enter(turn);
    const forecast = this.ranks.forecast(turn);
    for (let { head } = forecast; head !== undefined; head = forecast.head) {
      if (turn !== undefined && forecast.isNext(turn)) return;
      const call = head.item as Call;
      if (call === turn?.item) return;
      yield call;
      forecast.shift(this.now());
    }
  }

  protected override begin(): void {}
}
