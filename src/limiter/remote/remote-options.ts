import type { Clock } from "../../ground/clock.ts";
import type { BatchCounter } from "../../stores/batch-id.ts";
import type { PolicyList } from "../../stores/policies.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { Instances } from "./instances.ts";
import type { OutageStats } from "./outage-stats.ts";
import type { PrefetchOptions } from "./refill-size.ts";

export interface RemoteOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail, wait for it, or be granted in this process: all of
   * them (`"allow"`), or as many as this process' share of the limit allows (`"local"`).
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, 1 or more; required by `"local"`. */
  readonly instances?: Instances;
  readonly clock: Clock;
  /**
   * Set if the store uses the limiter's clock, too: every batch then carries the time. The clock's time
   * plus this is Unix time, microseconds. Undefined: the store uses its own clock.
   */
  readonly epoch: number | undefined;
  /** For each policy: the number of the store's key that holds its limit; undefined: no key does. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
  /** Reserves permits before a caller asks for them. */
  readonly prefetch?: PrefetchOptions | undefined;
  /** The key, for a limiter of one key; events and counters are shared with the other keys. */
  readonly key?: string;
  readonly outageStats?: OutageStats;
  /** For a limiter of one key: counts the processes for all keys together. */
  readonly processes?: ProcessCounter | undefined;
  /** For a limiter of one key: numbers the batches of all limiters of that key. */
  readonly batchCounter?: BatchCounter;
}

/** Rejects strict policies: a store grants instants in advance and cannot move them for a late caller. */
export function refuseStrict({ names, list }: PolicyList): void {
  const strict = list.findIndex((policy) => policy.strict);
  if (strict < 0) return;
  throw new TypeError(
    `policy "${names[strict]}" must not be strict on a store, which grants instants in advance and ` +
      "cannot move them when a caller starts late; leave out strict, or use Limiter.create, which is in this process",
  );
}
