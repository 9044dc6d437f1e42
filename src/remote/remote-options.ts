/** The options of limiters on every store, their checks, and what all parts of one limiter share. */

import type { CallOrder } from "../api/options.ts";
import type { OutageStats } from "../api/outage-stats.ts";
import type { CallStats } from "../api/stats.ts";
import {
  aboveZero,
  atLeastOne,
  atLeastZeroOrInfinity,
  type Bound,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkText,
  show,
} from "../ground/check.ts";
import { type Clock, checkClock, systemClock } from "../ground/clock.ts";
import type { CallerRecord } from "../stores/batch-id.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { ProcessCounter } from "../stores/process-counter.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { ActivePolicies } from "./active-policies.ts";
import type { GrantQueue } from "./grant-queue.ts";
import type { RefillOptions as Prefetch } from "./refill-size.ts";

export interface SharedOptions {
  /**
   * How many permits callers may wait for in this process. An `acquire` beyond that fails with a
   * QueueFullError. 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * How long the store may take for a reply, ms, above 0, default 1000. After that the call fails with a
   * StoreUnavailableError, and permits granted by a late reply are given back.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * What calls do when the store cannot be reached. `"throw"`, the default: they fail with a
   * StoreUnavailableError. `"wait"`: they wait until the store is back or their own time-out or signal
   * ends the wait. `"local"`: a limiter in this process answers, under the same policies with this
   * process' fraction of the limit; it starts from the last known state of the store, and the permits it
   * grants are charged to the store afterwards. `"allow"`: every call is granted. For the costs of each
   * see docs/availability.md.
   */
  readonly whenUnavailable?: "throw" | "wait" | "local" | "allow" | undefined;
  /**
   * How many processes share the limit: a number, 1 or more; a function that returns the present number;
   * or `"auto"`: the processes are counted through the store while it is up (Redis only). Required by
   * `"local"`: a process' fraction is the limit divided by this number. A function is called once at
   * creation, and every second of an outage; if it then throws or returns an invalid number, the
   * previous number stays in use. With `"auto"` the last count stays in use: docs/availability.md.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /** The prefix of all keys. Default "l:". */
  readonly prefix?: string | undefined;
  /**
   * The source of time. Default: the store's own clock. A clock that you pass must show the same time in
   * all processes, 0 or more.
   */
  readonly clock?: Clock | undefined;
  /**
   * The order of the callers of this process: `fairShares()`; default: first in, first out. The store serves the
   * processes in turn.
   */
  readonly order?: CallOrder | undefined;
  /** Reserves permits before callers ask for them, so that most calls need no round trip. Default: off. */
  readonly prefetch?: PrefetchOptions | "auto" | undefined;
}

/** How much each process reserves ahead; with `.for(key)`, for each key. */
export interface PrefetchOptions {
  /**
   * The most permits that are unused in this process or under way; they are lost if the process dies, and
   * a burst of this process may be larger by as many. A finite number above 0, or `"auto"`, the default:
   * about as many as are used in 100 ms, and never more than the policies let through in 100 ms
   * (limit × 100 / windowMs, of several policies the least; at least 1).
   */
  readonly permits?: number | "auto" | undefined;
  /**
   * Permits that have been usable for this long return to the store. It also bounds how far ahead
   * permits are reserved. ms, a finite number above 0, default 1000.
   */
  readonly maxAgeMs?: number | undefined;
}

/** The key that holds the limit; for several policies, an object with a key for each policy's name. */
export type LimitKeys = string | Readonly<Record<string, string>>;

export const SHARED_OPTIONS = [
  "maxWaiting",
  "timeoutMs",
  "whenUnavailable",
  "instances",
  "prefix",
  "clock",
  "order",
  "prefetch",
] as const;

/** A function that returns the present number, 1 or more; or `"auto"`: the store counts the processes. */
export type Instances = (() => number) | "auto";

/** The checked options of a limiter, and what it shares with others. */
export interface RemoteOptions extends Pick<SharedOptions, "order"> {
  readonly name: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  readonly instances?: Instances;
  readonly clock: Clock;
  /** Whether the store uses the limiter's clock, too: every batch then carries the time. */
  readonly sendsTime: boolean;
  /** For each policy: the number of the store's key that holds its limit; undefined: no key does. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
  readonly prefetch?: Prefetch | undefined;
  /** The key, for a limiter of one key; events and counters are shared with the other keys. */
  readonly key?: string;
  readonly outageStats?: OutageStats;
  /** For a limiter of one key: number the batches, those of other keys too. */
  readonly callers?: CallerRecord[];
}

/** What all parts of one limiter share. */
export interface Parts extends RemoteOptions {
  /** The limiter of a key lives as long as one of its calls is under way: two at once would number the same batches. */
  readonly owner: object;
  readonly declared: PolicyList;
  /** The policies' names and bounds; the state itself is in the store. */
  readonly policyState: PolicyState;
  readonly queue: GrantQueue;
  readonly activePolicies: ActivePolicies;
  readonly callStats: CallStats;
  readonly stats: OutageStats;
}

/**
 * Checks the options of a limiter.
 *
 * @returns its own key, which begins with `prefix`; the keys that hold its limits; and the other options
 */
