/**
 * Sample policies of every registered algorithm. The suites that run over the registration take
 * theirs from here, so a new algorithm is covered by all of them once it has an entry.
 */
import fc from "fast-check";
import type { Policy } from "../../../src/algorithms/algorithm.ts";
import { algorithms } from "../../../src/algorithms/index.ts";
import type { SlidingLogPolicy } from "../../../src/algorithms/sliding-log/sliding-log.ts";
import {
  type SlidingWindowPolicy,
  slidingWindowAlgorithm,
} from "../../../src/algorithms/sliding-window/sliding-window.ts";
import {
  type FixedWindowPolicy,
  fixedWindow,
  gcra,
  leakyBucket,
  type Policies,
  type SmoothPolicy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../../src/index.ts";

/** A policy at a given rate, permits per second. */
export interface Paced {
  readonly at: (permitsPerSecond: number) => Policy;
  /** How many permits come back at one instant, after they were drained at one. Default 1. */
  readonly together?: number;
}

interface PacedPolicies {
  readonly at: (permitsPerSecond: number) => Policies;
  readonly together?: number;
}

/** Policies on which the properties of `algorithm.suite.ts` are checked. */
export interface Everyday {
  readonly policies: fc.Arbitrary<Policy>;
  /** It lends in advance: a request may exceed `remaining`. Default false. */
  readonly lends?: boolean;
  /**
   * A cancelled promise leaves the bound as it is. Default true; false where permits given back
   * early may go together with those promised for later instants.
   */
  readonly cancels?: boolean;
  /** Permits that one request asks for. */
  readonly permits?: fc.Arbitrary<number>;
  /** What each limiter grants beyond its numbers, however small its share is. Default 0. */
  readonly lent?: number;
  /**
   * By how much longer a caller may have to wait, microseconds, where a deficit was taken at once
   * and not as it came. Default 0.
   */
  readonly later?: (policy: Policy) => number;
  /** Seeds that once failed; every property is tried with them, too. */
  readonly seeds?: readonly number[];
}

export interface Samples {
  readonly paced: Readonly<Record<string, Paced>>;
  readonly everyday: Readonly<Record<string, Everyday>>;
  /** Any legal numbers, including the ends of the doubles: for the twins. */
  readonly wild: fc.Arbitrary<Policy>;
}

/** The largest request of the everyday histories. */
export const LARGEST_REQUEST = 7.25;

/** Permits per window of the paced window policies. */
export const WINDOW = 3;
const windowed = (permitsPerSecond: number) => ({
  limit: WINDOW,
  windowMs: (WINDOW * 1000) / permitsPerSecond,
});

/** Permits with exact sums: for others the last bit may decide over a microsecond. */
export const exactPermits = fc.constantFrom(1, 1, 1, 2, 3, 0.5);

// -- wild numbers --

const oddSize = fc.oneof(
  fc.constantFrom(1, 2, 3, 10, 0.1, 1 / 3, 0.5, 7.25, 1e-9, 1e6, 1e15, 1e21, 1e-7),
  fc.constantFrom(5e-324, 1e-300, 1e300, Number.MAX_VALUE),
  fc.integer({ min: 1, max: 100_000 }),
  fc.double({ min: 1e-3, max: 1e3, noNaN: true }),
);
export const wildPermits = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(1, 1, 1, 2, 5, 0.5, 1 / 3, 20) },
  { weight: 1, arbitrary: oddSize },
);
const permitsPerSecond = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(1, 3, 5, 7, 1000 / 3, 12_345.678, 80_000, 3_000_000) },
  { weight: 1, arbitrary: fc.constantFrom(Infinity, 0.001, 1e7, 1e-7, 1e21, 5e-324, 1e308) },
  { weight: 1, arbitrary: oddSize },
);
const duration = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom(1, 1000, 100, 0.5, 1e-3, 1e7) },
  { weight: 1, arbitrary: oddSize.filter((ms) => ms < 1e300) },
);
const coldFactor = fc.constantFrom(1, 1.5, 3, 3, 10, 1e6, 1e100);
const finiteRate = permitsPerSecond.filter((rate) => rate < Infinity);
/** The most permits that can be available at once, for algorithms that refuse larger requests. */
const size = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(1, 2, 5, 7, 20, 49, 0.5, 1e6) },
  { weight: 1, arbitrary: oddSize },
);
const extra = fc.oneof({ weight: 3, arbitrary: fc.constantFrom(0, 0, 1, 2, 5, 0.5) }, oddSize);
const wildBucket = fc.record({ capacity: size, refill: finiteRate, everyMs: duration });

/** Small, so that a history spans several windows, and windows of several policies overlap. */
const limit = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(1, 2, 3, 5, 10, 25) },
  { weight: 1, arbitrary: fc.constantFrom(0.7, 1.1, 10 / 3) },
  { weight: 1, arbitrary: oddSize },
);
const windowMs = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(1, 1000, 200, 600, 100, 5000) },
  { weight: 1, arbitrary: fc.constantFrom(0.001, 0.0004, 0.5, 1 / 3, 1e7, 1e12, 2 ** 24 / 1000) },
  { weight: 1, arbitrary: oddSize.filter((ms) => ms > 0 && ms <= 1e12) },
);

