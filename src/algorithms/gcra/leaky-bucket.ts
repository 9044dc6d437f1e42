/**
 * The leaky bucket as a queue, in nginx's terms: requests drip out at an even pace, `capacity` may
 * be in the bucket beyond the one that is due, and what would make it run over is refused.
 *
 * It is GCRA with another patience. Of the capacity, `nodelay` go at once instead of waiting for
 * their drop, and the others wait; `slack` unused drops may be made up for after idleness. So the
 * permits that can be there at once are 1 + nodelay + slack, and capacity - nodelay may wait. With
 * `nodelay: true` nobody waits, and the bucket is a meter: there is room, or there is not.
 *
 * Worked example, nginx's `rate=1r/s burst=5 delay=2`: capacity 5, nodelay 2. Of eight requests at
 * 0 s three go at once, three wait 1, 2 and 3 s, two are refused. At 1 s there is room for one.
 *
 * Worked example, uber's: 100 a second, slack 10. Requests go 10 ms apart; after a pause of 30 ms
 * three more go at once, after a long one ten more, and never more than eleven at one instant.
 *
 * Bound. In any interval of t seconds at most 1 + nodelay + slack + t x permitsPerSecond, and
 * capacity - nodelay more where a request is larger than what can be there at once.
 */
import {
  aboveZero,
  atLeastZero,
  atLeastZeroOrInfinity,
  checkNumber,
  checkNumbers,
  show,
} from "../../check.ts";
import { type GcraPolicy, gcraAlgorithm } from "./gcra.ts";

/**
 * A policy that lets requests leave at an even pace, lets a bounded number wait and refuses the
 * others: nginx's `limit_req`, and with `slack` uber's ratelimit.
 *
 * @param numbers.permitsPerSecond the pace; a finite number above 0
 * @param numbers.capacity how many permits may be in the bucket beyond the one that is due; 0 or
 *   more, `Infinity` for no bound. Further ones are refused: `acquire` and `reserve` throw a
 *   `QueueFullError`, `tryAcquire` answers `false`
 * @param numbers.nodelay how many of those go at once; from 0 to `capacity`, default 0. `true` means
 *   all of them: nothing waits, and the bucket is a meter. As in nginx, `capacity + 1` then go at
 *   once, the one that is due and `capacity` more: 6 with `capacity: 5`. A meter of 5 is
 *   `capacity: 4, nodelay: true`
 * @param numbers.slack how many unused permits may be made up for; 0 or more, default 0. A new
 *   limiter has none to make up for
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * const limiter = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 5, nodelay: 2 }));
 */
export function leakyBucket(numbers: {
  readonly permitsPerSecond: number;
  readonly capacity: number;
  readonly nodelay?: number | boolean;
  readonly slack?: number;
}): GcraPolicy {
  checkNumbers("leakyBucket", numbers, ["permitsPerSecond", "capacity", "nodelay", "slack"]);
  const permitsPerSecond = checkNumber("permitsPerSecond", numbers.permitsPerSecond, aboveZero);
  const capacity = checkNumber("capacity", numbers.capacity, atLeastZeroOrInfinity);
  const { slack = 0 } = numbers;
  const nodelay = checkNodelay(numbers.nodelay, capacity);
  const atOnce = 1 + nodelay + checkNumber("slack", slack, atLeastZero);
  const policy = gcraAlgorithm.policy([atOnce, permitsPerSecond, 1000, capacity - nodelay, slack]);
  return Object.freeze({ ...policy, limitAt: [1] });
}

/** How many of the capacity go at once. */
function checkNodelay(nodelay: unknown, capacity: number): number {
  const words = `true, false or a finite number from 0 to capacity (${capacity})`;
  if (nodelay === undefined || nodelay === false) return 0;
  const count = nodelay === true ? capacity : nodelay;
  if (typeof count !== "number") {
    throw new TypeError(`nodelay must be ${words}, got ${show(nodelay)}`);
  }
  if (count >= 0 && count <= capacity && count < Infinity) return count;
  throw new RangeError(`nodelay must be ${words}, got ${show(nodelay)}`);
}
