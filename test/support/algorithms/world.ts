/** Random histories of one state, through the contract of an algorithm. */
import type { Policy } from "../../../src/algorithms/algorithm.ts";

/**
 * `edge`: time advances to the instant when that many permits are available, or when the state is
 * as new, or a microsecond earlier or later. `charge` is for properties that also hold after
 * debts.
 */
export type Deed =
  | { readonly verb: "step"; readonly micros: number }
  | {
      readonly verb: "edge";
      readonly permits: number;
      readonly fresh: boolean;
      readonly by: number;
    }
  | { readonly verb: "ask"; readonly permits: number; readonly longest: number }
  | { readonly verb: "cancel"; readonly which: number }
  | { readonly verb: "pause"; readonly micros: number }
  | { readonly verb: "charge"; readonly permits: number }
  | { readonly verb: "refund"; readonly permits: number };

interface Grant {
  readonly at: number;
  readonly permits: number;
  readonly receipt: number;
}

/** A state under a policy, and its whole history. */
export class World {
  readonly policy: Policy;
  readonly grants: Grant[] = [];
  readonly start: number;
  readonly epoch: number;
  state: unknown;
  now: number;
  #heldUntil = 0;

  constructor(policy: Policy, now: number, epoch: number) {
    this.policy = policy;
    this.start = now;
    this.epoch = epoch;
    this.now = now;
    this.state = this.fresh(now);
  }

  fresh(now: number): unknown {
    const state = this.policy.algorithm.start(this.policy, now);
    this.policy.algorithm.align?.(this.policy, state, this.epoch);
    return state;
  }

  deficit(at = this.now, state = this.state): number {
    return this.policy.algorithm.deficit(this.policy, state, at);
  }

  copy(): unknown {
    return this.policy.algorithm.copy(this.state);
  }

  earliest(from: number, permits: number, state = this.state): number {
    return this.policy.algorithm.earliest(this.policy, state, from, permits);
  }

  do(action: Deed): void {
    const { policy, state } = this;
    const { algorithm } = policy;
    if (action.verb === "step") this.now += action.micros;
    else if (action.verb === "edge") this.#toEdge(action.permits, action.fresh, action.by);
    else if (action.verb === "pause") this.#heldUntil = this.now + action.micros;
    else if (action.verb === "charge") algorithm.take(policy, state, this.now, action.permits);
    else if (action.verb === "refund") algorithm.giveBack(policy, state, this.now, action.permits);
    else if (action.verb === "ask") {
      const { permits } = action;
      const at = this.earliest(Math.max(this.now, this.#heldUntil), permits);
      if (at === Infinity || at - this.now > action.longest) return;
      if (at > this.now && algorithm.overflows?.(policy, state, this.now, permits)) return;
      this.grants.push({ at, permits, receipt: algorithm.take(policy, state, at, permits) });
    } else {
      const index = action.which % Math.max(1, this.grants.length);
      const grant = this.grants[index];
      if (grant === undefined || grant.at <= this.now) return;
      this.grants.splice(index, 1);
      algorithm.giveBack(policy, state, this.now, grant.permits, grant.receipt);
    }
  }

  #toEdge(permits: number, fresh: boolean, by: number): void {
    const reset = this.now + this.policy.algorithm.lifetime(this.policy, this.state, this.now);
    const at = fresh ? reset : this.earliest(this.now, permits);
    // an edge that is an hour away, or never comes, cannot be observed
    if (at - this.now <= 3.6e9) this.now = Math.max(this.now, Math.ceil(at) + by);
  }
}
