import {
  acquireOnTheSpot,
  EPOCH_MS,
  KINDS,
  RATES,
  takeOnTheSpot,
  tryAtEveryMs,
} from "../support/exactness.ts";
import { suite } from "../support/suite.ts";

const test = suite("exactness of the limiter, one by one", { timeoutMs: 300_000 });

for (const rate of RATES) {
  for (const [kind, options] of Object.entries(KINDS)) {
    if (rate > 300_000) {
      test(`${rate}/s, ${kind}, arithmetic`, () => takeOnTheSpot(rate, options, 1));
    }
    // a hundred million waiters take a minute: one run is enough
    if (rate < 10_000_000 || options.burstSeconds === 0) {
      test(`${rate}/s, ${kind}, acquire(1), a year after creation`, () =>
        acquireOnTheSpot(rate, options, 1, 365));
    }
  }
}

for (const rate of RATES.filter((each) => each > 300_000)) {
  test(`${rate}/s, tryAcquire(1) at every ms`, () => tryAtEveryMs(rate, 1, EPOCH_MS));
}

test.run();
