import { openSync, readSync } from "node:fs";
import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import type { Heartbeat } from "./heartbeat.ts";

/** Slower calls are examined one by one at the end, when V8's pauses are known, ms. */
const SLOW_MS = 0.2;

/** A call that has started. */
interface Call {
  readonly asked: number;
  /** How long the process had waited for a core before the call, ms; and how long it had computed. */
  readonly waited: number;
  readonly cpu: NodeJS.CpuUsage;
  /** Whether the event loop has turned since then: only in that case can the call have waited. */
  readonly turned: () => boolean;
}

/** A call that seems slow, ms: `ready` is its duration without the time given to other processes, `cpuMs` its processor time. */
interface SlowCall {
  readonly asked: number;
  readonly answered: number;
  readonly ready: number;
  readonly cpuMs: number;
}

/** A period in which calls were answered without Redis, by the machine's monotonic clock, ms. */
export interface Absence {
  readonly from: number;
  readonly until: number;
}

/**
 * Measures how long calls take that do not wait for permits. Calls in flight when Redis is lost may be
 * slow; later calls should be fast.
 */
export class Watch {
  readonly #heartbeat: Heartbeat;
  readonly #tell: (isUnavailable: boolean) => void;
  readonly #absences: Absence[] = [];
  /** The slow ones among the calls that were in flight when Redis was lost. */
  readonly #waited: { readonly asked: number; readonly answered: number }[] = [];
  /** Durations of the later calls, ns. */
  readonly #then: RecordableHistogram = createHistogram();
  readonly #slow: SlowCall[] = [];
  /** The number of later calls that were not answered in the same turn of the event loop. */
  #turns = 0;
  #awaySince: number | undefined;

  constructor(heartbeat: Heartbeat, tell: (isUnavailable: boolean) => void = () => {}) {
    this.#heartbeat = heartbeat;
    this.#tell = tell;
  }

  get isUnavailable(): boolean {
    return this.#awaySince !== undefined;
  }

  begin(): Call {
    let turned = false;
    setImmediate(() => {
      turned = true;
    });
    const [waited, cpu] = [waitedForCore(), process.cpuUsage()];
    return { asked: performance.now(), waited, cpu, turned: () => turned };
  }

  end(call: Call, isUnavailable: boolean): void {
    const { asked } = call;
    const answered = performance.now();
    if (isUnavailable !== this.isUnavailable) this.#turn(answered, isUnavailable);
    if (this.#awaySince === undefined) return;
    if (asked < this.#awaySince) this.#wait(asked, answered);
    else this.#record(call, answered);
  }

  #wait(asked: number, answered: number): void {
    if (answered > asked + 5) this.#waited.push({ asked, answered });
  }

  /** Records the call's duration without the time that other processes took. */
  #record({ asked, waited, cpu, turned }: Call, answered: number): void {
    if (turned()) {
      this.#turns += 1;
      this.#wait(asked, answered);
      return;
    }
    const { user, system } = process.cpuUsage(cpu);
    const ready = answered - asked - (waitedForCore() - waited);
    const cpuMs = (user + system) / 1000 || ready;
    const ms = Math.min(ready, cpuMs);
    if (ms > SLOW_MS) this.#slow.push({ asked, answered, ready, cpuMs });
    else this.#took(ms);
  }

  #took(ms: number): void {
    this.#then.record(Math.max(1, Math.ceil(1e6 * ms)));
  }

  /**
   * Returns the call's duration without V8's pauses, ms. There are two estimates, and neither is below the call's
   * own processor time, so the smaller one counts. Elapsed time is too long when another process had the core;
   * processor time is too long when V8's other threads computed as well.
   */
  #ownMs({ asked, answered, ready, cpuMs }: SlowCall): number {
    const paused = this.#heartbeat.paused(asked, answered);
    return Math.min(Math.min(ready, cpuMs) - paused.cpuMs, answered - asked - paused.ms);
  }

  #turn(at: number, isUnavailable: boolean): void {
    if (this.#awaySince !== undefined) {
      this.#absences.push({ from: monotonic(this.#awaySince), until: monotonic(at) });
    }
    this.#awaySince = isUnavailable ? at : undefined;
    this.#tell(isUnavailable);
  }

  /** Returns the results. Call it once, at the end. */
  report() {
    if (this.#awaySince !== undefined) this.#turn(performance.now(), false);
    for (const call of this.#slow) this.#took(this.#ownMs(call));
    const first = this.#waited.map(
      ({ asked, answered }) => answered - asked - this.#heartbeat.stoodStill(asked, answered),
    );
    const ofThen = (nanos: number) => (this.#then.count === 0 ? 0 : nanos / 1e6);
    return {
      absences: this.#absences as readonly Absence[],
      /** The slowest call in flight when Redis was lost, ms, less the time in which the process stood still. */
      firstMs: Math.max(0, ...first),
      /** The number of later calls, and how many of them were not answered in the same turn of the event loop. */
      calls: this.#then.count + this.#turns,
      turns: this.#turns,
      /** Of the other later calls, ms: 99.9 % took no longer than `mostlyMs`; `thenMs` is the slowest. */
      mostlyMs: ofThen(this.#then.percentile(99.9)),
      thenMs: ofThen(this.#then.max),
    };
  }
}

/** A file of Linux. Its first two numbers are the nanoseconds on a core and the nanoseconds of waiting for one. */
const schedule = openSchedule();
const bytes = Buffer.alloc(100);

function openSchedule(): number | undefined {
  try {
    return openSync("/proc/self/schedstat", "r");
  } catch {
    return undefined;
  }
}

/** Returns how long this process has waited for a core, ms. */
function waitedForCore(): number {
  if (schedule === undefined) return 0;
  const length = readSync(schedule, bytes, 0, bytes.length, 0);
  return Number(bytes.toString("latin1", 0, length).split(" ")[1]) / 1e6;
}

/** Converts an instant of `performance.now()` to the clock that all processes share, ms. */
function monotonic(at: number): number {
  return Number(process.hrtime.bigint()) / 1e6 - (performance.now() - at);
}
