/** The queue of a limiter in this process: its waiters draw from the state of the policies. */
import type { Policy } from "../algorithms/algorithm.ts";
import { decisionOn } from "../api/decision.ts";
import type { Decision } from "../api/limiter-api.ts";
import type { FairEntry } from "../fair/fair-entry.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { Waiter } from "./waiter.ts";
import { WaiterQueue } from "./waiter-queue.ts";

export class PermitQueue extends WaiterQueue<PolicyState> {
  /**
   * Returns the decision for a request that is made now. `waitMs` is `Infinity` if it may not wait.
   *
   * @param maxWaiting for how many permits callers may wait
   */
  look(amount: Amount, maxWaiting: number, fairEntry?: FairEntry<Waiter>): Decision {
    const now = this.last;
    const { instant, from, supply } = this.estimate(amount, fairEntry);
    const full = instant > now ? this.overflowing(amount) : -1;
    const mayWait = full < 0 && (instant <= now || this.permits + sizeOf(amount) <= maxWaiting);
    const wait = mayWait ? instant - now : Infinity;
    return decisionOn(supply, now, from, amount, wait, full);
  }

  /** Checks the permits of a request, and that the policies could ever let them through. */
  checked(permits: unknown): Amount {
    const amount = this.supply.amount(permits);
    this.possible(this.supply.earliest(this.now(), amount), amount);
    return amount;
  }

  /** Takes the permits whatever the state; the waiters are delayed accordingly. */
  charge(amount: Amount): void {
    this.change((state, now) => state.take(now, amount));
  }

  refund(amount: Amount): void {
    this.change((state, now) => state.giveBack(now, amount));
  }

  resize(policies: readonly Policy[]): void {
    this.change((state, now, epoch) => state.resize(now, policies, epoch));
  }

  /** Forgets all that was used, and ends any pause. */
  reset(): void {
    this.restart((now, epoch) => void this.supply.restart(now, epoch));
  }
}
