/** What does `tryAcquire()` cost, let in and refused? The lower bound is the cost of reading the clock. */
import { Sema } from "async-sema";
import { TokenBucket, RateLimiter as TokenLimiter } from "limiter";
import { do_not_optimize as keep } from "mitata";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { RateLimiter } from "smooth-limiter";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

const PLENTY = 1e9;
const clock = () => keep(performance.now());

console.log("tryAcquire(), never limited");
{
  const limiter = RateLimiter.create(PLENTY);
  const bucket = new TokenBucket({
    bucketSize: PLENTY,
    tokensPerInterval: PLENTY,
    interval: "second",
  });
  const tokens = new TokenLimiter({ tokensPerInterval: PLENTY, interval: 1 });
  const memory = new RateLimiterMemory({ points: PLENTY, duration: 1 });
  const sema = new Sema(1);
  const peers = {
    "limiter TokenBucket": () => keep(bucket.tryRemoveTokens(1)),
    "limiter RateLimiter": () => keep(tokens.tryRemoveTokens(1)),
    "rate-limiter-flexible (await)": () => memory.consume("key"),
  };
  const ratio = await compare({
    "performance.now()": clock,
    "smooth-limiter": () => keep(limiter.tryAcquire()),
    ...peers,
    "async-sema Sema (reads no clock)": () => {
      keep(sema.tryAcquire());
      sema.release();
    },
  });
  const ours = ratio("smooth-limiter", "performance.now()");
  target("never limited, at most 1.25 × performance.now()", ours <= 1.25, times(ours));
  for (const peer of Object.keys(peers)) {
    const ahead = ratio(peer, "smooth-limiter");
    target(`ahead of ${peer}`, ahead > 1, `it takes ${times(ahead)} as long`);
  }
}

console.log("\ntryAcquire(), refused");
{
  const limiter = RateLimiter.create(1e-6);
  limiter.tryAcquire();
  const bucket = new TokenBucket({ bucketSize: 1, tokensPerInterval: 1, interval: 1e12 });
  const tokens = new TokenLimiter({ tokensPerInterval: 1, interval: 1e12 });
  tokens.tryRemoveTokens(1);
  const memory = new RateLimiterMemory({ points: 1, duration: 0 });
  const refusals = () => {};
  await memory.consume("key");
  const ratio = await compare({
    "performance.now()": clock,
    "smooth-limiter": () => keep(limiter.tryAcquire()),
    "limiter TokenBucket": () => keep(bucket.tryRemoveTokens(1)),
    "limiter RateLimiter (reads no bucket)": () => keep(tokens.tryRemoveTokens(1)),
    "rate-limiter-flexible (rejects)": () => memory.consume("key").catch(refusals),
  });
  const ours = ratio("smooth-limiter", "performance.now()");
  target("refused, at most 1.3 × performance.now()", ours <= 1.3, times(ours));
}
