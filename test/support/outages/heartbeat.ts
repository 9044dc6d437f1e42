import { once } from "node:events";
import { type NodeTracing, Session } from "node:inspector/promises";

const EVERY_MS = 5;
/**
 * V8's work for which the program stops: garbage collections, and functions that go to the optimising
 * compiler. The compilation at a function's first call is not among them: it counts as the caller's cost.
 */
const PAUSE = /^V8\.(GC|MarkCandidates|OptimizeCode|InstallOptimized|DeoptimizeCode)/;
const CATEGORIES = ["v8", "disabled-by-default-v8.compile"];

interface Gap {
  readonly from: number;
  readonly until: number;
}

/** A pause as V8's trace reports it, µs: its start by the monotonic clock, its duration, and its processor time. */
interface Pause {
  readonly ts: number;
  readonly dur: number;
  readonly tdur: number;
}

/** An event of the trace. Not every event has a duration. */
type Traced = Partial<Pause> & { readonly name: string; readonly ts: number };

/** Measures for how long the process did not run its program, for whatever reason. */
export class Heartbeat {
  readonly #gaps: Gap[] = [];
  readonly #pauses: Pause[] = [];
  readonly #session = new Session();
  readonly #timer: NodeJS.Timeout;

  static async start(): Promise<Heartbeat> {
    const heartbeat = new Heartbeat();
    await heartbeat.#trace();
    return heartbeat;
  }

  private constructor() {
    let last = performance.now();
    this.#timer = setInterval(() => {
      const now = performance.now();
      if (now > last + EVERY_MS + 1) this.#gaps.push({ from: last + EVERY_MS, until: now });
      last = now;
    }, EVERY_MS);
  }

  /** Returns how long the process stood still between two instants, ms. */
  stoodStill(from: number, until: number): number {
    return this.#gaps.reduce(
      (sum, gap) => sum + Math.max(0, Math.min(until, gap.until) - Math.max(from, gap.from)),
      0,
    );
  }

  /** Returns V8's own pauses between two instants: their duration and processor time, ms. Call it after `stop()`. */
  paused(from: number, until: number): { readonly ms: number; readonly cpuMs: number } {
    const bornAt = Number(process.hrtime.bigint()) / 1e3 - 1e3 * performance.now();
    const [first, last] = [bornAt + 1e3 * from, bornAt + 1e3 * until];
    let [ms, cpuMs, end] = [0, 0, 0];
    for (const { ts, dur, tdur } of this.#pauses) {
      const isWithinAnother = ts < end;
      if (isWithinAnother || ts + dur <= first || ts >= last) continue;
      end = ts + dur;
      ms += dur / 1e3;
      cpuMs += tdur / 1e3;
    }
    return { ms, cpuMs };
  }

  /** Ends the measurement. @returns the longest gap, ms */
  async stop(): Promise<number> {
    clearInterval(this.#timer);
    const traced = once(this.#session, "NodeTracing.tracingComplete");
    await this.#session.post("NodeTracing.stop");
    await traced;
    this.#session.disconnect();
    this.#pauses.sort((a, b) => a.ts - b.ts || b.dur - a.dur);
    return Math.max(0, ...this.#gaps.map(({ from, until }) => until - from));
  }

  async #trace(): Promise<void> {
    this.#session.connect();
    this.#session.on("NodeTracing.dataCollected", ({ params }) => this.#collect(params));
    await this.#session.post("NodeTracing.start", {
      traceConfig: { includedCategories: CATEGORIES },
    });
  }

  #collect({ value }: NodeTracing.DataCollectedEventDataType): void {
    for (const { name, ts, dur, tdur } of value as Traced[]) {
      if (dur !== undefined && PAUSE.test(name)) this.#pauses.push({ ts, dur, tdur: tdur ?? dur });
    }
  }
}
