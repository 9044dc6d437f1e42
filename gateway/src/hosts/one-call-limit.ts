/**
 * A limit for requests without a file of rules: a limiter, and functions that say by what each
 * request is counted. It decides by the same code as a rule of a gateway.
 */
import { type Limiter, PermitsExceedCapacityError, systemClock } from "smooth-limiter";
import { type AddressActor, fromAddress } from "../actors/address.ts";
import { detachable, type GuardedCall, guardedCall } from "../actors/guarded.ts";
import { localKey } from "../actors/key.ts";
import type { Checker, CheckResult } from "../answers/checker.ts";
import { COUNTS } from "../answers/counted.ts";
import { checkOptions, show } from "../ground/check.ts";
import { chain, isThenable, type MaybePromise, orElse } from "../ground/maybe-promise.ts";
import type { Charge, Passed } from "../pipeline/limit.ts";
import { Pipeline } from "../pipeline/pipeline.ts";
import type { CheckCall, GatewayRequest, Report } from "../request.ts";
import { type CountedRule, NO_RULE, stated, verdictOfOne } from "../verdict.ts";
import {
  checkDecision,
  isByKey,
  isLimiter,
  LIMIT_OPTIONS,
  type LimiterByKey,
  type LimitOptions,
  type RequestLimit,
  readCost,
  readKey,
  readSkip,
} from "./limit-options.ts";
import { LimitOverride } from "./limit-override.ts";
import { type LimitVerdict, limitVerdict } from "./limit-verdict.ts";

/** More differ only where an application computes limits; the table is then emptied. */
const MOST_RULES = 1000;

/**
 * Creates a filter that takes the permits of each request from a limiter. `expressLimit` and its
 * siblings put one in front of a server; use this one where an adapter accepts a filter, such as
 * `upgradeGateway`.
 *
 * @param limiter a `KeyedLimiter` or another limiter by key, or a limiter for all requests together
 * @param options see `LimitOptions`
 * @returns a filter that all server adapters accept in place of a gateway
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * server.on("upgrade", upgradeGateway(limitRequests(users), handler));
 */
export function limitRequests<Raw = unknown>(
  limiter: Limiter | LimiterByKey,
  options: LimitOptions<Raw> = {},
): Checker {
  checkOptions("options", options, LIMIT_OPTIONS);
  return new OneCallLimit(limiter, options as LimitOptions);
}

type Limit = Charge["limit"];

/** A request, and what it was found to ask for. */
interface Asked {
  readonly call: CheckCall;
  readonly key: string;
  /** In permits. */
  readonly cost: number;
}

/** The error of a request whose client has left. */
interface Gone {
  readonly error: unknown;
}

type Attempt = () => MaybePromise<LimitVerdict | Gone>;

export class OneCallLimit implements Checker {
  readonly limiter: Limiter | LimiterByKey;
  readonly #pipeline: Pipeline;
  readonly #name: string;
  readonly #longestWaitMs: number;
  readonly #address: AddressActor;
  /** Absent where all requests are counted together. */
  readonly #key: GuardedCall<string> | undefined;
  readonly #skip: GuardedCall<boolean> | undefined;
  readonly #costOf: GuardedCall<number> | undefined;
  readonly #limitOf: GuardedCall<RequestLimit> | undefined;
  readonly #fixedLimit: RequestLimit;
  /** Takes from what `limit` returned. */
  readonly #tryGiven: GuardedCall<LimitVerdict | Gone, [attempt: Attempt]>;
  readonly #limits: LimitOverride;
  /** Permits of a request, unless `#costOf` says otherwise. */
  readonly #cost: number;
  /** Absent where all requests count. */
  readonly #settling: Passed | undefined;
  /** The rule of most requests. Rules are reused, because fields are cached by rule. */
  readonly #usual: Limit;
  /** Other rules by the permits that a request costs. */
  readonly #others = new Map<number, Limit>();