/** Includes numbers that `slidingWindow` refuses: their buckets are rounded. */
const anyBuckets = (numbers: { limit: number; windowMs: number; buckets: number }) =>
  slidingWindowAlgorithm.policy([numbers.limit, numbers.windowMs, numbers.buckets]);

// -- everyday numbers --

const everydayRate = fc.constantFrom(1, 5, 100 / 3, 2000);
const everydayWindow = {
  limit: fc.constantFrom(1, 2, 3, 5, 10, 7.5, 0.7),
  windowMs: fc.constantFrom(1000, 100, 1, 0.001, 333.333, 2500),
};
const everydayBucket = fc.record({
  capacity: fc.constantFrom(1, 3, 7, 10),
  refill: fc.constantFrom(1, 2, 2.5, 10),
  everyMs: fc.constantFrom(100, 1000),
});

const samples: Readonly<Record<string, Samples>> = {
  smooth: {
    paced: {
      bursty: { at: (rate) => smoothBursty({ permitsPerSecond: rate }) },
      "warming up": { at: (rate) => smoothWarmingUp({ permitsPerSecond: rate, warmupMs: 1000 }) },
      prefilled: {
        at: (rate) => smoothBursty({ permitsPerSecond: rate, burstSeconds: 2, prefilled: true }),
      },
    },
    everyday: {
      smooth: {
        policies: fc.oneof(
          fc
            .record({
              permitsPerSecond: everydayRate,
              burstSeconds: fc.constantFrom(0, 1, 2.5),
              prefilled: fc.boolean(),
            })
            .map(smoothBursty),
          fc
            .record({ permitsPerSecond: everydayRate, warmupMs: fc.constantFrom(500, 10_000) })
            .map(smoothWarmingUp),
        ),
        lends: true,
        cancels: false,
        lent: LARGEST_REQUEST,
        // a cold store has its price, which may have been paid already
        later(policy) {
          const { warmingUp, coolDown, max } = policy as SmoothPolicy;
          return warmingUp ? 1.5 * coolDown * max : 0;
        },
      },
    },
    wild: fc.oneof(
      fc
        .record({
          permitsPerSecond,
          burstSeconds: fc.oneof(fc.constantFrom(1, 1, 0, 0.5, 3), duration),
          prefilled: fc.boolean(),
        })
        .map(smoothBursty),
      fc.record({ permitsPerSecond, warmupMs: duration, coldFactor }).map(smoothWarmingUp),
    ),
  },

  gcra: {
    paced: {
      gcra: { at: (rate) => gcra({ limit: rate, periodMs: 1000, burst: 3 }) },
      "token bucket": { at: (rate) => tokenBucket({ capacity: 4, refill: rate, everyMs: 1000 }) },
      "leaky bucket": { at: (rate) => leakyBucket({ permitsPerSecond: rate, capacity: 1000 }) },
      "leaky bucket, nodelay": {
        at: (rate) => leakyBucket({ permitsPerSecond: rate, capacity: 1000, nodelay: 4 }),
      },
      "leaky bucket, slack": {
        at: (rate) => leakyBucket({ permitsPerSecond: rate, capacity: Infinity, slack: 10 }),
      },
    },
    // permits given back ahead of their time go to the next caller, beside those promised for later
    everyday: {
      gcra: {
        policies: fc
          .record({ limit: fc.constantFrom(1, 2, 5, 50), burst: fc.constantFrom(0, 1, 2, 5) })
          .map((one) => gcra({ ...one, periodMs: 1000 })),
        cancels: false,
        permits: exactPermits,
      },
      "token bucket": {
        policies: everydayBucket.map(tokenBucket),
        cancels: false,
        permits: exactPermits,
      },
      "leaky bucket": {
        policies: fc
          .record({
            permitsPerSecond: fc.constantFrom(1, 2, 5),
            capacity: fc.constantFrom(2, 5, 10),
            nodelay: fc.constantFrom(0, 1, 2),
            slack: fc.constantFrom(0, 3),
          })
          .map(leakyBucket),
        cancels: false,
        lends: true,
        permits: exactPermits,
      },
    },
    wild: fc.oneof(
      fc.record({ limit: finiteRate, periodMs: duration, burst: extra }).map(gcra),
      wildBucket.map(tokenBucket),
      fc
        .record({
          permitsPerSecond: finiteRate,
          capacity: fc.oneof({ weight: 5, arbitrary: extra }, fc.constant(Infinity)),
          nodelay: fc.oneof(fc.constantFrom(0, 0, 1, 2, 0.5, Infinity), oddSize),
          slack: extra,
        })
        .map(({ nodelay, ...numbers }) => {
          const { capacity } = numbers;
          const most = capacity < Infinity ? capacity : 100;
          return leakyBucket({ ...numbers, nodelay: Math.min(nodelay, most) });
        }),
    ),
  },

  "token-bucket": {
    paced: {
      "stepped bucket": {
        at: (rate) => tokenBucket({ capacity: 3, refill: 1, everyMs: 1000 / rate, stepped: true }),
      },
    },
    everyday: {
      "stepped bucket": {
        policies: everydayBucket.map((one) => tokenBucket({ ...one, stepped: true })),
        cancels: false,
        permits: exactPermits,
      },
    },
    wild: wildBucket.map((numbers) => tokenBucket({ ...numbers, stepped: true })),
  },

  "fixed-window": {
    paced: {
      "fixed window": { at: (rate) => fixedWindow(windowed(rate)), together: WINDOW },
      "fixed window from the first request on": {
        at: (rate) => fixedWindow({ ...windowed(rate), align: "first" }),
        together: WINDOW,
      },
    },
    everyday: {
      "fixed window": {
        policies: fc
          .record({ ...everydayWindow, align: fc.constantFrom("epoch", "first") })
          .map(fixedWindow),
        // from the first request on to the grid and back, with a window that ends sooner
        seeds: [865900369],
        // a window that opens with a request ends later than one that is open already
        later(policy) {
          const { first, window } = policy as FixedWindowPolicy;
          return first ? window : 0;
        },
      },
    },
    wild: fc.record({ limit, windowMs, align: fc.constantFrom("epoch", "first") }).map(fixedWindow),
  },

  "sliding-window": {
    paced: {
      "sliding window": {
        // whole microseconds for each of the ten buckets
        at: (rate) =>
          slidingWindow({ limit: WINDOW, windowMs: Math.round((WINDOW * 100_000) / rate) / 100 }),
        together: WINDOW,
      },
    },
    everyday: {
      "sliding window": {
        policies: fc
          .record({ ...everydayWindow, buckets: fc.constantFrom(1, 2, 3, 10, 10, 17) })
          .map(anyBuckets),
        // to the end of one window, and of another: all permits are counted as one
        later: (policy) => 2 * (policy as SlidingWindowPolicy).window,
      },
    },
    wild: fc
      .record({ limit, windowMs, buckets: fc.constantFrom(10, 10, 1, 2, 3, 7, 60) })
      .map(anyBuckets),
  },

  "sliding-log": {
    paced: { "sliding log": { at: (rate) => slidingLog(windowed(rate)), together: WINDOW } },
    everyday: {
      "sliding log": {
        policies: fc.record(everydayWindow).map(slidingLog),
        // entries that have expired by then were dropped for a promise that was given back
        seeds: [-767672285],
        // to the end of one window, and of another: all permits make one entry
        later: (policy) => 2 * (policy as SlidingLogPolicy).window,
      },
    },
    wild: fc.record({ limit, windowMs }).map(slidingLog),
  },
};

