import { RateLimiter } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import {
  DAY,
  EPOCH_MS,
  everything,
  isExact,
  KINDS,
  RATES,
  STRETCH,
  takeOnTheSpot,
  tryAtEveryMs,
} from "../support/exactness.ts";
import { isTriedOneIn, suite } from "../support/suite.ts";

const cases = RATES.flatMap((rate, r) =>
  Object.entries(KINDS)
    .filter((_, k) => isTriedOneIn(3, r, k))
    .map(([kind, options]) => ({ rate, kind, options })),
);

const maths = suite("exactness of the arithmetic");

for (const { rate, kind, options } of cases) {
  // one permit at a time takes seconds at a million a second: see exactness.soak.ts
  for (const permits of rate > 300_000 ? [1000] : [1, 1000]) {
    maths(`${rate}/s, ${kind}, ${permits} at a time`, () => takeOnTheSpot(rate, options, permits));
  }
  // above it a day's microseconds leave too few bits for an interval: limiters restart their count
  // in time
  if (rate <= 300_000) {
    maths(`${rate}/s, ${kind}, a day later`, () => takeOnTheSpot(rate, options, 1, DAY));
  }
}

maths.run();

const limiter = suite("exactness of the limiter");

for (const { rate, kind, options } of cases) {
  // acquire(1) at the other rates takes too long here: see exactness.soak.ts
  for (const permits of rate < 10 ? [1, 1000] : [1000]) {
    limiter(`${rate}/s, ${kind}, acquire(${permits})`, async () => {
      const clock = new FakeClock(EPOCH_MS);
      const paced = RateLimiter.create(rate, { ...options, clock });
      const micros = () => Math.round(clock.now() * 1000);
      const stretchMs = STRETCH / 1000 + (1000 * permits) / rate;
      let start = 0;
      let taken = 0;
      let took = 0;
      const worker = async () => {
        await paced.acquire(everything(rate));
        await paced.acquire(permits);
        start = micros();
        for (; took < STRETCH; took = micros() - start) {
          await paced.acquire(permits);
          taken += permits;
        }
      };
      const working = worker();
      // the burst costs a second, warming up from cold a second and a half
      await clock.advance(1500 + (1000 * permits) / rate + stretchMs);
      await working;
      isExact(rate, taken, took);
    });
  }
}

for (const rate of RATES.slice(2)) {
  for (const permits of rate > 300_000 ? [1000] : [1, 1000]) {
    limiter(`${rate}/s, tryAcquire(${permits}) at every ms`, () =>
      tryAtEveryMs(rate, permits, EPOCH_MS),
    );
  }
}

limiter.run();
