/**
 * `smooth-limiter/redis`: limiters with their state in Redis, one for all processes that use the same
 * name.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { reportUseless } from "../algorithms/never-binds.ts";
import {
  aboveZero,
  atLeastZeroOrInfinity,
  type Bound,
  CREATE,
  checkCreated,
  checkNumber,
  checkOptions,
  checkText,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { RemoteConcurrency } from "../limiter/leases/remote-concurrency.ts";
import type { LimiterClass, RemoteLimiter } from "../limiter/limiter-api.ts";
import { SMOOTH_OPTIONS, smoothPolicy } from "../limiter/rate-limiter.ts";
import { KeyedRemoteLimiter, type Opened } from "../limiter/remote/keyed-remote-limiter.ts";
import { type RateSetting, RemoteRateLimiter } from "../limiter/remote/remote-rate-limiter.ts";
import { checkName, checkUnavailable } from "../limiter/remote/shared-options.ts";
import { listPolicies, type NamesOf, type Policies } from "../stores/policies.ts";
import { adapterOf, type RedisClient } from "../stores/redis/client.ts";
import { breakersOf } from "../stores/redis/connection.ts";
import { luaTwins, smooth } from "../stores/redis/lua.gen.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import { RedisLeaseStore } from "../stores/redis/redis-lease-store.ts";
import { type RedisSubscriber, subscriptionsOn } from "../stores/redis/subscriber.ts";
import {
  letsIn,
  open,
  REDIS_OPTIONS,
  type RedisPoliciesOptions,
  type RedisRateLimiterOptions,
  tagOf,
} from "./options.ts";

export { LeaseLostError, LimiterClosedError, StoreUnavailableError } from "../ground/errors.ts";
export type { ConcurrencyStatus } from "../limiter/leases/lease-queue.ts";
export type { RemoteLease as RedisLease } from "../limiter/leases/remote-lease.ts";
export type { RemoteLimiter } from "../limiter/limiter-api.ts";
export type { RemoteStats as RedisStats, StoreState } from "../limiter/remote/outage-stats.ts";
export type { RateSetting } from "../limiter/remote/remote-rate-limiter.ts";
export type { PrefetchOptions } from "../limiter/remote/shared-options.ts";
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
export type {
  RedisLimiterOptions,
  RedisPoliciesOptions,
  RedisRateLimiterOptions,
} from "./options.ts";
export {
  readStored,
  readStoredLeases,
  type StoredLease,
  type StoredLeases,
  type StoredLimiter,
} from "./stored.ts";

/** A limiter on Redis under any policies. */
export interface RedisLimiter<Name extends string = string> extends RemoteLimiter<Name> {
  /**
   * Returns the limiter of a key, under the same policies: one for each user, address or URL. Every call
   * with the same key returns the same object, as long as it is referenced or a caller waits in it.
   *
   * @param key any well-formed text
   * @throws RangeError or TypeError that names the argument, its bound and what it got
   * @example
   * if (!(await limiter.for(user).tryAcquire())) return tooManyRequests();
   */
  for(key: string): RemoteLimiter<Name>;
  /** The policies in force, by the last reply; before the first reply, the declared ones. */
  readonly policies: readonly Policy[];
}

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
   * @throws RangeError or TypeError that names the argument, its bound and the value it got
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
    return new RedisLimiter(CREATE, ...open(redis, name, listed, twins, options));
  }

  private constructor(made: typeof CREATE, ...opened: Opened) {
    checkCreated("RedisLimiter", made);
    super(...opened);
  }
} as unknown as RedisLimiterClass;

/** Guava's RateLimiter on Redis. */
export interface RedisRateLimiter extends RemoteLimiter<"default"> {
  /**
   * Returns the permits per second in force, by the last reply; before the first reply, the declared
   * number. 0 if operators have closed the limiter with `limitKey`.
   */
  getRate(): number;
  /**
   * Changes the rate from now on for every limiter that was created with this name and the same numbers,
   * until the next `setRate` or `resetRate`. Code that declares other numbers does not follow it.
   *
   * @param permitsPerSecond above 0, `Infinity` for no limit
   * @returns which code follows the new rate, as far as the store knows: see `RateSetting`
   * @throws (as a rejection) RangeError or TypeError; StoreUnavailableError
   * @example
   * const { reaches, rateInUse } = await limiter.setRate(10);
   * if (reaches === "only-this-declaration") console.warn(`others declare other numbers: ${rateInUse}`);
   */
  setRate(permitsPerSecond: number): Promise<RateSetting>;
  /** Restores the declared rate. */
  resetRate(): Promise<void>;
}

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
   * @throws RangeError or TypeError that names the argument, its bound and the value it got
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
  ) {
    const options = typeof warmup === "number" ? { warmupMs: warmup } : warmup;
    checkOptions("options", options, [...SMOOTH_OPTIONS, ...REDIS_OPTIONS, "limitKey"]);
    const policies = listPolicies(smoothPolicy(permitsPerSecond, options));
    return new RedisRateLimiter(CREATE, ...open(redis, name, policies, [smooth], options));
  }

  private constructor(made: typeof CREATE, ...opened: Opened) {
    checkCreated("RedisRateLimiter", made);
    super(...opened);
  }
} as unknown as RedisRateLimiterClass;

