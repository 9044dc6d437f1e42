/**
 * What do counters and channels cost, without a subscriber and with one? `--than <index.js>` compares with another build of the
 * package, such as one from before a change.
 */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { do_not_optimize as keep } from "mitata";
import { diagnostics, RateLimiter } from "smooth-limiter";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

type Make = typeof RateLimiter;
const PLENTY = 1e9;

const flag = process.argv.indexOf("--than");
const build = flag < 0 ? undefined : pathToFileURL(resolve(process.argv[flag + 1] ?? "")).href;
const other: { RateLimiter: Make } | undefined = build && (await import(build));

/** Each returns the call to measure, on a limiter of the given build. */
const calls: Record<string, (make: Make) => () => unknown> = {
  "tryAcquire(), let in": (make) => {
    const limiter = make.create(PLENTY);
    return () => keep(limiter.tryAcquire());
  },
  "tryAcquire(), refused": (make) => {
    const limiter = make.create(1e-6);
    limiter.tryAcquire();
    return () => keep(limiter.tryAcquire());
  },
  "await acquire(), let in": (make) => {
    const limiter = make.create(PLENTY);
    return () => limiter.acquire();
  },
};
const clock = () => keep(performance.now());

for (const [name, make] of Object.entries(calls)) {
  console.log(`\n${name}, without a subscriber`);
  const ratio = await compare({
    "performance.now()": clock,
    "smooth-limiter": make(RateLimiter),
    ...(other && { "the other build": make(other.RateLimiter) }),
  });
  if (other) {
    const ours = ratio("smooth-limiter", "the other build");
    target("at most 1.05 × the other build", ours <= 1.05, times(ours));
  } else if (name.startsWith("tryAcquire")) {
    const ours = ratio("smooth-limiter", "performance.now()");
    target("at most 1.3 × performance.now()", ours <= 1.3, times(ours));
  }
}

let events = 0;
diagnostics.wait.subscribe(() => {
  events += 1;
});
diagnostics.refused.subscribe(() => {
  events += 1;
});
for (const [name, make] of Object.entries(calls)) {
  console.log(`\n${name}, with a subscriber`);
  const before = events;
  await compare({ "performance.now()": clock, "smooth-limiter": make(RateLimiter) });
  console.log(events > before ? "each call published an event" : "no event: no call waited");
}
