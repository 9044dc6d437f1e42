import {
  repaced,
  type SmoothPolicy,
  smoothBursty,
  smoothWarmingUp,
} from "../algorithms/smooth/smooth.ts";
import {
  atLeastOne,
  atLeastZero,
  CREATE,
  checkCreated,
  checkNumber,
  checkOptions,
} from "../check.ts";
import { listPolicies } from "../stores/memory.ts";
import { opened, QueueingLimiter } from "./limiter.ts";
import { LIMITER_OPTIONS, type LimiterOptions } from "./options.ts";

export interface SmoothOptions {
  /**
   * How long it takes from cold to warm, ms. 0 (the default): no warm-up, unused permits go at
   * once.
   */
  readonly warmupMs?: number | undefined;
  /** Only with `warmupMs`: how many times longer the interval is when cold. 1 or more, default 3. */
  readonly coldFactor?: number | undefined;
  /**
   * Only without a warm-up: how many seconds' worth of unused permits are stored. 0 or more, default
   * 1.
   */
  readonly burstSeconds?: number | undefined;
  /**
   * Only without a warm-up: begin with a full store, as after a long idle. Default false. (With one it
   * begins cold, as after a long idle.)
   */
  readonly prefilled?: boolean | undefined;
}

export interface RateLimiterOptions extends SmoothOptions, LimiterOptions {}

export const SMOOTH_OPTIONS = ["warmupMs", "coldFactor", "burstSeconds", "prefilled"] as const;

/** The policy that the options describe. */
export function smoothPolicy(permitsPerSecond: number, options: SmoothOptions): SmoothPolicy {
  const { warmupMs = 0, coldFactor = 3, burstSeconds = 1, prefilled = false } = options;
  checkNumber("warmupMs", warmupMs, atLeastZero);
  checkNumber("coldFactor", coldFactor, atLeastOne);
  const bursty = smoothBursty({ permitsPerSecond, burstSeconds, prefilled });
  if (options.coldFactor !== undefined && options.warmupMs === undefined) {
    throw new TypeError(
      "coldFactor has no effect without a warm-up: set warmupMs, or leave it out",
    );
  }
  for (const name of ["burstSeconds", "prefilled"] as const) {
    if (warmupMs === 0 || options[name] === undefined) continue;
    throw new TypeError(
      `${name} has no effect with a warm-up, got warmupMs ${warmupMs}: leave out one of them`,
    );
  }
  return warmupMs > 0 ? smoothWarmingUp({ permitsPerSecond, warmupMs, coldFactor }) : bursty;
}

/**
 * Guava's RateLimiter: hands out permits at an even pace, stores what is not used, and lets the
 * next request pay for the one before. For other algorithms see `Limiter`.
 */
export class RateLimiter extends QueueingLimiter {
  private constructor(made: typeof CREATE, policy: SmoothPolicy, options: LimiterOptions) {
    checkCreated("RateLimiter", made);
    super(...opened(listPolicies(policy), options));
  }

  /**
   * A limiter in this process. Without a warm-up it is SmoothBursty: a second's worth of unused
   * permits is stored and goes at once. With one it is SmoothWarmingUp: after a time without
   * requests it starts slowly and reaches its pace within `warmupMs`.
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
  static create(permitsPerSecond: number, warmup: number | RateLimiterOptions = 0): RateLimiter {
    const options = typeof warmup === "number" ? { warmupMs: warmup } : warmup;
    checkOptions("options", options, [...SMOOTH_OPTIONS, ...LIMITER_OPTIONS]);
    return new RateLimiter(CREATE, smoothPolicy(permitsPerSecond, options), options);
  }

  /** Permits per second: exactly the number that was set. */
  getRate(): number {
    return this.#policy.permitsPerSecond;
  }

  /**
   * Another pace from now on. Stored permits keep their share of the store; what was let in already
   * is still owed at the old pace, so the very next request may wait as it would have; everyone who
   * waits behind that is re-timed.
   *
   * @param permitsPerSecond above 0, `Infinity` for no limit
   * @throws RangeError or TypeError, and the pace stays
   * @example
   * limiter.setRate(limiter.getRate() / 2);
   */
  setRate(permitsPerSecond: number): void {
    this.update(repaced(this.#policy, permitsPerSecond));
  }

  get #policy(): SmoothPolicy {
    const [policy] = this.policies;
    return policy as SmoothPolicy;
  }
}
