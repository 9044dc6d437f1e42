/** The options of limiters on Redis, and what becomes of them. */
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
} from "../check.ts";
import { type Clock, checkClock, systemClock, toMicros } from "../clock.ts";
import type { SmoothOptions } from "../limiter/rate-limiter.ts";
import type { Instances } from "../limiter/remote/instances.ts";
import type { PrefetchOptions as Prefetch } from "../limiter/remote/refill-size.ts";
import type { RemoteLimiter } from "../limiter/remote/remote-limiter.ts";
import type { PolicyList } from "../stores/memory.ts";
import { type RedisClient, scriptRunner } from "../stores/redis/client.ts";
import { breakersOf, keepsOrder } from "../stores/redis/connection.ts";
import { RedisStore } from "../stores/redis/redis-store.ts";

export interface RedisLimiterOptions {
  /**
   * How many permits may be waited for in this process before a further `acquire` is refused with a
   * QueueFullError. 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * How long Redis may take for an answer, ms, above 0, default 1000. After that the call is a
   * StoreUnavailableError, and what Redis grants late is given back.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * What calls do when Redis cannot be asked: `"throw"` a StoreUnavailableError (the default);
   * `"wait"` until it is back or their own time-out or signal ends the wait; go by a `"local"` limiter
   * under the same policies with this process' share of the limit, which begins where Redis was and is
   * charged to it afterwards; or be let in (`"allow"`). What each costs: docs/availability.md.
   */
  readonly whenUnavailable?: "throw" | "wait" | "local" | "allow" | undefined;
  /**
   * How many processes share the limit, 1 or more; a function that returns how many there are now;
   * or `"auto"`: they are counted through Redis while it is up. `"local"` needs it: a share is the
   * limit divided by it. A function is called at once, and again every second of an outage; if it
   * returns no number of 1 or more then, the one before stays. With `"auto"` the last count stays:
   * docs/availability.md.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /** What the keys begin with. Default "l:". */
  readonly prefix?: string | undefined;
  /**
   * A text that is put in braces before the key. On Cluster, keys with the same hash tag lie in one
   * slot, so limiters with the same tag can be combined (`allOf`) in one atomic step. The cost: the
   * state of all of them is on one node. Neither empty nor with braces. Default: none.
   */
  readonly hashTag?: string | undefined;
  /**
   * Where the time comes from. Default: the server's own clock. A clock of yours must show the same
   * time in all processes.
   */
  readonly clock?: Clock | undefined;
  /**
   * Reserves permits before somebody asks for them, so that most calls need no trip. Default: none.
   */
  readonly prefetch?: PrefetchOptions | "auto" | undefined;
}

/** How much each process reserves ahead; of `RedisLimiter.for(key)` for each key. */
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

export interface RedisRateLimiterOptions extends SmoothOptions, RedisLimiterOptions {
  /**
   * A key in which operators keep the permits per second: see `limitKey` of `RedisLimiter.create`.
   */
  readonly limitKey?: string | undefined;
}

export const REDIS_OPTIONS = [
  "maxWaiting",
  "timeoutMs",
  "whenUnavailable",
  "instances",
  "prefix",
  "hashTag",
  "clock",
  "prefetch",
] as const;

export interface RedisPoliciesOptions extends RedisLimiterOptions {
  /**
   * A key in which operators keep the limit, or one for each policy by name. The number in it holds
   * from the next call on; 0 lets nothing through; where the key is absent, or holds a negative
   * number or none, the policy's own limit holds, and `diagnostics.limitIgnored` tells. (The limit
   * is the policy's `limit`, `capacity` or `permitsPerSecond`; the burst of a `gcra` follows it
   * unless it was given.) On Cluster the key must lie in the limiter's slot.
   */
  readonly limitKey?: string | Readonly<Record<string, string>> | undefined;
}

export type Opened = ConstructorParameters<typeof RemoteLimiter>;

/** What a limiter on Redis is made of, all of it checked. */
export function open(
  redis: RedisClient,
  name: string,
  policies: PolicyList,
  options: RedisPoliciesOptions,
): Opened {
  const { maxWaiting = Infinity, timeoutMs = 1000, prefix = "l:", clock } = options;
  const { limitKey, prefetch } = options;
  const unavailable = checkUnavailable(options);
  const algorithms = policies.list.map(({ algorithm }) => algorithm.name);
  const limits = limitKeys(limitKey, policies.names);
  const runner = scriptRunner(redis);
  const breakerOf = breakersOf(redis, letsIn(unavailable));
  const keyPrefix = checkText("prefix", prefix) + tagOf(options.hashTag);
  const isOrdered = keepsOrder(redis);
  const store = new RedisStore(runner, keyPrefix, algorithms, limits.keys, breakerOf, isOrdered);
  return [
    store,
    withoutBrackets(checkName(name)),
    policies,
    {
      name,
      maxWaiting: checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity),
      timeoutMs: checkNumber("timeoutMs", timeoutMs, aboveZero),
      ...unavailable,
      clock: clock === undefined ? systemClock : checkClock(clock),
      epoch: clock && toMicros(clock.epochMs ?? 0),
      limitsKeptAt: limits.keptAt,
      prefetch: checkPrefetch(prefetch),
    },
  ];
}

/** What stands before the names of all keys with this tag. */
export function tagOf(hashTag: unknown): string {
  if (hashTag === undefined) return "";
  const tag = checkText("hashTag", hashTag);
  if (tag !== "" && !/[{}]/.test(tag)) return `{${tag}}`;
  throw new RangeError(`hashTag must be a text without braces and not empty, got ${show(tag)}`);
}

function checkPrefetch(prefetch: RedisLimiterOptions["prefetch"]): Prefetch | undefined {
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

/** What calls do when Redis cannot be asked, and how many share the limit then. */
export function checkUnavailable({
  whenUnavailable = "throw",
  instances,
}: Pick<RedisLimiterOptions, "whenUnavailable" | "instances">) {
  checkOneOf("whenUnavailable", whenUnavailable, ["throw", "wait", "local", "allow"]);
  return { whenUnavailable, instances: countInstances(instances, whenUnavailable) };
}

/** Only they have a use for what the client says of its connection. */
export function letsIn({ whenUnavailable }: ReturnType<typeof checkUnavailable>): boolean {
  return whenUnavailable === "local" || whenUnavailable === "allow";
}

const howMany: Bound = {
  ...atLeastOne,
  words: `${atLeastOne.words}, a function that returns one, or "auto"`,
};
const permitsOrAuto: Bound = { ...aboveZero, words: `${aboveZero.words}, or "auto"` };

/** How many share the limit, now. */
function countInstances(
  instances: RedisLimiterOptions["instances"],
  whenUnavailable: string,
): Instances {
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
function limitKeys(
  limitKey: RedisPoliciesOptions["limitKey"],
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
