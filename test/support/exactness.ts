/**
 * What `exactness.test.ts` and `exactness.soak.ts` (which takes minutes) share: over ten seconds
 * of its clock's time a limiter grants what its rate allows, to a hundred-thousandth.
 */

import { type Clock, RateLimiter, type Timer } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import {
  type SmoothPolicy,
  smooth,
  smoothBursty,
  smoothWarmingUp,
} from "../../src/algorithms/smooth/smooth.ts";

export const RATES = [3, 7, 80_000, 300_000, 1_500_000, 10_000_000];

export interface Kind {
  readonly burstSeconds?: number;
  readonly warmupMs?: number;
}

export const KINDS: Readonly<Record<string, Kind>> = {
  bursty: {},
  "without a burst": { burstSeconds: 0 },
  "warming up, once it is warm": { warmupMs: 1000 },
};

/** Microseconds: ten seconds. */
export const STRETCH = 10_000_000;

/** Microseconds. */
export const DAY = 86_400_000_000;

/** The current order of magnitude of Unix time, ms. */
export const EPOCH_MS = 1_750_000_000_000;

/** @param micros from the first release to the last one, whose own permits are not counted */
export function isExact(rate: number, permits: number, micros: number): void {
  const off = permits / micros / (rate / 1e6) - 1;
  const facts = `${permits} permits in ${micros} us are ${(off * 100).toFixed(6)} % off ${rate}/s`;
  assert.ok(micros >= STRETCH, facts);
  assert.ok(Math.abs(off) < 1e-5, facts);
}

/** A request that uses the whole store of each kind at once, so that the warming-up one is warm. */
export function everything(rate: number): number {
  return Math.max(1, rate);
}

/**
 * Acquires again and again, each time at the very instant at which the previous call is released.
 * The clock jumps from one wake-up to the next without giving promises time to run, which is what
 * `FakeClock` needs most of its own time for.
 */
export function acquireOnTheSpot(
  rate: number,
  options: Kind,
  permits: number,
  idleDays: number,
): void {
  const clock = new JumpingClock();
  const limiter = RateLimiter.create(rate, { ...options, clock });
  clock.micros = idleDays * DAY;
  const acquire = (n: number) => {
    void limiter.acquire(n);
    clock.jump();
  };
  acquire(everything(rate));
  acquire(permits);
  const start = clock.micros;
  let taken = 0;
  for (; clock.micros - start < STRETCH; taken += permits) acquire(permits);
  isExact(rate, taken, clock.micros - start);
}

class JumpingClock implements Clock {
  micros = 0;
  #wakeAt = 0;
  #wake: (() => void) | undefined;

  now(): number {
    return this.micros / 1000;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    this.#wakeAt = Math.ceil(timeMs * 1000 - 0.01);
    this.#wake = wake;
    return {
      cancel: () => {
        this.#wake = undefined;
      },
    };
  }

  /** Advances to the next wake-up, if there is one. */
  jump(): void {
    for (let wake = this.#wake; wake !== undefined; wake = this.#wake) {
      this.#wake = undefined;
      this.micros = this.#wakeAt;
      wake();
    }
  }
}

/** Takes again and again, each time at the earliest possible instant. */
export function takeOnTheSpot(rate: number, options: Kind, permits: number, from = 0): void {
  const policy: SmoothPolicy =
    options.warmupMs === undefined
      ? smoothBursty({ permitsPerSecond: rate, ...options })
      : smoothWarmingUp({ permitsPerSecond: rate, warmupMs: options.warmupMs });
  const state = smooth.start(policy, from);
  smooth.take(policy, state, from, everything(rate));
  const start = state.nextFree;
  let taken = 0;
  for (let at = start; at - start < STRETCH; taken += permits) {
    smooth.take(policy, state, at, permits);
    at = smooth.earliest(policy, state, at, permits);
  }
  isExact(rate, taken, state.nextFree - start);
}

/** Takes as often as possible at every millisecond. */
export async function tryAtEveryMs(rate: number, permits: number, startMs: number): Promise<void> {
  const clock = new FakeClock(startMs);
  const bursty = RateLimiter.create(rate, { clock });
  bursty.tryAcquire(permits);
  let taken = permits;
  for (let ms = 1; ms * 1000 <= STRETCH; ms++) {
    await clock.advance(1);
    while (bursty.tryAcquire(permits)) taken += permits;
  }
  // the permits are paid for when the next one is available
  const paid = Math.round((clock.now() - startMs + bursty.peek(permits).waitMs) * 1000);
  isExact(rate, taken, paid);
}
