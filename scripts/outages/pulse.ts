import { PerformanceObserver } from "node:perf_hooks";

const EVERY_MS = 5;

interface Gap {
  readonly from: number;
  readonly until: number;
}

/** Tells for how long the process did not run, whoever kept it from that. */
export class Pulse {
  readonly #gaps: Gap[] = [];
  /** While its garbage was collected. */
  readonly #collections: Gap[] = [];
  readonly #collector: PerformanceObserver;
  readonly #timer: NodeJS.Timeout;

  constructor() {
    this.#collector = new PerformanceObserver((list) => {
      for (const { startTime, duration } of list.getEntries()) {
        this.#collections.push({ from: startTime, until: startTime + duration });
      }
    });
    this.#collector.observe({ entryTypes: ["gc"] });
    let last = performance.now();
    this.#timer = setInterval(() => {
      const now = performance.now();
      if (now > last + EVERY_MS + 1) this.#gaps.push({ from: last + EVERY_MS, until: now });
      last = now;
    }, EVERY_MS);
  }

  /** How much of the time between two instants it stood still, ms. */
  stoodStill(from: number, until: number): number {
    return overlap(this.#gaps, from, until);
  }

  /** How much of it its garbage was collected, ms. */
  collected(from: number, until: number): number {
    return overlap(this.#collections, from, until);
  }

  /** @returns the longest gap, ms */
  stop(): number {
    clearInterval(this.#timer);
    this.#collector.disconnect();
    return Math.max(0, ...this.#gaps.map(({ from, until }) => until - from));
  }
}

function overlap(gaps: readonly Gap[], from: number, until: number): number {
  return gaps.reduce(
    (sum, gap) => sum + Math.max(0, Math.min(until, gap.until) - Math.max(from, gap.from)),
    0,
  );
}
