/**
 * `smooth-limiter/store`: limiters with their state in a store of your choice, one for all processes
 * that use the same name. `casStore` makes a store of any backend that can compare and set.
 */
import { reportUseless } from "./algorithms/never-binds.ts";
import type { LimiterClass, RemoteLimiter } from "./api/limiter-api.ts";
import { CREATE, checkCreated, checkOptions, failCheck } from "./ground/check.ts";
import { type SmoothOptions, smoothArguments } from "./local/rate-limiter.ts";
import {
  KeyedRemoteLimiter,
  type KeyedVerbs,
  type RemoteArguments,
} from "./remote/keyed-remote-limiter.ts";
import {
  checkShared,
  type LimitKeys,
  SHARED_OPTIONS,
  type SharedOptions,
} from "./remote/remote-options.ts";
import { type RateVerbs, RemoteRateLimiter } from "./remote/remote-rate-limiter.ts";
import { listPolicies, type NamesOf, type Policies, type PolicyList } from "./stores/policies.ts";
import type { Store } from "./stores/store.ts";

export type { RemoteLimiter } from "./api/limiter-api.ts";
export type { RemoteStats as StoreStats, StoreState } from "./api/outage-stats.ts";
export { LimiterClosedError, StoreUnavailableError } from "./ground/errors.ts";
export type { PrefetchOptions } from "./remote/remote-options.ts";
export type { RateSetting } from "./remote/remote-rate-limiter.ts";
export type { CasBackend } from "./stores/cas-backend.ts";
export { casStore } from "./stores/cas-store.ts";
export type { Store } from "./stores/store.ts";

/** The options of `StoreLimiter.create`. */
export interface StoreLimiterOptions extends SharedOptions {
  /**
   * A key in which operators keep the limit, or one for each policy by name: a number as text. It
   * applies from the next call on; 0 rejects all requests. If the key is absent, the policy's own limit
   * applies; it also applies if the value is negative or not a number, which `diagnostics.limitIgnored`
   * reports. (The limit is the policy's `limit`, `capacity` or `permitsPerSecond`.) Each such key costs one more `get`
   * for each round trip. Default: none.
   */
  readonly limitKey?: LimitKeys | undefined;
}

/** The options of `StoreRateLimiter.create`. */
export interface StoreRateLimiterOptions extends SmoothOptions, SharedOptions {
  /** A key in which operators keep the permits per second: see `StoreLimiterOptions`. */
  readonly limitKey?: string | undefined;
}

const STORE_OPTIONS = [...SHARED_OPTIONS, "limitKey"] as const;

/** A limiter on a store under any policies. */
export interface StoreLimiter<Name extends string = string>
  extends RemoteLimiter<Name>,
    KeyedVerbs<Name> {}

interface StoreLimiterClass extends LimiterClass<StoreLimiter> {
  /**
   * Creates a limiter on a store: one for all processes that use the same name on it.
   *
   * @param store what `casStore`, `postgresStore` or `memoryStore` returns; it is never closed
   * @param name of the limiter: any text but an empty one
   * @param policies a policy, or several by name: all grant a request, or none is charged
   * @param options see `StoreLimiterOptions`
   * @returns the limiter; it sends nothing to the store before the first call
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = StoreLimiter.create(store, "api", fixedWindow({ limit: 100, windowMs: 60_000 }));
   * if (!(await limiter.for(user).tryAcquire())) return tooManyRequests();
   */
  create<P extends Policies>(
    store: Store,
    name: string,
    policies: P,
    options?: StoreLimiterOptions,
  ): StoreLimiter<NamesOf<P>>;
}

export const StoreLimiter = class StoreLimiter extends KeyedRemoteLimiter {
  static create(store: Store, name: string, policies: Policies, options: StoreLimiterOptions = {}) {
    checkOptions("options", options, STORE_OPTIONS);
    const listed = listPolicies(policies);
    reportUseless(listed.names, listed.list);
    const opened = open(store, name, listed, options);
    return new StoreLimiter(CREATE, ...opened);
  }

  private constructor(made: typeof CREATE, ...opened: RemoteArguments) {
    checkCreated("StoreLimiter", made);
    super(...opened);
  }
} as unknown as StoreLimiterClass;

/** Guava's RateLimiter on a store. */
export interface StoreRateLimiter extends RemoteLimiter<"default">, RateVerbs {}

interface StoreRateLimiterClass extends LimiterClass<StoreRateLimiter> {
  /**
   * Creates a rate limiter on a store: like `RateLimiter.create`, but one for all processes that use the
   * same name on it.
   *
   * @param store what `casStore`, `postgresStore` or `memoryStore` returns; it is never closed
   * @param name of the limiter: any text but an empty one
   * @param permitsPerSecond the pace; above 0, `Infinity` for no limit
   * @param warmup the warm-up in ms (0 or absent: none), or options
   * @returns the limiter; it sends nothing to the store before the first call, which creates the
   *   limiter's state
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const limiter = StoreRateLimiter.create(casStore(backend), "github", 5);
   * await limiter.acquire();
   */
  create(
    store: Store,
    name: string,
    permitsPerSecond: number,
    warmup?: number | StoreRateLimiterOptions,
  ): StoreRateLimiter;
}

export const StoreRateLimiter = class StoreRateLimiter extends RemoteRateLimiter {
  static create(
    store: Store,
    name: string,
    permitsPerSecond: number,
    warmup: number | StoreRateLimiterOptions = 0,
    ...unit: unknown[]
  ) {
    const known = STORE_OPTIONS;
    const { policies, options } = smoothArguments(permitsPerSecond, warmup, unit, known);
    const opened = open(store, name, policies, options);
    return new StoreRateLimiter(CREATE, ...opened);
  }

  private constructor(made: typeof CREATE, ...opened: RemoteArguments) {
    checkCreated("StoreRateLimiter", made);
    super(...opened);
  }
} as unknown as StoreRateLimiterClass;

/** Checks the arguments and returns the parts of a limiter on a store. */
function open(
  store: Store,
  name: string,
  policies: PolicyList,
  options: StoreLimiterOptions,
): RemoteArguments {
  const shared = checkShared(name, policies, options);
  const { prefix, key, limitKeys } = shared;
  const own = limitKeys.length === 0 ? checkStore(store) : keepingLimits(store, limitKeys);
  return [own, prefix + key, policies, shared.options];
}

function checkStore(store: Store): Store {
  if (typeof (Object(store) as Partial<Store>).run === "function") return store;
  failCheck("store", "made by casStore, postgresStore or memoryStore", store);
}

function keepingLimits(store: Store, limitKeys: readonly string[]): Store {
  const own = checkStore(store).withLimitKeys?.(limitKeys);
  if (own !== undefined) return own;
  throw new TypeError("limitKey needs a store that keeps limits, as casStore and memoryStore do");
}
