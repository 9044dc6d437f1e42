/** The options of a limit in one call, and how the results of their functions are read. */
import type { Clock, Decision, Limiter, Policy } from "smooth-limiter";
import { CLIENT_OPTIONS, type ClientOptions } from "../actors/address.ts";
import { checkValue } from "../actors/key.ts";
import { COUNTS } from "../answers/counted.ts";
import {
  aboveZero,
  anything,
  atLeastZero,
  type Checks,
  checkClock,
  checkFunction,
  checkName,
  functionOr,
  oneOf,
  show,
} from "../ground/check.ts";
import type { GatewayRequest } from "../request.ts";
import type { HostOptions } from "./host-filter.ts";

/** A limiter for each key: a `KeyedLimiter`, a `RedisLimiter` or a `StoreLimiter`. */
export interface LimiterByKey {
  /** Returns the limiter of a key. */
  for(key: string): Limiter;
}

/**
 * A function of the application that is called for each request. `Raw` is the server's request; the methods of
 * the other one also work detached: `(_, { header }) => header("x-plan")`.
 */
export type PerRequest<Raw, T> = (raw: Raw, request: GatewayRequest) => T | PromiseLike<T>;

/** What a request is counted by. */
export type LimitKey = string | number | bigint | null | undefined;

/** See `limit` of `LimitOptions`. */
export type RequestLimit = number | Policy | Limiter | LimiterByKey | null | undefined;

/** The options of a limit in one call. */
export interface LimitOptions<Raw = unknown> extends ClientOptions {
  /**
   * Returns the key by which a request is counted: requests with the same key share a quota. A
   * request without one (undefined, null or "") is counted by its address, separately from requests
   * with a key; so is a request for which the function fails, or returns more than 16 384 characters.
   * Default: the client's address. Only for limiters by key.
   */
  readonly key?: PerRequest<Raw, LimitKey> | undefined;
  /**
   * How many permits a request takes, default 1; 0 lets it pass uncounted. A request that costs more
   * than the limiter ever grants at once is refused. If the function fails, the request costs 1.
   */
  readonly cost?: number | PerRequest<Raw, number> | undefined;
  /**
   * Another limit for some requests, or for all. A number, 0 or more: as many permits as the limiter's
   * own limit says, at the same algorithm and window; used quota keeps its share when the number
   * changes; 0 refuses. A policy: counted under that policy, in this process. A limiter: taken
   * from that limiter. Undefined: the limiter's own limit; so it is if the function fails, or if what it
   * returns fails, makes no decision, or takes longer than `timeoutMs` (and `maxWaitMs`).
   */
  readonly limit?: RequestLimit | PerRequest<Raw, RequestLimit>;
  /**
   * Returns whether a request passes uncounted. If the function fails, the request is counted.
   */
  readonly skip?: PerRequest<Raw, boolean> | undefined;
  /**
   * Which requests count. `"all"` (the default); `"failures"`: those answered with a status of 400
   * or more; `"successes"`: the others; or a function that returns whether an answered request counts. A
   * request takes its permits when it comes, so that many at once cannot exceed the limit, and gets
   * them back when it was answered and does not count. Without an answer it counts.
   */
  readonly count?:
    | "all"
    | "failures"
    | "successes"
    | ((status: number, raw: Raw) => boolean)
    | undefined;
  /**
   * How long a request may wait for its turn instead of being refused, ms, 0 or more. Default 0.
   */
  readonly maxWaitMs?: number | undefined;
  /** The name in header fields and refusals: printable ASCII. Default "default". */
  readonly name?: string | undefined;
  /**
   * How long the promise of `key`, `cost`, `limit` or `skip` may take, and a limiter to decide (and
   * `maxWaitMs` longer), ms, above 0, default 5000. After that it has failed: see `onError` for the limiter.
   */
  readonly timeoutMs?: number | undefined;
  /** The clock for `timeoutMs`, and for policies from `limit`. Default: the system's clock. */
  readonly clock?: Clock | undefined;
}

/** The options of a limit in front of a server: what is counted, and what responses look like. */
export interface HostLimitOptions<Raw = unknown> extends LimitOptions<Raw>, HostOptions {}

export const LIMIT_OPTIONS: Checks<LimitOptions> = {
  key: checkFunction,
  ...CLIENT_OPTIONS,
  cost: functionOr(aboveZero),
  limit: anything,
  skip: checkFunction,
  count: functionOr(oneOf(...Object.keys(COUNTS))),
  maxWaitMs: atLeastZero,
  name: checkName,
  timeoutMs: aboveZero,
  clock: checkClock,
};

export function readKey(value: unknown): string | undefined {
  if (typeof value === "string") return checkValue("key", value);
  if (value === undefined || value === null) return undefined;
  if (typeof value === "number" || typeof value === "bigint")
    return checkValue("key", String(value));
  throw new TypeError(`key must return a text, a number or undefined, got ${show(value)}`);
}

export function readSkip(value: unknown): boolean {
  if (typeof value === "boolean" || value === undefined) return value === true;
  throw new TypeError(`skip must return true or false, got ${show(value)}`);
}

export function readCost(value: unknown): number {
  return atLeastZero("cost", value);
}

const NUMBERS = ["waitMs", "limit", "remaining", "resetMs"] as const;

/** Checks what a limiter has decided: the application may have written it. */
export function checkDecision(value: unknown): Decision {
  const decision = Object(value) as Partial<Decision>;
  const isDecision =
    typeof decision.allowed === "boolean" &&
    typeof decision.policies === "object" &&
    NUMBERS.every((name) => typeof decision[name] === "number" && !Number.isNaN(decision[name]));
  if (isDecision) return value as Decision;
  throw new TypeError(
    `decide(permits) of a limiter must return a decision, { allowed, waitMs, limit, … }, got ${show(value)}`,
  );
}

export function isByKey(limiter: Limiter | LimiterByKey): limiter is LimiterByKey {
  return typeof (limiter as Partial<LimiterByKey>).for === "function";
}

export function isLimiter(value: unknown): value is Limiter | LimiterByKey {
  if (isByKey(Object(value))) return true;
  return typeof (Object(value) as Partial<Limiter>).decide === "function";
}

export function isPolicy(value: unknown): value is Policy {
  return Array.isArray((Object(value) as Partial<Policy>).numbers);
}
