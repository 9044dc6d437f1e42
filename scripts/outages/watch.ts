import { openSync, readSync } from "node:fs";
import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import type { Pulse } from "./pulse.ts";

/** Calls that seem to take longer are looked at one by one, when V8 has told what it did, ms. */
const SLOW_MS = 0.2;

/** A call that has begun. */
interface Call {
  readonly asked: number;
  /** How long the process had waited for a core before that, ms; and how long it had computed. */
  readonly waited: number;
  readonly cpu: NodeJS.CpuUsage;
  /** Whether the event loop has turned since: only then may the call have waited for something. */
  readonly turned: () => boolean;
}

/** A call that seems to have been slow: how long without other processes, and what was computed, ms. */
interface SlowCall {
  readonly asked: number;
  readonly answered: number;
  readonly ready: number;
  readonly cpuMs: number;
}

/** A time in which calls were answered without Redis, by the machine's monotonic clock, ms. */
export interface Absence {
  readonly from: number;
  readonly until: number;
}

/**
 * How long calls take that do not wait for permits. Those that were under way when Redis was lost
 * pay for it; those that come later ought not to.
 */
export class Watch {
  readonly #pulse: Pulse;
  readonly #tell: (isAway: boolean) => void;
  readonly #absences: Absence[] = [];
  /** Of those who were under way when Redis was lost, the slow ones. */
  readonly #waited: { readonly asked: number; readonly answered: number }[] = [];
  /** Of those who came later, nanoseconds. */
  readonly #then: RecordableHistogram = createHistogram();
  readonly #slow: SlowCall[] = [];
  /** How many came later and were not answered in the turn in which they asked. */
  #turns = 0;
  #awaySince: number | undefined;

  constructor(pulse: Pulse, tell: (isAway: boolean) => void = () => {}) {
    this.#pulse = pulse;
    this.#tell = tell;
  }

  get isAway(): boolean {
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

  end(call: Call, isAway: boolean): void {
    const { asked } = call;
    const answered = performance.now();
    if (isAway !== this.isAway) this.#turn(answered, isAway);
    if (this.#awaySince === undefined) return;
    if (asked < this.#awaySince) this.#wait(asked, answered);
    else this.#record(call, answered);
  }

  #wait(asked: number, answered: number): void {
    if (answered > asked + 5) this.#waited.push({ asked, answered });
  }

  /** Without what others did to the process. */
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
   * How long it took without V8's own pauses, ms: both are at least what the call had of a core. In a
   * pause others may have had it, and outside of one V8's other threads compute too.
   */
  #ownMs({ asked, answered, ready, cpuMs }: SlowCall): number {
    const paused = this.#pulse.paused(asked, answered);
    return Math.min(Math.min(ready, cpuMs) - paused.cpuMs, answered - asked - paused.ms);
  }

  #turn(at: number, isAway: boolean): void {
    if (this.#awaySince !== undefined) {
      this.#absences.push({ from: monotonic(this.#awaySince), until: monotonic(at) });
    }
    this.#awaySince = isAway ? at : undefined;
    this.#tell(isAway);
  }

  /** When all is over, and once. */
  report() {
    if (this.#awaySince !== undefined) this.#turn(performance.now(), false);
    for (const call of this.#slow) this.#took(this.#ownMs(call));
    const first = this.#waited.map(
      ({ asked, answered }) => answered - asked - this.#pulse.stoodStill(asked, answered),
    );
    const ofThen = (nanos: number) => (this.#then.count === 0 ? 0 : nanos / 1e6);
    return {
      absences: this.#absences as readonly Absence[],
      /** The slowest of those who were under way, ms, less the time in which the process stood still. */
      firstMs: Math.max(0, ...first),
      /** How many came later; how many of them were not answered in the turn in which they asked. */
      calls: this.#then.count + this.#turns,
      turns: this.#turns,
      /** Of the others: 99.9 % took no longer, ms; and the slowest. */
      mostlyMs: ofThen(this.#then.percentile(99.9)),
      thenMs: ofThen(this.#then.max),
    };
  }
}

/** The first numbers there: nanoseconds on a core, and ready to run without one. Linux has it. */
const schedule = openSchedule();
const bytes = Buffer.alloc(100);

function openSchedule(): number | undefined {
  try {
    return openSync("/proc/self/schedstat", "r");
  } catch {
    return undefined;
  }
}

/** How long others have kept this process from running, ms. */
function waitedForCore(): number {
  if (schedule === undefined) return 0;
  const length = readSync(schedule, bytes, 0, bytes.length, 0);
  return Number(bytes.toString("latin1", 0, length).split(" ")[1]) / 1e6;
}

/** The clock that is one for all processes, at an instant of `performance.now()`. */
function monotonic(at: number): number {
  return Number(process.hrtime.bigint()) / 1e6 - (performance.now() - at);
}
