import { FairFifo, type Placed } from "./fair-fifo.ts";
import type { Turn } from "./turn.ts";

/**
 * The calls of a fair limiter on a store that have not been sent yet. Its shares are also charged for calls
 * that did not wait here, and their debts are kept until `forget` is called: whether the limiter is idle
 * depends on the store.
 */
export class ShareLine<Call extends Placed<Call>> extends FairFifo<Call> {
  #permits = 0;

  /** How many permits the calls ask for. */
  get permits(): number {
    return this.#permits;
  }

  override append(call: Call): void {
    super.append(call);
    this.#permits += (call.turn as Turn<Call>).size;
  }

  override remove(call: Call): boolean {
    const isMember = super.remove(call);
    if (isMember) this.#permits -= (call.turn as Turn<Call>).size;
    return isMember;
  }

  override shift(): Call | undefined {
    const call = super.shift();
    if (call !== undefined) this.#permits -= (call.turn as Turn<Call>).size;
    return call;
  }

  /** Whether a call that is made now goes before all that wait. */
  isNext(turn: Turn<Call>): boolean {
    this.queueOf(turn).enter(turn);
    return this.ranks.isNext(turn);
  }

  /** Charges the share of a call that does not wait here. */
  charge(turn: Turn<Call>): void {
    const queue = this.queueOf(turn);
    queue.enter(turn);
    queue.charge(turn);
    this.ranks.served(queue, this.now());
  }

  /** Undoes the charge for a call that got no permits. */
  refund(turn: Turn<Call>): void {
    this.queueOf(turn).refund(turn);
  }

  /** Called when the limiter is idle: no share owes anything. */
  forget(): void {
    super.begin();
  }

  /**
   * The calls in the order in which they go if no other comes.
   *
   * @param turn only those that go before this call, which waits or is made now
   */
  *upcoming(turn?: Turn<Call>): Generator<Call> {
    if (turn?.item !== undefined && turn.share === undefined) return; // it has gone
    if (turn?.share === undefined && turn !== undefined) this.queueOf(turn).enter(turn);
    const forecast = this.ranks.with(this.ranks.list.map((queue) => queue.forecast(turn)));
    for (let { next } = forecast; next !== undefined; next = forecast.next) {
      if (turn !== undefined && forecast.isNext(turn)) return;
      const call = next.head?.item as Call;
      if (call === turn?.item) return;
      yield call;
      next.shift(true);
      forecast.served(next, this.now());
    }
  }

  protected override begin(): void {}
}