  /** @param options checked */
  constructor(limiter: Limiter | LimiterByKey, options: LimitOptions) {
    if (!isLimiter(limiter)) {
      throw new TypeError(
        `limiter must be a limiter, such as KeyedLimiter.create(…) returns, got ${show(limiter)}`,
      );
    }
    const { key, cost = 1, limit, skip, count = "all", maxWaitMs = 0 } = options;
    const { name = "default", timeoutMs = 5000, clock = systemClock } = options;
    const { trustedProxies, ipv6Prefix } = options;
    if (key !== undefined && !isByKey(limiter) && typeof limit !== "function") {
      throw new TypeError(
        "key is for limiters by key, such as KeyedLimiter.create(…) returns; this limiter counts all requests together",
      );
    }
    this.limiter = limiter;
    this.#name = name;
    this.#longestWaitMs = maxWaitMs;
    this.#limits = new LimitOverride(limiter, clock);
    this.#address = fromAddress({ trustedProxies, ipv6Prefix });
    const deadline = { timeoutMs, clock };
    const guard = <T>(
      of: keyof LimitOptions,
      call: unknown,
      instead: string,
      read: (value: unknown) => T | undefined,
    ): GuardedCall<T> => {
      const apply = call as (raw: unknown, request: GatewayRequest) => unknown;
      return guardedCall((request) => apply(request.raw, detachable(request)), {
        name: of,
        instead: `the request ${instead}`,
        read,
        ...deadline,
      });
    };
    const deciding = { timeoutMs: timeoutMs + maxWaitMs, clock };
    this.#pipeline = new Pipeline(deciding);
    const isKeyed = isByKey(limiter) || typeof limit === "function";
    const byAddress: GuardedCall<string> = ({ request }) => this.#address(request);
    if (key !== undefined) this.#key = guard("key", key, "is counted by its address", readKey);
    else if (isKeyed) this.#key = byAddress;
    if (skip !== undefined) this.#skip = guard("skip", skip, "is counted", readSkip);
    if (typeof cost === "function") this.#costOf = guard("cost", cost, "costs 1", readCost);
    this.#cost = typeof cost === "function" ? 1 : cost;
    this.#usual = this.#newLimit(this.#cost);
    const readLimit = (value: unknown) => this.#limits.read(value);
    if (typeof limit === "function") {
      this.#limitOf = guard("limit", limit, "has the limiter's own limit", readLimit);
    } else {
      this.#fixedLimit = readLimit(limit);
    }
    this.#tryGiven = guardedCall((_, attempt: Attempt) => attempt(), {
      name: "what limit returned",
      instead: "the request has the limiter's own limit",
      read: (result) => result as LimitVerdict | Gone,
      ...deciding,
    });
    if (count !== "all")
      this.#settling = settling(typeof count === "function" ? count : COUNTS[count]);
  }

  check(request: GatewayRequest, report?: Report): MaybePromise<CheckResult> {
    const call: CheckCall = { request, report };
    if (this.#skip === undefined) return this.#ask(call);
    return chain(this.#skip(call), (skips) => (skips === true ? NO_RULE : this.#ask(call)));
  }

  #ask(call: CheckCall): MaybePromise<CheckResult> {
    const key = this.#key?.(call);
    const cost = this.#costOf?.(call);
    const limit = this.#limitOf?.(call);
    if (key instanceof Promise || cost instanceof Promise || limit instanceof Promise) {
      return Promise.all([key, cost, limit]).then(([value, permits, most]) =>
        this.#take(call, value, permits, most),
      );
    }
    return this.#take(call, key, cost, limit);
  }

  #take(
    call: CheckCall,
    value: string | undefined,
    cost = this.#cost,
    limit = this.#fixedLimit,
  ): MaybePromise<CheckResult> {
    if (cost === 0) return NO_RULE;
    const key = this.#key === undefined ? "" : localKey(value, this.#address, call.request);
    const asked = { call, key, cost };
    if (limit === undefined || limit === null) return this.#takeFrom(this.limiter, asked);
    if (typeof limit !== "number") return this.#takeFromGiven(limit, asked);
    if (limit === 0) return never(key, 0, this.#usual);
    return chain(this.#limits.ratioOf(limit, key), (ratio) => {
      const taken = this.#takeFrom(this.limiter, asked, ratio);
      if (ratio === undefined) return taken;
      return chain(taken, (verdict) => {
        this.#limits.note(verdict.outcomes[0]?.decision);
        return verdict;
      });
    });
  }

  /** Takes from what `limit` returned; if that fails, from the limiter itself. */
  #takeFromGiven(
    limit: Exclude<RequestLimit, number | null | undefined>,
    asked: Asked,
  ): MaybePromise<CheckResult> {
    const { call } = asked;
    const attempt = () =>
      orElse<LimitVerdict | Gone>(
        () => this.#takeFrom(this.#limits.sourceOf(limit), asked),
        (error) => {
          // a client that leaves while its request waits is no failure
          if (call.request.signal?.aborted) return { error };
          throw error;
        },
      );
    return chain(this.#tryGiven(call, attempt), (result) => {
      if (result === undefined) return this.#takeFrom(this.limiter, asked);
      if ("error" in result) throw result.error;
      return result;
    });
  }

  /** @param ratio how many permits of the limiter are one of the request's */
  #takeFrom(
    source: Limiter | LimiterByKey,
    { call, key, cost }: Asked,
    ratio = 1,
  ): MaybePromise<LimitVerdict> {
    const limit = this.#limitFor((this.#costOf === undefined ? cost : 1) * ratio);
    const passed = call.request.onAnswered && this.#settling;
    try {
      const charge = {
        limit,
        actor: key,
        limiter: isByKey(source) ? source.for(key) : source,
        // an error, as for Infinity, would let the request pass
        cost: Math.min(Number.MAX_VALUE, Math.max(Number.MIN_VALUE, cost * ratio)),
        isPlain: passed === undefined && limit.longestWaitMs === 0,
        passed,
        read: checkDecision,
      };
      const verdict = this.#pipeline.take(charge, call);
      if (!(verdict instanceof Promise)) return limitVerdict(verdict, key);
      return verdict.then(
        (known) => limitVerdict(known, key),
        (error) => this.#refuse(key, limit, error),
      );
    } catch (error) {
      return this.#refuse(key, limit, error);
    }
  }

  /** Refuses a request that could never pass: an error would let it pass. */
  #refuse(key: string, limit: Limit, error: unknown): LimitVerdict {
    if (!(error instanceof PermitsExceedCapacityError)) throw error;
    this.#limits.forget();
    return never(key, error.facts.capacity, limit);
  }

  #limitFor(cost: number): Limit {
    if (this.#usual.rule.cost === cost) return this.#usual;
    let limit = this.#others.get(cost);
    if (limit === undefined) {
      limit = this.#newLimit(cost);
      if (this.#others.size >= MOST_RULES) this.#others.clear();
      this.#others.set(cost, limit);
    }
    return limit;
  }

  #newLimit(cost: number): Limit {
    const rule: CountedRule = { name: this.#name, mode: "enforce", cost };
    return { rule, longestWaitMs: this.#longestWaitMs };
  }
}

/** The verdict on a request that can never pass. */
function never(key: string, limit: number, { rule }: Limit): LimitVerdict {
  const decision = stated("default", false, { limit, remaining: 0, waitMs: Infinity });
  return limitVerdict(verdictOfOne({ limit: { rule }, actor: key, cost: 1 }, decision), key);
}

/** Gives the permits back when the request was answered and does not count. */
function settling(counts: (status: number, raw: unknown) => unknown): Passed {
  return (_, undo, { request, report }) =>
    (status) => {
      const settle = async () => {
        if (status === undefined) return;
        const counted = counts(status, request.raw);
        // a promise, which the types do not allow, must not reject without a handler
        if (!(isThenable(counted) ? await counted : counted)) await undo();
      };
      settle().catch((error: unknown) => report?.(error, request));
    };
}
