/**
 * Learns a concurrency limit from refusals alone: additive increase, multiplicative decrease, as TCP Reno does.
 * For servers that refuse instead of queueing: they answer 429 or 503 when they have too many calls.
 *
 *     a call that ends under a limit that is in use:   limit := limit + increase / limit
 *     a call that met a limit:                         limit := limit × decrease
 *
 * When `limit` calls have ended, the limit has grown by `increase`. All calls that were in flight at a decrease count
 * as one: another overload among them does not lower the limit again, and none of them raises it.
 *
 * A worked example: a server takes 20 calls and refuses the 21st. The limit climbs from 14 to 21 in 7 round trips, the
 * refusal makes it 14.7, and so on: on average 17.5, or 88 % of what the server takes, with one call in about 110
 * refused. A higher `decrease` comes closer to 20 and is refused more often: 0.9 averages 19, with one in 40 refused.
 *
 * Two clients of one server approach equal limits: an increase is the same for both, a decrease takes more from the one
 * with more (Chiu and Jain, 1989).
 *
 * Bounds: never above `max`, and never below `min`, even if every call is refused. When the limit goes down, calls in flight
 * go on.
 *
 * Where it is inexact: a server that queues refuses nothing, so only time-outs stop the growth, and until then
 * every call takes nearly that long: `gradient` sees the queue. If some calls fail whatever the limit is, one in n say,
 * the limit stays at about √(n × increase / (1 − decrease)): tell those errors apart with `ignore()`.
 */
import { aboveZero, type Bound, checkNumber, checkOptions } from "../../ground/check.ts";
import type { ConcurrencyStrategy } from "./strategy.ts";

/** The options of `aimd`. */
export interface AimdOptions {
  /** By how much the limit grows while as many calls end as the limit allows at once: above 0, default 1. */
  readonly increase?: number | undefined;
  /** What an overload leaves of the limit: above 0 and below 1, default 0.7. */
  readonly decrease?: number | undefined;
}

const fraction: Bound = {
  words: "a number above 0 and below 1",
  holds: (value) => value > 0 && value < 1,
};

/**
 * A strategy of `adaptive` that raises the limit until a call is refused, and then lowers it: for servers that refuse
 * instead of queueing. `gradient` is for those that queue.
 *
 * @param options `increase` (default 1) and `decrease` (default 0.7)
 * @returns the strategy, to pass to `adaptive`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = ConcurrencyLimiter.create(adaptive({ max: 200, strategy: aimd() }));
 */
export function aimd(options: AimdOptions = {}): ConcurrencyStrategy {
  checkOptions("aimd", options, ["increase", "decrease"]);
  const { increase = 1, decrease = 0.7 } = options;
  checkNumber("increase", increase, aboveZero);
  checkNumber("decrease", decrease, fraction);
  return ({ min, max, start }) => {
    let limit = start;
    let loweredAtMs = -Infinity;
    return ({ startedMs, endedMs, isLimited, isOverload }) => {
      // a call that started before the decrease ran under another limit
      if (startedMs < loweredAtMs) return limit;
      if (isOverload) {
        limit = Math.max(min, limit * decrease);
        loweredAtMs = endedMs;
      } else if (isLimited) {
        limit = Math.min(max, limit + increase / limit);
      }
      return limit;
    };
  };
}
