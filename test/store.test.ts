/** Every limiter suite on `casStore` over a map, and on `memoryStore()`. */
import * as assert from "uvu/assert";
import { fairShares } from "../src/index.ts";
import {
  type CasBackend,
  casStore,
  type Store,
  StoreLimiter,
  type StoreLimiterOptions,
  StoreRateLimiter,
} from "../src/store.ts";
import { memoryStore } from "../src/testing/index.ts";
import { type Kind, limiterSuite, type MakeLimiter } from "./local/limiter.suite.ts";
import { pacedPolicies, pacedSample } from "./support/algorithms/samples.ts";
import { MapBackend } from "./support/stores/map-backend.ts";
import { isTried, suite } from "./support/suite.ts";

const longTimeout = { timeoutMs: 60_000 };

const arguments_ = suite("arguments of StoreRateLimiter");

arguments_("a unit behind the warm-up is refused, as by RateLimiter", () => {
  const withUnit = StoreRateLimiter.create as (...args: unknown[]) => unknown;
  assert.throws(() => withUnit(memoryStore(), "a", 5, 1, "SECONDS"), /unit must be left out/);
});

arguments_.run();

let names = 0;

for (const [s, [storeName, store]] of (
  [
    ["casStore", casStore(new MapBackend() satisfies CasBackend)],
    ["memoryStore", memoryStore()],
  ] satisfies [string, Store][]
).entries()) {
  const make =
    (policies: Kind["policies"], more: StoreLimiterOptions = {}): MakeLimiter =>
    (clock, { name = `limiter ${names++}`, ...options } = {}) =>
      StoreLimiter.create(store, name, policies, { ...longTimeout, ...more, ...options, clock });
  const makeRate =
    (warmupMs: number): MakeLimiter =>
    (clock, { name = `limiter ${names++}`, ...options } = {}) =>
      StoreRateLimiter.create(store, name, 7, { ...longTimeout, ...options, clock, warmupMs });
  const kinds: [string, MakeLimiter, (rate: number) => Kind["policies"], number][] = [
    ["StoreRateLimiter, bursty", makeRate(0), pacedSample("bursty"), 1],
    ["StoreRateLimiter, warming up", makeRate(1000), pacedSample("warming up"), 1],
  ];
  for (const [name, { at, together = 1 }] of pacedPolicies) {
    const prefetch = { permits: 3 };
    kinds.push([`StoreLimiter, ${name}`, make(at(7)), at, together]);
    kinds.push([`fair StoreLimiter, ${name}`, make(at(7), { order: fairShares() }), at, together]);
    kinds.push([`StoreLimiter that prefetches, ${name}`, make(at(7), { prefetch }), at, together]);
  }
  kinds.push([
    "fair StoreLimiter that prefetches, bursty",
    make(pacedSample("bursty")(7), { order: fairShares(), prefetch: { permits: 3 } }),
    pacedSample("bursty"),
    1,
  ]);
  for (const [k, [name, makeLimiter, policies, together]] of kinds.entries()) {
    if (!isTried(s, k)) continue;
    limiterSuite(`${name}, on ${storeName}`, makeLimiter, {
      together,
      // the three forms of one policy follow each other, and begin with another one for the next policy
      sample: { oneIn: 3, place: k + Math.floor(k / 3) },
      policies: policies(7),
      faster: policies(11),
      slower: policies(2),
    });
  }
}
