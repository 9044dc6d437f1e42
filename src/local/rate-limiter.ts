import { repaced, type SmoothPolicy, smoothPolicy } from "../algorithms/smooth/smooth.ts";
import type { LimiterClass, LocalLimiter } from "../api/limiter-api.ts";
import { LIMITER_OPTIONS, type LimiterOptions } from "../api/options.ts";
import type { Counted } from "../api/stats.ts";
import { CREATE, checkCreated, checkOptions, failCheck } from "../ground/check.ts";
import { listPolicies } from "../stores/policies.ts";
import { openOne } from "../stores/state/one.ts";
import { opened, QueueingLimiter } from "./queueing-limiter.ts";

export interface SmoothOptions {
  /**
   * How long it takes from cold to warm, ms. 0 (the default): no warm-up, unused permits are
   * available at once.
   */
  readonly warmupMs?: number | undefined;
  /**
   * Only with `warmupMs`: how many times longer the interval is when cold. 1 or more, default 3.
   */
  readonly coldFactor?: number | undefined;
  /**
   * Only without a warm-up: how many seconds' worth of unused permits are stored. 0 or more,
   * default 1.
   */
  readonly burstSeconds?: number | undefined;
  /**
   * Only without a warm-up: start with full storage, as after a long idle time. Default false.
   * (With a warm-up it starts cold, as after a long idle time.)
   */
  readonly prefilled?: boolean | undefined;
}

/** The options of `RateLimiter.create`. */
export interface RateLimiterOptions extends SmoothOptions, LimiterOptions {}

/**
 * Returns the options that `warmup` stands for.
 *
 * @param unit what else `create` got: Guava's third argument is a unit
 */
export function warmupOptions<O extends SmoothOptions>(
  warmup: number | O,
  unit: readonly unknown[],
): O | Pick<SmoothOptions, "warmupMs"> {
  if (unit.length > 0) failCheck("unit", "left out: the warm-up is in ms", unit[0]);
  return typeof warmup === "number" ? { warmupMs: warmup } : warmup;
}

export const SMOOTH_OPTIONS = ["warmupMs", "coldFactor", "burstSeconds", "prefilled"] as const;

/** Returns the policy that the options describe. */
export function policyOf(permitsPerSecond: number, options: SmoothOptions): SmoothPolicy {
  const { warmupMs, coldFactor } = options;
  const policy = smoothPolicy(permitsPerSecond, options);
  if (coldFactor !== undefined && warmupMs === undefined) {
    throw new TypeError(
      "coldFactor has no effect without a warm-up: set warmupMs, or leave it out",
    );
  }
  for (const name of ["burstSeconds", "prefilled"] as const) {
    if (!policy.warmingUp || options[name] === undefined) continue;
    throw new TypeError(
      `${name} has no effect with a warm-up, got warmupMs ${warmupMs}: leave out one of them`,
    );
  }
  return policy;
}

/**
 * Guava's RateLimiter: grants permits at an even pace and stores unused ones. A request waits for the
 * cost of the one before it. For other algorithms see `Limiter`.
 */
export interface RateLimiter extends LocalLimiter<"default">, Counted {
  /** Permits per second: exactly the number that was set. */
  getRate(): number;

  /**
   * Sets another pace from now on. Stored permits keep their share of the storage. The cost of
   * granted requests is still computed at the old pace, so the next request may wait as long as it
   * would have; callers that wait behind it get new instants.
   *
   * @param permitsPerSecond above 0, `Infinity` for no limit
   * @throws RangeError or TypeError; the pace does not change then
   * @example
   * limiter.setRate(limiter.getRate() / 2);
   */
  setRate(permitsPerSecond: number): void;
}

interface RateLimiterClass extends LimiterClass<RateLimiter> {
  /**
   * Creates a limiter in this process. Without a warm-up it is SmoothBursty: a second's worth of
   * unused permits is stored and available at once, with one request more in advance. With a
   * warm-up it is SmoothWarmingUp: after a time without requests it starts slowly and reaches its
   * pace within `warmupMs`.
   *
   * @param permitsPerSecond the pace; above 0, `Infinity` for no limit
   * @param warmup the warm-up in ms (0 or absent: none), or options
   * @returns the limiter
   * @throws RangeError or TypeError that names the argument, its bound and what it got
   * @example
   * const limiter = RateLimiter.create(5);
   * for (const job of jobs) {
   *   await limiter.acquire();
   *   start(job);
   * }
   */
  create(permitsPerSecond: number, warmup?: number | RateLimiterOptions): RateLimiter;
}

export const RateLimiter = class RateLimiter extends QueueingLimiter {
  private constructor(made: typeof CREATE, policy: SmoothPolicy, options: LimiterOptions) {
    checkCreated("RateLimiter", made);
    super(...opened(listPolicies(policy), options, openOne));
  }

  static create(
    permitsPerSecond: number,
    warmup: number | RateLimiterOptions = 0,
    ...unit: unknown[]
  ) {
    const options: RateLimiterOptions = warmupOptions(warmup, unit);
    checkOptions("options", options, [...SMOOTH_OPTIONS, ...LIMITER_OPTIONS]);
    return new RateLimiter(CREATE, policyOf(permitsPerSecond, options), options);
  }

  getRate(): number {
    return this.#policy.permitsPerSecond;
  }

  setRate(permitsPerSecond: number): void {
    this.update(repaced(this.#policy, permitsPerSecond));
  }

  get #policy(): SmoothPolicy {
    const [policy] = this.policies;
    return policy as SmoothPolicy;
  }
} as unknown as RateLimiterClass;