export function samplesOf(algorithm: string): Samples {
  const known = samples[algorithm];
  if (known !== undefined) return known;
  throw new Error(
    `test/support/algorithms/samples.ts has no samples of "${algorithm}": add an entry`,
  );
}

/** The paced policies of all registered algorithms, by name. */
export const pacedSamples: readonly (readonly [name: string, paced: Paced])[] = algorithms.flatMap(
  ({ name }) => Object.entries(samplesOf(name).paced),
);

const at = (name: string) => pacedSample(name);

/** The same, and several policies at once. */
export const pacedPolicies: readonly (readonly [name: string, paced: PacedPolicies])[] = [
  ...pacedSamples,
  ["one policy with a name", { at: (rate) => ({ requests: at("bursty")(rate) }) }],
  [
    "two policies",
    {
      at: (rate) => ({
        requests: at("prefilled")(rate),
        tokens: at("warming up")((rate * 3) / 7),
      }),
    },
  ],
  [
    "three policies",
    {
      at: (rate) => ({
        window: at("fixed window")(rate),
        pace: at("prefilled")((rate * 9) / 7),
        log: at("sliding log")((rate * 8) / 7),
      }),
      together: WINDOW,
    },
  ],
];

/** The policy with a certain pace, by its name. */
export function pacedSample(name: string): (permitsPerSecond: number) => Policy {
  const found = pacedSamples.find(([each]) => each === name);
  if (found === undefined) throw new Error(`no paced sample is called "${name}"`);
  return found[1].at;
}

/** A queue for a few permits, so that it is full at times. */
const shortQueue = (rate: number) => leakyBucket({ permitsPerSecond: rate, capacity: 2 });

/** Some policies of each registered algorithm, which differ in their numbers only. */
export const samplePolicies: readonly (readonly Policy[])[] = algorithms.map((algorithm) =>
  [...pacedSamples.map(([, paced]) => paced.at), shortQueue]
    .flatMap((policyAt) => [1, 5, 100 / 3].map(policyAt))
    .filter((policy) => policy.algorithm === algorithm),
);
