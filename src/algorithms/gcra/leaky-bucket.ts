/**
 * The leaky bucket as a queue, in nginx's terms: requests leave at an even pace, `capacity` permits may
 * be in the bucket beyond the one that is due, and requests that would overflow it are rejected.
 *
 * It is GCRA with a bounded queue. `nodelay` permits of the capacity are granted at once, and the others
 * wait for their turn; up to `slack` unused permits may be made up for after idle time. So
 * 1 + nodelay + slack permits can be available at once, and capacity - nodelay may wait. With
 * `nodelay: true` no request waits, and the bucket is a meter: it grants or rejects at once.
 *
 * Worked example, nginx's `rate=1r/s burst=5 delay=2`: capacity 5, nodelay 2. Of eight requests at
 * 0 s three are granted at once, three wait 1, 2 and 3 s, two are rejected. At 1 s there is room for one.
 *
 * Worked example, uber's: 100 a second, slack 10. Requests are granted 10 ms apart; after a pause of
 * 30 ms three more are granted at once, after a long one ten more, and never more than eleven at one
 * instant.
 *
 * Bound. In any interval of t seconds at most 1 + nodelay + slack + t x permitsPerSecond, and
 * capacity - nodelay more where a request is larger than what can be available at once.
 */
import {
  aboveZero,
  atLeastZero,
  atLeastZeroOrInfinity,
  checkNumber,
  checkNumbers,
} from "../../ground/check.ts";
import { type GcraPolicy, gcraAlgorithm } from "./gcra.ts";

/**
 * Creates a policy that grants requests at an even pace, lets a bounded number wait and rejects the
 * others: nginx's `limit_req`, and with `slack` uber's ratelimit.
 *
 * @param numbers.permitsPerSecond the pace; a finite number above 0
 * @param numbers.capacity how many permits may be in the bucket beyond the one that is due; 0 or
 *   more, `Infinity` for no bound. Further ones are rejected: `acquire` and `reserve` throw a
 *   `QueueFullError`, `tryAcquire` returns `false`
 * @param numbers.nodelay how many of those are granted at once; from 0 to `capacity`, default 0. `true`
 *   means all of them: no request waits, and the bucket is a meter. As in nginx, `capacity + 1` are then
 *   granted at once: a meter of 5 is `capacity: 4, nodelay: true`
 * @param numbers.slack how many unused permits may be made up for; 0 or more, default 0. A new
 *   limiter has none to make up for
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
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
  const { slack = 0, nodelay = false } = numbers;
  const undelayed = checkNodelay(nodelay, capacity);
  const atOnce = 1 + undelayed + checkNumber("slack", slack, atLeastZero);
  const policy = gcraAlgorithm.policy([
    atOnce,
    permitsPerSecond,
    1000,
    capacity - undelayed,
    slack,
  ]);
  return Object.freeze({ ...policy, limitAt: [1] });
}

/** Returns how many permits of the capacity are granted at once. */
function checkNodelay(nodelay: unknown, capacity: number): number {
  if (nodelay === false) return 0;
  const count = nodelay === true && capacity < Infinity ? capacity : nodelay;
  return checkNumber("nodelay", count, {
    words:
      capacity < Infinity
        ? `true, false or a finite number from 0 to capacity (${capacity})`
        : "false or a finite number from 0 up, since capacity is Infinity",
    holds: (count) => count >= 0 && count <= capacity && count < Infinity,
  });
}
