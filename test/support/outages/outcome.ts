// Compares what was granted during a fault with what docs/outage-bounds.md allows.

import type { Fault } from "./faults.ts";
import {
  type Holdings,
  LARGEST,
  type Mode,
  RATE,
  type Report,
  STORE,
  TIMEOUT_MS,
  WAITERS,
  type Watched,
  WORKERS,
} from "./limits.ts";
import type { Absence } from "./watch.ts";

/** A caller whose timer is late by up to this is treated as if it had asked on time, ms. */
const CREDIT_MS = 10;
/** A process does not know what the others were granted in this time before an outage (ms), nor in one more batch. */
const NEWS_MS = 60;
/** The longest time between two probes for Redis, ms. */
const PROBE_MS = 1000;

interface Course {
  readonly healedAt: number;
  /** The time from there until the last process was back on Redis, ms. */
  readonly backMs: number;
  /** The holdings of each process at the marks during the fault. */
  readonly marks: readonly (readonly Holdings[])[];
}

/**
 * The number of permits by which all processes together were ahead of rate x time at the worst moment,
 * counted from a limiter that began with an empty store: `used` is the measured value, `most` the allowed one.
 */
export interface Ahead {
  readonly used: number;
  readonly most: number;
}

export class Outcome {
  readonly title: string;
  readonly backMs: number;
  /** Two probe intervals, and the time-out of a call that was in flight when Redis recovered. */
  readonly mostBackMs = 2 * PROBE_MS + TIMEOUT_MS;
  readonly #fault: Fault;
  readonly #reports: readonly Report[];
  readonly #course: Course;

  constructor(fault: Fault, reports: readonly Report[], course: Course) {
    this.title = fault.title;
    this.backMs = course.backMs;
    this.#fault = fault;
    this.#reports = reports;
    this.#course = course;
  }

  get hung(): number {
    return this.#reports.reduce((sum, { hung }) => sum + hung, 0);
  }

  /** Timers and listeners that a limiter has left behind. */
  get left(): number {
    const leftBy = ({ before, after }: Report) => {
      // all limiters of a client share one listener for each of four events
      const listeners = after.listeners - before.listeners - 4;
      return Math.max(0, after.timers - before.timers) + Math.max(0, listeners);
    };
    return this.#reports.reduce((sum, report) => sum + leftBy(report), 0);
  }

  /** The growth of each kind of resource from the mark before the last to the last, in the process where it grew most. */
  get grown(): Holdings {
    const { marks } = this.#course;
    const more = (what: keyof Holdings) => {
      const growth = (marks.at(-1) ?? []).map(
        (last, i) => last[what] - (marks.at(-2)?.[i]?.[what] ?? 0),
      );
      return Math.max(0, ...growth);
    };
    return { heap: more("heap"), timers: more("timers"), listeners: more("listeners") };
  }

  /** How often a process was without Redis. */
  get absences(): number {
    return this.#reports.reduce((sum, { watches }) => sum + watches.local.absences.length, 0);
  }

  /** The longest time for which one of the processes did not run, ms. */
  get stalledMs(): number {
    return Math.max(...this.#reports.map(({ stalledMs }) => stalledMs));
  }

  /** How calls without waiting went: those in flight when Redis was lost (`firstMs`), and the later ones. */
  calls(watched: Watched) {
    const watches = this.#reports.map(({ watches }) => watches[watched]);
    return {
      count: watches.reduce((sum, { calls }) => sum + calls, 0),
      firstMs: Math.max(...watches.map(({ firstMs }) => firstMs)),
      turns: watches.reduce((sum, { turns }) => sum + turns, 0),
      mostlyMs: Math.max(...watches.map(({ mostlyMs }) => mostlyMs)),
      thenMs: Math.max(...watches.map(({ thenMs }) => thenMs)),
    };
  }

  /** At the worst moment before Redis recovered. */
  during(): Ahead {
    const { healedAt } = this.#course;
    const shares = WORKERS * LARGEST + this.#unknown + this.#beside(healedAt);
    return { used: this.#ahead("local", healedAt), most: shares + this.#late };
  }

  /** At the worst moment of the whole time. */
  inAll(mode: Mode): Ahead {
    const { most } = this.atTheEnd(mode);
    const early = mode === "local" ? ((WORKERS - 1) / WORKERS) * STORE : 0;
    return { used: this.#ahead(mode), most: most + early };
  }

  /** At the end: permits used without Redis have been charged to it, and later callers have waited for them. */
  atTheEnd(mode: Mode): Ahead {
    const used = this.#aheadAt(mode).at(-1) ?? 0;
    const common = LARGEST + this.#late + this.#lost;
    if (mode !== "local") return { used, most: common };
    const lent = (WORKERS - 1) * LARGEST;
    return { used, most: common + lent + this.#unknown + this.#beside(Infinity) };
  }

  #ahead(mode: Mode, until = Infinity): number {
    return this.#aheadAt(mode, until).reduce((most, each) => Math.max(most, each), 0);
  }

  /** One entry for each permit: by how much all processes were ahead when it was used. */
  #aheadAt(mode: Mode, until = Infinity): readonly number[] {
    const bornAt = Math.min(...this.#reports.map((report) => report.bornAt));
    const used = this.#reports.flatMap((report) => report.used[mode]).sort((a, b) => a - b);
    return used.filter((at) => at < until).map((at, i) => i + 1 - (RATE * (at - bornAt)) / 1000);
  }

  /** Permits that the other processes were granted after the last reply of Redis. */
  get #unknown(): number {
    return ((WORKERS - 1) / WORKERS) * ((RATE * NEWS_MS) / 1000 + LARGEST);
  }

  /** Permits that processes without Redis granted from their shares while another process still had the whole limit. */
  #beside(until: number): number {
    const absences = this.#reports.map(({ watches }) => watches.local.absences);
    const shared = absences.flatMap((own, i) => own.map((absence) => besideMs(absence, i)));
    const beside = shared.reduce((sum, ms) => sum + ms, 0);
    return (RATE / WORKERS) * (beside / 1000);

    function besideMs({ from, until: end }: Absence, i: number): number {
      const to = Math.min(end, until);
      if (to <= from) return 0;
      // while all processes are without Redis, each has only its share
      const edges = absences
        .filter((_, j) => j !== i)
        .flat()
        .flatMap((absence) => [absence.from, absence.until])
        .filter((at) => at > from && at < to);
      const points = [from, ...edges.sort((a, b) => a - b), to];
      return points.slice(1).reduce((sum, point, k) => {
        const start = points[k] ?? point;
        const middle = (start + point) / 2;
        const isUnavailable = (each: readonly Absence[]) =>
          each.some((absence) => absence.from <= middle && middle < absence.until);
        return absences.every(isUnavailable) ? sum : sum + point - start;
      }, 0);
    }
  }

  /** Permits of callers that were held up, and use them together with callers that are on time. */
  get #late(): number {
    const promised = WAITERS * LARGEST;
    const lateOf = ({ stalledMs }: Report) =>
      Math.min(promised, (RATE * (stalledMs + CREDIT_MS)) / 1000);
    return this.#reports.reduce((sum, report) => sum + lateOf(report), 0);
  }

  get #lost(): number {
    const { lostState, lostSeconds = 0 } = this.#fault.costs;
    const promised = WORKERS * WAITERS * LARGEST;
    if (lostState) return promised + LARGEST;
    return Math.min(RATE * lostSeconds, promised + STORE + LARGEST);
  }
}
