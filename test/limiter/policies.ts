/** The policies that the limiter suites run over, each at a given pace. */
import {
  fixedWindow,
  gcra,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";

export const bursty = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond });
export const warmingUp = (permitsPerSecond: number) =>
  smoothWarmingUp({ permitsPerSecond, warmupMs: 1000 });
export const prefilled = (permitsPerSecond: number) =>
  smoothBursty({ permitsPerSecond, burstSeconds: 2, prefilled: true });

/** At that pace in windows of so many permits, which come back together. */
export const WINDOW = 3;
const windowed = (permitsPerSecond: number) => ({
  limit: WINDOW,
  windowMs: (WINDOW * 1000) / permitsPerSecond,
});
export const onEpoch = (permitsPerSecond: number) => fixedWindow(windowed(permitsPerSecond));
export const onFirst = (permitsPerSecond: number) =>
  fixedWindow({ ...windowed(permitsPerSecond), align: "first" });
/** Their window is whole microseconds, as many as buckets want. */
export const inBuckets = (permitsPerSecond: number) => {
  const { limit, windowMs } = windowed(permitsPerSecond);
  return slidingWindow({ limit, windowMs: Math.round(windowMs * 100) / 100 });
};
export const logged = (permitsPerSecond: number) => slidingLog(windowed(permitsPerSecond));
export const cells = (permitsPerSecond: number) =>
  gcra({ limit: permitsPerSecond, periodMs: 1000, burst: 3 });
export const bucket = (refill: number) => tokenBucket({ capacity: 4, refill, everyMs: 1000 });
export const stepped = (permitsPerSecond: number) =>
  tokenBucket({ capacity: 3, refill: 1, everyMs: 1000 / permitsPerSecond, stepped: true });
export const shaper = (permitsPerSecond: number) =>
  leakyBucket({ permitsPerSecond, capacity: 1000 });
export const nodelay = (permitsPerSecond: number) =>
  leakyBucket({ permitsPerSecond, capacity: 1000, nodelay: 4 });
export const slack = (permitsPerSecond: number) =>
  leakyBucket({ permitsPerSecond, capacity: Infinity, slack: 10 });
