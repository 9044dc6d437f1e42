/** Limits on how many calls run at once, with their leases in Redis. */

import type { LimiterClass, TryOptions, WaitOptions } from "../api/limiter-api.ts";
import type { RemoteStats, StoreState } from "../api/outage-stats.ts";
import type { RunOptions } from "../api/slots-options.ts";
import type { Counted } from "../api/stats.ts";
import type { SlotLimiter } from "../combine/all-of.ts";
import { RemoteConcurrency } from "../concurrency/leased/remote-concurrency.ts";
import type {
  ConcurrencyStatus,
  RemoteLease as RedisLease,
} from "../concurrency/leased/store-lease.ts";
import {
  aboveZero,
  atLeastZeroOrInfinity,
  type Bound,
  CREATE,
  checkCreated,
  checkNumber,
  checkOptions,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { checkKey, checkName, checkUnavailable } from "../remote/remote-options.ts";
import { adapterOf, type RedisClient } from "../stores/redis/client.ts";
import { breakersOf } from "../stores/redis/connection.ts";
import { RedisLeaseStore } from "../stores/redis/redis-lease-store.ts";
import { type RedisSubscriber, subscriptionsOn } from "../stores/redis/subscriber.ts";
import { letsIn, type RedisLimiterOptions, tagOf } from "./options.ts";

/** The options of `RedisConcurrencyLimiter.create`; slots are the permits of `maxWaiting`. */
export interface RedisConcurrencyOptions
  extends Pick<
    RedisLimiterOptions,
    "maxWaiting" | "order" | "timeoutMs" | "instances" | "hashTag"
  > {
  /**
   * How long the leases of a process that has died, or cannot reach Redis, stay taken, ms. Above 0,
   * at most 2^31 - 1, default 30 000. Leases are renewed every third of it.
   */
  readonly leaseMs?: number | undefined;
  /**
   * What calls do when Redis is unavailable: `"throw"` a StoreUnavailableError (the default); `"wait"`
   * until Redis is back or their own time-out or signal ends the wait; get a lease while this process
   * holds fewer than its fraction of the limit (rounded down, but at least 1), else wait for one in this
   * process (`"local"`); or get one in any case (`"allow"`). With the last two, leases stay valid for the
   * whole outage and are registered in Redis afterwards. What each costs: docs/concurrency.md.
   */
  readonly whenUnavailable?: "throw" | "wait" | "local" | "allow" | undefined;
  /** The prefix of the keys and channels. Default "c:". */
  readonly prefix?: string | undefined;
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
  "order",
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
export interface RedisConcurrencyLimiter extends Counted, SlotLimiter, AsyncDisposable {
  /** How many slots there are, by the last reply; before the first, the declared number. */
  readonly limit: number;
  /** How many slots this process holds; `peek` returns the number for all processes. */
  readonly active: number;
  /** How many callers wait in this process. */
  readonly waiting: number;
  /** Whether the store answered the last request; or `"closed"`. */
  readonly state: StoreState;
  /** The present counters of this process. */
  readonly stats: RemoteStats;
  /**
   * Waits for slots, behind all callers that wait already, in every process. Prefer `run`, which always
   * releases the lease.
   *
   * @param slots how many: a whole number, 1 or more, at most the limit. Default 1. Each takes an entry in Redis
   * @param options.signal ends the wait
   * @param options.share, options.weight, options.priority on a fair limiter: the share it counts for
   * @returns the lease of all of them
   * @throws (rejects) TypeError or RangeError on a bad argument, PermitsExceedCapacityError if there are
   *   fewer slots, QueueFullError, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.acquire();
   * await work(lease.signal);
   */
  acquire(slots?: number, options?: WaitOptions): Promise<RedisLease>;
  /**
   * Returns a lease if as many slots are free, else `undefined`. With `wait` it waits for them, but no longer
   * than that.
   *
   * @param slots as those of `acquire`
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Default: 0
   * @returns the lease; `undefined` when the time is over, or at once if callers wait for `maxWaiting` slots. A
   *   reply that is under way is awaited even when the time is over
   * @throws (rejects) RangeError or TypeError on a bad argument, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.tryAcquire(1, 250);
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(slots?: number, wait?: number | TryOptions): Promise<RedisLease | undefined>;
  /** The same, for one slot. */
  tryAcquire(options: TryOptions): Promise<RedisLease | undefined>;
  /**
   * Runs a function with a lease, and releases the lease when the function returns or throws.
   *
   * @param fn the function; it gets the lease, and should stop when the lease's `signal` is aborted
   * @param options.slots how many it holds: a whole number, 1 or more, at most the limit. Default 1
   * @param options.signal ends the wait for the lease; it does not interrupt `fn` once it runs
   * @returns what `fn` returns
   * @throws (rejects) what `fn` throws; or what `acquire` throws, and then `fn` was not called
   * @example
   * await limiter.run(({ signal }) => fetch(url, { signal }));
   */
  run<T>(fn: (lease: RedisLease) => T | PromiseLike<T>, options?: RunOptions): Promise<T>;
  /**
   * Changes the limit from now on for every limiter that was created with this name and the same limit,
   * in all processes, until the next `setLimit` or `resetLimit`. A higher limit grants leases to waiting
   * callers at once, in order; a lower one interrupts no holder. Code that declares another limit does not
   * follow it.
   *
   * @param limit how many slots: a whole number, 1 or more
   */
  setLimit(limit: number): Promise<void>;
  /** Restores the declared limit. */
  resetLimit(): Promise<void>;
  /**
   * Returns the status for all processes together. During an outage with `whenUnavailable` `"local"` or
   * `"allow"` it returns the status of this process.
   */
  peek(): Promise<ConcurrencyStatus>;
  /**
   * Ends the limiter in this process. Waiting callers are rejected with a LimiterClosedError, and so is
   * every later call. It closes the connection that listens, and ends all timers. Leases that are held
   * are not released, but no longer renewed: each `lease.signal` is aborted, and the lease ends when its
   * holder releases it, or after at most `leaseMs`.
   *
   * @returns a promise that resolves when the store has removed the waiting callers' tickets, or these
   *   requests have failed
   */
  close(): Promise<void>;
}

interface RedisConcurrencyLimiterClass extends LimiterClass<RedisConcurrencyLimiter> {
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
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = RedisConcurrencyLimiter.create(redis, "reports", 10);
   * await limiter.run(({ signal }) => makeReport(signal));
   */
  create(
    redis: RedisClient,
    name: string,
    limit: number,
    options?: RedisConcurrencyOptions,
  ): RedisConcurrencyLimiter;
}

export const RedisConcurrencyLimiter = class RedisConcurrencyLimiter extends RemoteConcurrency {
  static create(
    redis: RedisClient,
    name: string,
    limit: number,
    options: RedisConcurrencyOptions = {},
  ) {
    checkOptions("options", options, CONCURRENCY_OPTIONS);
    const { leaseMs = 30_000, maxWaiting = Infinity, timeoutMs = 1000, prefix = "c:" } = options;
    const { runner, subscribe } = adapterOf(redis);
    checkKey("prefix", prefix);
    const messages =
      options.subscriber === undefined ? subscribe : subscriptionsOn(options.subscriber);
    if (messages === undefined) {
      throw new TypeError(
        "redis cannot be duplicated, or cannot subscribe: pass a client that can as options.subscriber",
      );
    }
    const unavailable = checkUnavailable(options);
    const breakerOf = breakersOf(redis, letsIn(unavailable));
    const before = prefix + tagOf(options.hashTag);
    const store = new RedisLeaseStore(runner, messages, before, breakerOf);
    checkNumber("limit", limit, wholeAtLeastOne);
    const checked = {
      name,
      leaseMs: checkNumber("leaseMs", leaseMs, leaseTime),
      maxWaiting: checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity),
      timeoutMs: checkNumber("timeoutMs", timeoutMs, aboveZero),
      ...unavailable,
    };
    return new RedisConcurrencyLimiter(
      CREATE,
      store,
      checkName(name),
      limit,
      checked,
      options.order,
      before + name,
    );
  }

  private constructor(
    made: typeof CREATE,
    ...parts: ConstructorParameters<typeof RemoteConcurrency>
  ) {
    checkCreated("RedisConcurrencyLimiter", made);
    super(...parts);
  }
} as unknown as RedisConcurrencyLimiterClass;
