import { asPaused } from "../../api/decision.ts";
import type { Decision, PolicyStatus } from "../../api/limiter-api.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Amount } from "../../ground/permits.ts";
import { openFraction } from "../../stores/state/fraction.ts";
import type { RemoteCalls } from "../remote-calls.ts";
import type { FairRequest } from "./ordered-caller.ts";
import type { WindowedCallers } from "./windowed-callers.ts";

type Asked = Pick<FairRequest, "amount" | "fairEntry">;

/** Computes how long calls of a fair limiter on a store wait: in the store, and behind calls in this process. */
export class FairEstimate {
  readonly #store: RemoteCalls;
  readonly #queue: WindowedCallers;
  readonly #names: readonly string[];

  constructor(store: RemoteCalls, queue: WindowedCallers) {
    this.#store = store;
    this.#queue = queue;
    this.#names = store.parts.declared.names;
  }

  /** Asks the store, and adds the wait for the calls that go before this one and wait in this process. */
  async peek(asked: Asked): Promise<Decision> {
    return this.behindOthers(asked, await this.#store.ask("peek", asked.amount));
  }

  /** Adds that wait to an answer of the store. */
  behindOthers({ amount, fairEntry }: Asked, seen: Decision): Decision {
    const ahead = this.#aheadOf(fairEntry);
    if (ahead.length === 0) return seen;
    const delay = this.#delay(seen, ahead, amount);
    const isFull = fairEntry.item === undefined && this.#queue.isFull(amount);
    const refused = this.#names.map((name) => {
      const status = asPaused(seen.policies[name] as PolicyStatus, 0);
      return [name, { ...status, allowed: status.allowed && name !== seen.policy }] as const;
    });
    return {
      ...{ ...seen, allowed: false, remaining: 0, policies: Object.fromEntries(refused) },
      waitMs: isFull ? Infinity : seen.waitMs + toMillis(delay),
    };
  }

  /** What the calls ask for that go before this one and wait in this process. */
  #aheadOf(fairEntry: Asked["fairEntry"]): readonly Amount[] {
    const ahead: Amount[] = [];
    const hasGone = fairEntry.item !== undefined && fairEntry.share === undefined;
    if (hasGone) return ahead;
    const now = this.#queue.now();
    this.#queue.ranks.forecast(fairEntry, (call) => {
      ahead.push(call.amount);
      return now;
    });
    return ahead;
  }

  /**
   * Returns how much longer a call waits because of calls that go before it but are not sent yet, microseconds.
   * Exact where the quotas determine the state, as for a pace or a bucket. If the quotas do not show when a
   * window started, it is assumed to start now.
   *
   * @param seen the answer of the store
   * @param ahead the permits of those calls, in order
   */
  #delay(seen: Decision, ahead: readonly Amount[], amount: Amount): number {
    const policies = { names: this.#names, list: this.#queue.policies };
    const deficit = this.#names.map((name) => deficitOf(seen.policies[name] as PolicyStatus));
    const since = typeof amount === "number" ? 0 : [];
    const state = openFraction(policies, 1, { deficit, ago: 0, since }, 0, 0);
    const first = state.earliest(0, amount);
    let at = 0;
    for (const each of ahead) {
      at = state.earliest(at, each);
      state.take(at, each);
    }
    return state.earliest(at, amount) - first;
  }
}

/** How many permits a policy lacks to be full, debts included. */
function deficitOf({ limit, remaining, resetMs, windowMs }: PolicyStatus): number {
  if (limit === Infinity) return 0;
  const missing = limit - remaining;
  return remaining > 0 ? missing : Math.max(missing, (resetMs * limit) / windowMs);
}