export interface RedisConcurrencyOptions {
  /**
   * How long the leases of a process that has died, or cannot reach Redis, stay taken, ms. Above 0,
   * at most 2^31 - 1, default 30 000. Leases are renewed every third of it.
   */
  readonly leaseMs?: number | undefined;
  /**
   * How many callers may wait in this process before a further `acquire` rejects with a QueueFullError.
   * 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * How long to wait for a reply of Redis, ms, above 0, default 1000. After that the call rejects with a
   * StoreUnavailableError, and a lease that Redis grants late is given back.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * What calls do when Redis is unavailable: `"throw"` a StoreUnavailableError (the default); `"wait"`
   * until Redis is back or their own time-out or signal ends the wait; get a lease while this process
   * holds fewer than its share of the limit, else wait for one in this process (`"local"`); or get one
   * in any case (`"allow"`). With the last two, leases stay valid for the whole outage and are registered
   * in Redis afterwards. What each costs: docs/concurrency.md.
   */
  readonly whenUnavailable?: "throw" | "wait" | "local" | "allow" | undefined;
  /**
   * How many processes share the limit, 1 or more; a function that returns how many there are now;
   * or `"auto"`: they are counted through Redis while it is up. `"local"` requires it: the share is the
   * limit divided by it, rounded down, but at least 1. A function is called at once, and again every
   * second of an outage; if it then returns no number of 1 or more, the previous number is kept. With
   * `"auto"` the last count is kept: docs/availability.md.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /** The prefix of the keys and channels. Default "c:". */
  readonly prefix?: string | undefined;
  /** As for other limiters on Redis; on Cluster it determines the node with the state. Default: none. */
  readonly hashTag?: string | undefined;
  /**
   * A connected client for subscriptions, shared and never closed. Default: `redis.duplicate()` (for
   * `@upstash/redis` a stream over HTTP), opened when a caller first waits and closed a second after the
   * last one.
   */
  readonly subscriber?: RedisSubscriber | undefined;
}

const CONCURRENCY_OPTIONS = [
  "leaseMs",
  "maxWaiting",
  "timeoutMs",
  "whenUnavailable",
  "instances",
  "prefix",
  "hashTag",
  "subscriber",
] as const;

const leaseTime: Bound = {
  words: "a number of ms above 0, at most 2147483647",
  holds: (value) => value > 0 && value <= LONGEST_TIMEOUT_MS,
};

/** Limits how many calls run at once, in all processes together. */
export class RedisConcurrencyLimiter extends RemoteConcurrency {
  /**
   * Creates a limit on how many calls run at once: all code that uses the same name shares it, however
   * many processes and machines.
   *
   * @param redis a client of ioredis, iovalkey or node-redis (single or Cluster), of `@upstash/redis` or
   *   `Bun.RedisClient`; it is never closed. Or anything with `runScript`, and a `subscriber` with it
   * @param name of the limiter: any text but an empty one
   * @param limit how many calls may run at once, a whole number, 1 or more
   * @param options see `RedisConcurrencyOptions`
   * @returns the limiter; it sends nothing to Redis before the first call
   * @throws RangeError or TypeError that names the argument, its bound and the value it got
   * @example
   * const limiter = RedisConcurrencyLimiter.create(redis, "reports", 10);
   * await limiter.run(({ signal }) => makeReport(signal));
   */
  static create(
    redis: RedisClient,
    name: string,
    limit: number,
    options: RedisConcurrencyOptions = {},
  ): RedisConcurrencyLimiter {
    checkOptions("options", options, CONCURRENCY_OPTIONS);
    const { leaseMs = 30_000, maxWaiting = Infinity, timeoutMs = 1000, prefix = "c:" } = options;
    const { runner, subscribe } = adapterOf(redis);
    checkText("prefix", prefix);
    const messages =
      options.subscriber === undefined ? subscribe : subscriptionsOn(options.subscriber);
    if (messages === undefined) {
      throw new TypeError(
        "redis cannot be duplicated, or not subscribe: give a client that can, as options.subscriber",
      );
    }
    const unavailable = checkUnavailable(options);
    const breakerOf = breakersOf(redis, letsIn(unavailable));
    const store = new RedisLeaseStore(runner, messages, prefix + tagOf(options.hashTag), breakerOf);
    checkNumber("limit", limit, wholeAtLeastOne);
    return new RedisConcurrencyLimiter(CREATE, store, checkName(name), limit, {
      name,
      leaseMs: checkNumber("leaseMs", leaseMs, leaseTime),
      maxWaiting: checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity),
      timeoutMs: checkNumber("timeoutMs", timeoutMs, aboveZero),
      ...unavailable,
    });
  }

  private constructor(
    made: typeof CREATE,
    ...parts: ConstructorParameters<typeof RemoteConcurrency>
  ) {
    checkCreated("RedisConcurrencyLimiter", made);
    super(...parts);
  }
}
