import { reportUseless } from "../algorithms/never-binds.ts";
import type { Limiter as Face, LocalLimiter } from "../api/limiter-api.ts";
import { LIMITER_OPTIONS, type LimiterOptions } from "../api/options.ts";
import type { Counted } from "../api/stats.ts";
import { checkOptions } from "../ground/check.ts";
import { listPolicies, type NamesOf, type Policies } from "../stores/policies.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { opened, QueueingLimiter } from "./queueing-limiter.ts";

/**
 * Any limiter, in this process or on a store, so its quick verbs may return promises. `Limiter.create` makes
 * one in this process: its type is `LocalLimiter`.
 */
export type Limiter<Name extends string = string> = Face<Name>;

export const Limiter = {
  /**
   * Creates a limiter in this process, under one policy or under several: a request is granted by
   * all of them, or charged to none. A policy that can never have an effect because of the others is
   * reported as a process warning with the code SMOOTH_LIMITER_NEVER_BINDS.
   *
   * @param policies a policy, such as `smoothBursty({ permitsPerSecond: 5 })`, or several by name
   * @param options `{ maxWaiting, onFull, order, clock, name }`
   * @returns the limiter
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = Limiter.create({
   *   requests: smoothBursty({ permitsPerSecond: 500 / 60 }),
   *   tokens: smoothBursty({ permitsPerSecond: 30_000 / 60 }),
   * });
   * await limiter.acquire({ requests: 1, tokens: 1200 });
   */
  create<P extends Policies>(
    policies: P,
    options: LimiterOptions = {},
  ): LocalLimiter<NamesOf<P>> & Counted {
    checkOptions("options", options, LIMITER_OPTIONS);
    const listed = listPolicies(policies);
    reportUseless(listed.names, listed.list);
    const limiter: LocalLimiter & Counted = new QueueingLimiter(
      ...opened(listed, options, openPolicyState),
    );
    return limiter as LocalLimiter<NamesOf<P>> & Counted;
  },
};