export function checkShared(
  name: string,
  policies: PolicyList,
  options: SharedOptions & { readonly limitKey?: LimitKeys | undefined },
) {
  const { maxWaiting = Infinity, timeoutMs = 1000, prefix = "l:", clock } = options;
  const unavailable = checkUnavailable(options);
  const limits = checkLimitKeys(options.limitKey, policies.names);
  return {
    prefix: checkKey("prefix", prefix),
    key: withoutBrackets(checkName(name)),
    limitKeys: limits.keys,
    options: {
      name,
      maxWaiting: checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity),
      timeoutMs: checkNumber("timeoutMs", timeoutMs, aboveZero),
      ...unavailable,
      clock: clock === undefined ? systemClock : checkClock(clock),
      sendsTime: clock !== undefined,
      limitsKeptAt: limits.keptAt,
      order: options.order,
      prefetch: checkPrefetch(options.prefetch),
    },
  };
}

function checkPrefetch(prefetch: SharedOptions["prefetch"]): Prefetch | undefined {
  if (prefetch === undefined) return undefined;
  if (prefetch !== "auto" && Object(prefetch) !== prefetch) {
    throw new TypeError(`prefetch must be "auto" or { permits, maxAgeMs }, got ${show(prefetch)}`);
  }
  const options = prefetch === "auto" ? {} : prefetch;
  checkOptions("prefetch", options, ["permits", "maxAgeMs"]);
  const { permits = "auto", maxAgeMs = 1000 } = options;
  return {
    permits: permits === "auto" ? permits : checkNumber("prefetch.permits", permits, permitsOrAuto),
    maxAgeMs: checkNumber("prefetch.maxAgeMs", maxAgeMs, aboveZero),
  };
}

/** Checks what calls do when the store cannot be reached, and how many processes share the limit then. */
export function checkUnavailable({
  whenUnavailable = "throw",
  instances,
}: Pick<SharedOptions, "whenUnavailable" | "instances">) {
  checkOneOf("whenUnavailable", whenUnavailable, ["throw", "wait", "local", "allow"]);
  return { whenUnavailable, instances: countInstances(instances, whenUnavailable) };
}

const howMany: Bound = {
  ...atLeastOne,
  words: `${atLeastOne.words}, a function that returns one, or "auto"`,
};
const permitsOrAuto: Bound = { ...aboveZero, words: `${aboveZero.words}, or "auto"` };

/** Returns a function for the present number of processes, or `"auto"`. */
function countInstances(instances: SharedOptions["instances"], whenUnavailable: string): Instances {
  if (instances === "auto") return instances;
  if (instances === undefined && whenUnavailable === "local") {
    throw new TypeError(
      'whenUnavailable "local" needs instances: how many processes share the limit, or "auto"',
    );
  }
  if (typeof instances !== "function") {
    const fixed = checkNumber("instances", instances ?? 1, howMany);
    return () => fixed;
  }
  let last = checkNumber("instances()", instances(), atLeastOne);
  return () => {
    try {
      last = checkNumber("instances()", instances(), atLeastOne);
    } catch {
      // a call should not fail in an outage because of a wrong count: the last one stays in use
    }
    return last;
  };
}

/**
 * Returns the counter of the processes; undefined where no count is needed.
 *
 * @throws TypeError if a count is needed and the store does not support it
 */
export function counterOf(
  { instances, whenUnavailable }: { instances?: Instances; whenUnavailable: string },
  store: { processes?(key: string): ProcessCounter },
  key: string,
): ProcessCounter | undefined {
  if (instances !== "auto") return undefined;
  if (store.processes === undefined) {
    throw new TypeError(
      'instances "auto" needs a store that counts processes, which this one does not: ' +
        "give a number of 1 or more, or a function that returns one",
    );
  }
  return whenUnavailable === "local" ? store.processes(key) : undefined;
}

/** @param counter counts the processes, with `"auto"` */
export function instancesOf(
  instances: Instances | undefined,
  counter: ProcessCounter | undefined,
): () => number {
  return typeof instances === "function" ? instances : () => counter?.count ?? 1;
}

/** Returns the keys that hold limits, and for each policy the number of its key, counted from 1. */
function checkLimitKeys(
  limitKey: LimitKeys | undefined,
  names: readonly string[],
): { keys: readonly string[]; keptAt: readonly (number | undefined)[] } {
  if (limitKey === undefined) return { keys: [], keptAt: [] };
  const byName =
    typeof limitKey === "object" && limitKey !== null
      ? limitKey
      : Object.fromEntries(names.map((name) => [name, checkKey("limitKey", limitKey)]));
  checkOptions("limitKey", byName, names);
  const keys: string[] = [];
  const keptAt = names.map((name) => {
    const key = Object.entries(byName).find(([each]) => each === name)?.[1];
    return key === undefined ? undefined : keys.push(checkKey(`limitKey.${name}`, key));
  });
  return { keys, keptAt };
}

/** Escapes brackets, which separate the limiter's name from the key of `.for(key)`. */
function withoutBrackets(name: string): string {
  return name.replace(/[%[]/g, encodeURIComponent);
}

/**
 * Checks a name or key. Lone surrogates are rejected: UTF-8 encodes all of them as the same three bytes,
 * so that two different names would share one key.
 */
export function checkKey(argument: string, value: unknown): string {
  const text = checkText(argument, value);
  if (/\p{Surrogate}/u.test(text)) throw new RangeError(`${argument} must be well-formed Unicode`);
  return text;
}

export function checkName(name: unknown): string {
  if (name === "") throw new RangeError('name must not be empty, got ""');
  return checkKey("name", name);
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
