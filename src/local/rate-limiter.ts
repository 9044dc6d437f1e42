import { repaced, type SmoothPolicy, smoothPolicy } from "../algorithms/smooth/smooth.ts";
import type { LimiterClass, LocalLimiter } from "../api/limiter-api.ts";
import { LIMITER_OPTIONS, type LimiterOptions } from "../api/options.ts";
import type { Counted } from "../api/stats.ts";
import { CREATE, checkCreated, checkOptions, failCheck } from "../ground/check.ts";
import { listPolicies, type PolicyList } from "../stores/policies.ts";
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

const SMOOTH_OPTIONS = ["warmupMs", "coldFactor", "burstSeconds", "prefilled"] as const;
/** Options of the policy that have no effect, with a warm-up and without one. */
const USELESS = { with: ["burstSeconds", "prefilled"], without: ["coldFactor"] } as const;

/**
 * Checks the arguments of `create`.
 *
 * @param unit what else it got: Guava's third argument is a unit
 * @param known the options besides those of the policy
 */
export function smoothArguments<O extends SmoothOptions>(
  permitsPerSecond: number,
  warmup: number | O,
  unit: readonly unknown[],
  known: readonly string[],
): { readonly policies: PolicyList; readonly options: O } {
  if (unit.length > 0) failCheck("unit", "left out: the warm-up is in ms", unit[0]);
  const options = typeof warmup === "number" ? ({ warmupMs: warmup } as O) : warmup;
  checkOptions("options", options, [...SMOOTH_OPTIONS, ...known]);
  const policy = smoothPolicy(permitsPerSecond, options);
  const which = policy.warmingUp ? "with" : "without";
  for (const name of USELESS[which]) {
    // a warm-up of 0 may stand beside `coldFactor`
    if (options[name] === undefined || options.warmupMs === 0) continue;
    throw new TypeError(
      `${name} has no effect ${which} a warm-up, got warmupMs ${options.warmupMs}: change that, or leave ${name} out`,
    );
  }
  return { policies: listPolicies(policy), options };
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
   * @throws RangeError or TypeError on a bad argument
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
  private constructor(made: typeof CREATE, policies: PolicyList, options: LimiterOptions) {
    checkCreated("RateLimiter", made);
    super(...opened(policies, options, openOne));
  }

  static create(
    permitsPerSecond: number,
    warmup: number | RateLimiterOptions = 0,
    ...unit: unknown[]
  ) {
    const { policies, options } = smoothArguments(permitsPerSecond, warmup, unit, LIMITER_OPTIONS);
    return new RateLimiter(CREATE, policies, options);
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
