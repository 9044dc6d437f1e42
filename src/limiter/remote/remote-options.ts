import type { Clock } from "../../clock.ts";
import type { PolicyList } from "../../stores/memory.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { TripCounter } from "../../stores/trip.ts";
import type { Instances } from "./instances.ts";
import type { OutageStats } from "./outage-stats.ts";
import type { PrefetchOptions } from "./refill-size.ts";

export interface RemoteOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail, wait for it, or be let in here: all of them, or as
   * many as this process' share of the limit allows.
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, which `"local"` has to know: 1 or more. */
  readonly instances?: Instances;
  readonly clock: Clock;
  /**
   * The clock is the store's too, and the time travels with every batch: this, microseconds, added
   * to the clock's is Unix time. Absent: the store goes by its own clock.
   */
  readonly epoch: number | undefined;
  /** For a policy whose limit is kept elsewhere: where, among the keys that the store has. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
  /** Permits are reserved before a caller asks. */
  readonly prefetch?: PrefetchOptions | undefined;
  /** Of a limiter for each key: which one; what happens is published and counted with the others. */
  readonly key?: string;
  readonly outageStats?: OutageStats;
  /** Of a limiter for each key: what counts the processes for all keys together. */
  readonly processes?: ProcessCounter | undefined;
  /** Of a limiter for each key: numbers the trips of all of them. */
  readonly trips?: TripCounter;
}

/** A store books instants ahead: it cannot move them when a caller starts late. */
export function refuseStrict({ names, list }: PolicyList): void {
  const strict = list.findIndex((policy) => policy.strict);
  if (strict < 0) return;
  throw new TypeError(
    `policy "${names[strict]}" must not be strict on a store, which books instants ahead and does not ` +
      "know when callers start; leave out strict, or use Limiter.create, which is in this process",
  );
}
