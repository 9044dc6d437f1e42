/**
 * `smooth-limiter/redis`: limiters with their state in Redis, one for all processes that use the same
 * name.
 */
import { reportUseless } from "../algorithms/never-binds.ts";
import type { LimiterClass, RemoteLimiter } from "../api/limiter-api.ts";
import { CREATE, checkCreated, checkOptions } from "../ground/check.ts";
import { smoothArguments } from "../local/rate-limiter.ts";
import {
  KeyedRemoteLimiter,
  type KeyedVerbs,
  type RemoteArguments,
} from "../remote/keyed-remote-limiter.ts";
import { type RateVerbs, RemoteRateLimiter } from "../remote/remote-rate-limiter.ts";
import { listPolicies, type NamesOf, type Policies } from "../stores/policies.ts";
import type { RedisClient } from "../stores/redis/client.ts";
import { luaTwins, smooth } from "../stores/redis/lua.gen.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import {
  open,
  REDIS_OPTIONS,
  type RedisPoliciesOptions,
  type RedisRateLimiterOptions,
} from "./options.ts";

export type { RemoteLimiter } from "../api/limiter-api.ts";
export type { RemoteStats as RedisStats, StoreState } from "../api/outage-stats.ts";
export type {
  ConcurrencyStatus,
  RemoteLease as RedisLease,
} from "../concurrency/leased/store-lease.ts";
export { LeaseLostError, LimiterClosedError, StoreUnavailableError } from "../ground/errors.ts";
export type { PrefetchOptions } from "../remote/remote-options.ts";
export type { RateSetting } from "../remote/remote-rate-limiter.ts";
export type {
  BunRedisLike,
  IoredisLike,
  NodeRedisLike,
  RedisClient,
  Script,
  ScriptRunner,
  UpstashLike,
} from "../stores/redis/client.ts";
export type {
  IoredisSubscriber,
  NodeRedisSubscriber,
  RedisSubscriber,
} from "../stores/redis/subscriber.ts";
export { RedisConcurrencyLimiter, type RedisConcurrencyOptions } from "./concurrency.ts";
export type {
  RedisLimiterOptions,
  RedisPoliciesOptions,
  RedisRateLimiterOptions,
} from "./options.ts";
export {
  readStored,
  readStoredLeases,
  readStoredParts,
  type StoredLease,
  type StoredLeases,
  type StoredLimiter,
  type StoredPart,
  type StoredParts,
} from "./stored.ts";

/** A limiter on Redis under any policies. */
export interface RedisLimiter<Name extends string = string>
  extends RemoteLimiter<Name>,
    KeyedVerbs<Name> {}

interface RedisLimiterClass extends LimiterClass<RedisLimiter> {
  /**
   * Creates a limiter on Redis: all code that uses the same name shares it, on any number of machines.
   *
   * @param redis a client of ioredis, iovalkey or node-redis (single or Cluster), of `@upstash/redis` or
   *   `Bun.RedisClient`; it is never closed. Or anything with `runScript`
   * @param name of the limiter: any text but an empty one
   * @param policies a policy, or several by name: all grant a request, or none is charged
   * @param options see `RedisPoliciesOptions`
   * @returns the limiter; it sends nothing to Redis before the first call
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = RedisLimiter.create(redis, "github", smoothBursty({ permitsPerSecond: 5 }));
   * await limiter.acquire();
   */
  create<P extends Policies>(
    redis: RedisClient,
    name: string,
    policies: P,
    options?: RedisPoliciesOptions,
  ): RedisLimiter<NamesOf<P>>;
}

export const RedisLimiter = class RedisLimiter extends KeyedRemoteLimiter {
  static create(
    redis: RedisClient,
    name: string,
    policies: Policies,
    options: RedisPoliciesOptions = {},
  ) {
    checkOptions("options", options, [...REDIS_OPTIONS, "limitKey"]);
    const listed = listPolicies(policies);
    reportUseless(listed.names, listed.list);
    const twins = listed.list.map(({ algorithm }) => luaTwins[algorithm.name] as LuaTwin);
    const opened = open(redis, name, listed, twins, options);
    return new RedisLimiter(CREATE, ...opened);
  }

  private constructor(made: typeof CREATE, ...opened: RemoteArguments) {
    checkCreated("RedisLimiter", made);
    super(...opened);
  }
} as unknown as RedisLimiterClass;

/** Guava's RateLimiter on Redis. */
export interface RedisRateLimiter extends RemoteLimiter<"default">, RateVerbs {}

interface RedisRateLimiterClass extends LimiterClass<RedisRateLimiter> {
  /**
   * Creates a `RateLimiter` on Redis: all code that uses the same name shares it, however many
   * processes and machines.
   *
   * @param redis a client of ioredis, iovalkey or node-redis (single or Cluster), of `@upstash/redis` or
   *   `Bun.RedisClient`; it is never closed. Or anything with `runScript`
   * @param name of the limiter: any text but an empty one
   * @param permitsPerSecond the pace; above 0, `Infinity` for no limit
   * @param warmup the warm-up in ms (0 or absent: none), or options
   * @returns the limiter; it sends nothing to Redis before the first call, which creates the limiter's
   *   state
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = RedisRateLimiter.create(new Redis(), "github", 5);
   * await limiter.acquire();
   */
  create(
    redis: RedisClient,
    name: string,
    permitsPerSecond: number,
    warmup?: number | RedisRateLimiterOptions,
  ): RedisRateLimiter;
}

export const RedisRateLimiter = class RedisRateLimiter extends RemoteRateLimiter {
  static create(
    redis: RedisClient,
    name: string,
    permitsPerSecond: number,
    warmup: number | RedisRateLimiterOptions = 0,
    ...unit: unknown[]
  ) {
    const known = [...REDIS_OPTIONS, "limitKey"];
    const { policies, options } = smoothArguments(permitsPerSecond, warmup, unit, known);
    const opened = open(redis, name, policies, [smooth], options);
    return new RedisRateLimiter(CREATE, ...opened);
  }

  private constructor(made: typeof CREATE, ...opened: RemoteArguments) {
    checkCreated("RedisRateLimiter", made);
    super(...opened);
  }
} as unknown as RedisRateLimiterClass;
