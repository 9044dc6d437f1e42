/** The options that only limiters on Redis have, and the checks of all their options. */
import { failCheck } from "../ground/check.ts";
import type { SmoothOptions } from "../local/rate-limiter.ts";
import type { RemoteArguments } from "../remote/keyed-remote-limiter.ts";
import {
  checkKey,
  checkShared,
  type LimitKeys,
  SHARED_OPTIONS,
  type SharedOptions,
} from "../remote/remote-options.ts";
import type { PolicyList } from "../stores/policies.ts";
import { adapterOf, type RedisClient } from "../stores/redis/client.ts";
import { breakersOf } from "../stores/redis/connection.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import { RedisStore } from "../stores/redis/redis-store.ts";

/** The options of all rate limiters on Redis. */
export interface RedisLimiterOptions extends SharedOptions {
  /**
   * A text that is put in braces before the key. On Cluster, keys with the same hash tag are in one
   * slot, so limiters with the same tag can be combined (`allOf`) in one atomic step. The cost: the
   * state of all of them is on one node. Must not be empty or contain braces. Default: none.
   */
  readonly hashTag?: string | undefined;
}

/** The options of `RedisRateLimiter.create`. */
export interface RedisRateLimiterOptions extends SmoothOptions, RedisLimiterOptions {
  /**
   * A key in which operators keep the permits per second: see `limitKey` of `RedisLimiter.create`.
   */
  readonly limitKey?: string | undefined;
}

export const REDIS_OPTIONS = [...SHARED_OPTIONS, "hashTag"] as const;

/** The options of `RedisLimiter.create`. */
export interface RedisPoliciesOptions extends RedisLimiterOptions {
  /**
   * A key in which operators keep the limit, or one for each policy by name. The number in it applies
   * from the next call on; 0 rejects all requests. If the key is absent, the policy's own limit applies; it
   * also applies if the value is negative or not a number, which `diagnostics.limitIgnored` reports. (The
   * limit is the policy's `limit`, `capacity` or `permitsPerSecond`; the burst of a `gcra` follows it unless it
   * was given.) On Cluster the key must be in the limiter's slot.
   */
  readonly limitKey?: LimitKeys | undefined;
}

/** Checks the arguments and returns the parts of a limiter on Redis. */
export function open(
  redis: RedisClient,
  name: string,
  policies: PolicyList,
  twins: readonly LuaTwin[],
  options: RedisPoliciesOptions,
): RemoteArguments {
  const shared = checkShared(name, policies, options);
  const { runner } = adapterOf(redis);
  const breakerOf = breakersOf(redis, letsIn(shared.options));
  const prefix = shared.prefix + tagOf(options.hashTag);
  const { key, limitKeys } = shared;
  const store = new RedisStore(runner, prefix, twins, limitKeys, breakerOf);
  return [store, key, policies, shared.options];
}

/** Returns the text before the names of all keys with this hash tag. */
export function tagOf(hashTag: unknown): string {
  if (hashTag === undefined) return "";
  const tag = checkKey("hashTag", hashTag);
  if (tag !== "" && !/[{}]/.test(tag)) return `{${tag}}`;
  failCheck("hashTag", "a text without braces and not empty", tag, RangeError);
}

/** Whether the limiter grants requests in an outage: only then it uses the client's connection events. */
export function letsIn({ whenUnavailable }: Pick<RedisLimiterOptions, "whenUnavailable">): boolean {
  return whenUnavailable === "local" || whenUnavailable === "allow";
}
