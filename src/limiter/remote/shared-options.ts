/** The options that limiters have on every store, and what becomes of them. */
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
} from "../../check.ts";
import { type Clock, checkClock, systemClock, toMicros } from "../../clock.ts";
import type { PolicyList } from "../../stores/memory.ts";
import type { Instances } from "./instances.ts";
import type { PrefetchOptions as Prefetch } from "./refill-size.ts";
import type { RemoteOptions } from "./remote-options.ts";

export interface SharedOptions {
  /**
   * How many permits may be waited for in this process before a further `acquire` is refused with a
   * QueueFullError. 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * How long the store may take for an answer, ms, above 0, default 1000. After that the call is a
   * StoreUnavailableError, and what the store grants late is given back.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * What calls do when the store cannot be asked: `"throw"` a StoreUnavailableError (the default);
   * `"wait"` until it is back or their own time-out or signal ends the wait; go by a `"local"` limiter
   * under the same policies with this process' share of the limit, which begins where the store was
   * and is charged to it afterwards; or be let in (`"allow"`). What each costs: docs/availability.md.
   */
  readonly whenUnavailable?: "throw" | "wait" | "local" | "allow" | undefined;
  /**
   * How many processes share the limit, 1 or more; a function that returns how many there are now;
   * or `"auto"`: they are counted through the store while it is up, which only Redis does. `"local"`
   * needs it: a share is the limit divided by it. A function is called at once, and again every
   * second of an outage; if it returns no number of 1 or more then, the one before stays. With
   * `"auto"` the last count stays: docs/availability.md.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /** What the keys begin with. Default "l:". */
  readonly prefix?: string | undefined;
  /**
   * Where the time comes from. Default: the store's own clock. A clock of yours must show the same
   * time in all processes.
   */
  readonly clock?: Clock | undefined;
  /** Reserves permits before callers ask for them, so that most calls need no trip. Default: none. */
  readonly prefetch?: PrefetchOptions | "auto" | undefined;
}

/** How much each process reserves ahead; of `.for(key)` for each key. */
export interface PrefetchOptions {
  /**
   * The most that lies here unused or is on its way: what is lost when the process dies. A finite
   * number above 0, or `"auto"`, the default: what about 100 ms of the present use need.
   */
  readonly permits?: number | "auto" | undefined;
  /**
   * What could have been used for that long and was not goes back; nor is anything reserved further
   * ahead. ms, a finite number above 0, default 1000.
   */
  readonly maxAgeMs?: number | undefined;
}

/** A limiter under several policies may have each limit under a key of its own. */
export type LimitKeys = string | Readonly<Record<string, string>>;

export const SHARED_OPTIONS = [
  "maxWaiting",
  "timeoutMs",
  "whenUnavailable",
  "instances",
  "prefix",
  "clock",
  "prefetch",
] as const;

/** What a limiter is made of, all of it checked. */
export interface CheckedOptions {
  /** What the limiter's own key begins with. */
  readonly prefix: string;
  /** The limiter's own key, without the prefix. */
  readonly key: string;
  /** The keys in which its limits are kept. */
  readonly limitKeys: readonly string[];
  readonly options: RemoteOptions;
}

export function checkShared(
  name: string,
  policies: PolicyList,
  options: SharedOptions & { readonly limitKey?: LimitKeys | undefined },
): CheckedOptions {
  const { maxWaiting = Infinity, timeoutMs = 1000, prefix = "l:", clock } = options;
  const unavailable = checkUnavailable(options);
  const limits = checkLimitKeys(options.limitKey, policies.names);
  return {
    prefix: checkText("prefix", prefix),
    key: withoutBrackets(checkName(name)),
    limitKeys: limits.keys,
    options: {
      name,
      maxWaiting: checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity),
      timeoutMs: checkNumber("timeoutMs", timeoutMs, aboveZero),
      ...unavailable,
      clock: clock === undefined ? systemClock : checkClock(clock),
      epoch: clock && toMicros(clock.epochMs ?? 0),
      limitsKeptAt: limits.keptAt,
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

/** What calls do when the store cannot be asked, and how many processes share the limit then. */
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

/** How many processes share the limit, now. */
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
      // an outage is no time to fail for that
    }
    return last;
  };
}

/** The keys in which limits are kept, and for each policy which of them, counted from 1. */
function checkLimitKeys(
  limitKey: LimitKeys | undefined,
  names: readonly string[],
): { keys: readonly string[]; keptAt: readonly (number | undefined)[] } {
  if (limitKey === undefined) return { keys: [], keptAt: [] };
  const byName =
    typeof limitKey === "object" && limitKey !== null
      ? limitKey
      : Object.fromEntries(names.map((name) => [name, checkText("limitKey", limitKey)]));
  checkOptions("limitKey", byName, names);
  const keys: string[] = [];
  const keptAt = names.map((name) => {
    const key = Object.entries(byName).find(([each]) => each === name)?.[1];
    return key === undefined ? undefined : keys.push(checkText(`limitKey.${name}`, key));
  });
  return { keys, keptAt };
}

/** A bracket in the name of a limiter does not begin the key of another. */
function withoutBrackets(name: string): string {
  return name.replace(/[%[]/g, encodeURIComponent);
}

/**
 * A lone half of a surrogate pair becomes the same three bytes whichever it is: two names would be
 * one.
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
