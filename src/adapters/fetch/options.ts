import {
  aboveZero,
  atLeastZero,
  type Bound,
  checkBoolean,
  checkFunction,
  checkNumber,
  checkOptions,
} from "../../check.ts";
import { type Clock, checkClock, systemClock } from "../../clock.ts";
import { listPermits, type Permits } from "../../permits.ts";
import { checkPermits } from "../correct.ts";
import { type AdaptiveOptions, checkAdaptive } from "./adaptive-rate.ts";

export interface LimitedFetchOptions {
  /**
   * What a request takes of the limiter, or a function that says so. It is given a copy of the
   * request, whose body it may read (a body that can be read once only is left out). Default 1.
   */
  readonly permits?: Permits | ((request: Request) => Permits | Promise<Permits>) | undefined;
  /**
   * What a request used in fact, told by its response: the permits are corrected to it. It is given
   * a copy of a response that is `ok`, whose body it may read, and runs while the caller has the
   * response already. `undefined`, or an error: the estimate stands.
   */
  readonly used?:
    | ((response: Response) => Permits | undefined | Promise<Permits | undefined>)
    | undefined;
  /**
   * What a request counts for that failed: on the way, or with an answer of 400 or more (429 is
   * one). Default: what it took, since many servers count what they refuse. `{ tokens: 0 }` gives
   * its tokens back.
   */
  readonly failed?: Permits | undefined;
  /** How often a request is made again at the most. A whole number, 0 or more, default 2. */
  readonly retries?: number | undefined;
  /**
   * Whether POST and PATCH are made again too when the answer is 429, which says that nothing was
   * done. Default false: they are not, unless they have an `Idempotency-Key`.
   */
  readonly retryNonIdempotent?: boolean | undefined;
  /**
   * The longest that a server is obeyed when it says how long to stay away, ms, 0 or more, default
   * 60 000. Where it asks for more, its response is handed out at once and the limiter pauses this
   * long only.
   */
  readonly maxRetryAfterMs?: number | undefined;
  /**
   * How long to stay away where the server does not say, ms, above 0, default 1000: doubled with
   * each attempt, up to `maxRetryAfterMs`, and half of it at random.
   */
  readonly backoffMs?: number | undefined;
  /**
   * Whether to heed what the server says remains (RateLimit fields and their like) before it
   * refuses. Default true.
   */
  readonly sync?: boolean | undefined;
  /** Finds the rate by trying, for servers that do not tell their limit. Default: off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /** What sends the requests. Default: `globalThis.fetch`, looked up at each call. */
  readonly fetch?: typeof globalThis.fetch | undefined;
  /** Where the time between attempts comes from. Default: the platform's clock and timers. */
  readonly clock?: Clock | undefined;
}

export type Settings = ReturnType<typeof checkLimitedFetchOptions>;

const OPTIONS = [
  "permits",
  "used",
  "failed",
  "retries",
  "retryNonIdempotent",
  "maxRetryAfterMs",
  "backoffMs",
  "sync",
  "adaptive",
  "fetch",
  "clock",
] as const;

const wholeAtLeastZero: Bound = {
  words: "a whole number, 0 or more",
  holds: (value) => value >= 0 && Number.isSafeInteger(value),
};

/** The options, checked and complete. */
export function checkLimitedFetchOptions(options: LimitedFetchOptions) {
  checkOptions("options", options, OPTIONS);
  const { permits = 1, used, failed, adaptive, clock = systemClock } = options;
  const { retries = 2, maxRetryAfterMs = 60_000, backoffMs = 1000 } = options;
  const { sync = true, retryNonIdempotent = false } = options;
  if (typeof permits !== "function") listPermits(permits, Object.keys(Object(permits)));
  if (used !== undefined) checkFunction("used", used);
  if (failed !== undefined) checkPermits("failed", failed);
  if (options.fetch !== undefined) checkFunction("fetch", options.fetch);
  return {
    permits,
    used,
    failed,
    retries: checkNumber("retries", retries, wholeAtLeastZero),
    retryNonIdempotent: checkBoolean("retryNonIdempotent", retryNonIdempotent),
    maxRetryAfterMs: checkNumber("maxRetryAfterMs", maxRetryAfterMs, atLeastZero),
    backoffMs: checkNumber("backoffMs", backoffMs, aboveZero),
    sync: checkBoolean("sync", sync),
    adaptive: adaptive && checkAdaptive(adaptive),
    fetch: options.fetch,
    clock: checkClock(clock),
  };
}
