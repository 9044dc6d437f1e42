import type { WaitOptions } from "../../api/limiter-api.ts";
import { SHARE_OPTIONS } from "../../api/options.ts";
import {
  aboveZero,
  atLeastZero,
  type Bound,
  checkBoolean,
  checkFunction,
  checkNumber,
  checkOptions,
} from "../../ground/check.ts";
import { type Clock, checkClock, systemClock } from "../../ground/clock.ts";
import { listPermits, type Permits } from "../../ground/permits.ts";
import { checkPermits } from "../correct.ts";
import { type SharedBy, shareOf } from "../shares.ts";
import { type AdaptiveOptions, checkAdaptive } from "./adaptive-rate.ts";
import type { Call } from "./call.ts";

/** The options of `limitedFetch`. */
export interface LimitedFetchOptions extends SharedBy<[request: Request]> {
  /**
   * The permits of a request, or a function that returns them. The function receives a copy of the
   * request and may read its body (a body that can be read only once is left out). Default 1.
   */
  readonly permits?: Permits | ((request: Request) => Permits | Promise<Permits>) | undefined;
  /**
   * Returns the permits that a request really used, read from its response; the limiter is then
   * corrected. The function receives a copy of a response that is `ok` and may read its body;
   * meanwhile the caller already has the response. `undefined`: the estimate stands. An error, or an
   * unusable number: the same, and a process warning for the first one of each limiter.
   */
  readonly used?:
    | ((response: Response) => Permits | undefined | Promise<Permits | undefined>)
    | undefined;
  /**
   * The permits that a failed request counts for: one that got no response, or a status of
   * 400 or more (429 included). Default: what it took, because many servers count the requests that
   * they refuse. `{ tokens: 0 }` gives its tokens back.
   */
  readonly failed?: Permits | undefined;
  /** How often a request is retried at most. A whole number, 0 or more, default 2. */
  readonly retries?: number | undefined;
  /**
   * Whether POST and PATCH are retried too after a 429, which says that the server did nothing.
   * Default false: they are retried only if they have an `Idempotency-Key`.
   */
  readonly retryNonIdempotent?: boolean | undefined;
  /**
   * The longest pause that a server may ask for, ms, 0 or more, default 60 000. If it asks for
   * more, its response is returned at once and the limiter pauses for this long only.
   */
  readonly maxRetryAfterMs?: number | undefined;
  /**
   * How long to wait before a retry if the server does not say, ms, above 0, default 1000. It
   * doubles with each attempt, up to `maxRetryAfterMs`, and half of it is random.
   */
  readonly backoffMs?: number | undefined;
  /**
   * Whether to follow the remaining quota that the server reports (RateLimit fields and similar)
   * before the server refuses. Default true.
   */
  readonly sync?: boolean | undefined;
  /** Finds the rate by trying, for servers that do not report their limit. Default: off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /** Sends the requests. Default: `globalThis.fetch`, read at each call. */
  readonly fetch?: typeof globalThis.fetch | undefined;
  /** The clock for the time between attempts. Default: the platform's clock and timers. */
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
  ...SHARE_OPTIONS,
] as const;

const wholeAtLeastZero: Bound = {
  words: "a whole number, 0 or more",
  holds: (value) => value >= 0 && Number.isSafeInteger(value),
};

/** Returns the options, checked and completed. */
export function checkLimitedFetchOptions(options: LimitedFetchOptions) {
  checkOptions("options", options, OPTIONS);
  const { permits = 1, used, failed, adaptive, clock = systemClock } = options;
  const { retries = 2, maxRetryAfterMs = 60_000, backoffMs = 1000 } = options;
  const { sync = true, retryNonIdempotent = false } = options;
  const isShared = SHARE_OPTIONS.some((name) => options[name] !== undefined);
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
    waitOptions: isShared
      ? (call: Call): WaitOptions => ({ signal: call.signal, ...shareOf(options, call.request) })
      : ({ signal }: Call): WaitOptions => ({ signal }),
  };
}
