/**
 * What does `await acquire()` cost when there is nothing to wait for? It cannot cost less than an `await`. bottleneck is not here: it
 * starts every job from a timer, so one call after the other would measure the timer.
 */
import { RateLimit } from "async-sema";
import { RateLimiter as TokenLimiter } from "limiter";
import PQueue from "p-queue";
import pThrottle from "p-throttle";
import { RateLimiterMemory, RateLimiterQueue } from "rate-limiter-flexible";
import { RateLimiter } from "smooth-limiter";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

const PLENTY = 1e9;
const work = () => 0;

const resolved = Promise.resolve(0);
const limiter = RateLimiter.create(PLENTY);
const throttled = pThrottle({ limit: PLENTY, interval: 1000 })(work);
const tokens = new TokenLimiter({ tokensPerInterval: PLENTY, interval: 1 });
const flexible = new RateLimiterQueue(new RateLimiterMemory({ points: PLENTY, duration: 1 }));
const queue = new PQueue({ intervalCap: PLENTY, interval: 1000 });
// async-sema creates a token for each permit, and a timer for each call
const sema = RateLimit(2 ** 20, { timeUnit: 1 });

console.log("await acquire(), never limited");
const peers = {
  "p-throttle": () => throttled(),
  "limiter RateLimiter": () => tokens.removeTokens(1),
  "rate-limiter-flexible RateLimiterQueue": () => flexible.removeTokens(1),
  "async-sema RateLimit": () => sema(),
  "p-queue": () => queue.add(work),
};
const ratio = await compare({
  "await of a resolved promise": () => resolved,
  "smooth-limiter": () => limiter.acquire(),
  ...peers,
});
const ours = ratio("smooth-limiter", "await of a resolved promise");
target("never limited, at most 2.2 × await", ours <= 2.2, times(ours));
for (const peer of Object.keys(peers)) {
  const ahead = ratio(peer, "smooth-limiter");
  target(`ahead of ${peer}`, ahead > 1, `it takes ${times(ahead)} as long`);
}
process.exit(); // some peers leave timers behind
