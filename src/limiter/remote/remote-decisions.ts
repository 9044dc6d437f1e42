/** The requests and answers of `decide` and `peek`. */
import type { Policy, Quota } from "../../algorithms/algorithm.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { Cell } from "../../stores/cell.ts";
import { openCell } from "../../stores/joint-cell.ts";
import type { Answer } from "../../stores/store.ts";
import { decision } from "../decision.ts";
import type { Decision } from "../face.ts";
import type { KeptLimits } from "./kept-limits.ts";
import type { CallOptions } from "./permit-request.ts";
import type { Prefetcher } from "./prefetcher.ts";
import type { RemoteQueue } from "./remote-queue.ts";

export class RemoteDecisions {
  readonly #cell: Cell;
  readonly #queue: RemoteQueue;
  readonly #limits: KeptLimits;
  readonly #prefetcher: Prefetcher | undefined;
  readonly #policies: () => readonly Policy[];

  constructor(
    cell: Cell,
    queue: RemoteQueue,
    limits: KeptLimits,
    prefetcher: Prefetcher | undefined,
    policies: () => readonly Policy[],
  ) {
    this.#cell = cell;
    this.#queue = queue;
    this.#limits = limits;
    this.#prefetcher = prefetcher;
    this.#policies = policies;
  }

  /** Prefetched permits decide where possible; quotas always come from the store. */
  of(verb: "decide" | "peek", permits: Permits, amount: Amount): CallOptions<Decision> {
    this.#queue.checkOpen();
    const buffered = this.#prefetcher?.look(amount, verb === "decide");
    const asked = buffered?.wait === undefined ? verb : "peek";
    let taken = buffered?.grant;
    const giveBack = (answer: Answer | undefined) => {
      if (answer !== undefined) this.#queue.returnToStore(amount, answer).catch(() => {});
    };
    const giveBackTaken = () => {
      giveBack(taken);
      taken = undefined;
    };
    return {
      request: (late) => ({ verb: asked, amount, late }),
      takes: asked === "decide" ? amount : 0,
      returnToStore: giveBack,
      result: (answer) => this.#decision(amount, answer, buffered),
      here: (here) => {
        giveBackTaken();
        return this.#shut(amount) ?? here[verb](permits, amount);
      },
      failed: giveBackTaken,
    };
  }

  #decision(
    amount: Amount,
    answer: Answer,
    { wait, ready = 0 }: { readonly wait?: number | undefined; readonly ready?: number } = {},
  ): Decision {
    if (answer.quotas.length === 0) throw this.#queue.excess(amount);
    const quotas = answer.quotas.map((each) => {
      const allowed = wait === undefined ? each.allowed : wait === 0;
      return { ...(ready > 0 ? atLeast(each, ready) : each), allowed };
    });
    const shortest = wait ?? answer.wait;
    const isFull = shortest > 0 && !this.#queue.hasRoom(amount);
    const { names } = this.#cell;
    return decision(names, quotas, amount, isFull ? Infinity : shortest, answer.slowest);
  }

  /** Returns the rejection during an outage if a requested policy had the limit 0 before it. */
  #shut(amount: Amount): Decision | undefined {
    const closed = this.#limits.closed(amount);
    if (closed < 0) return undefined;
    const { names } = this.#cell;
    const quotas = openCell({ names, list: this.#policies() }, 0, 0).quotas(0);
    const shut = quotas.map((quota, i) => {
      const isClosed = this.#limits.closes(i);
      return { ...quota, allowed: !isClosed, ...(isClosed && { limit: 0, remaining: 0 }) };
    });
    return decision(names, shut, amount, Infinity, closed);
  }
}

/** Raises `remaining` to the prefetched permits: they can be used whatever the store has left. */
function atLeast(quota: Quota, remaining: number): Quota {
  return { ...quota, remaining: Math.max(quota.remaining, Math.min(quota.limit, remaining)) };
}
