/** Days and months as the calendar of a time zone has them, and quotas without an end. */
import { type RuleNumbers, UNITS } from "./rule.ts";

/** A period of a calendar. */
interface Period {
  /** Different for each period: "2026-11". */
  readonly label: string;
  /** Unix time, ms; `endMs` may be Infinity. */
  readonly startMs: number;
  readonly endMs: number;
}

export interface Calendar {
  /** No period is longer, ms. */
  readonly longestMs: number;
  /** @param unixMs Unix time, ms */
  periodAt(unixMs: number): Period;
}

const EVER: Period = { label: "ever", startMs: -Infinity, endMs: Infinity };

/** @returns undefined if the rule's windows are on the clock's grid, or begin with a request */
export function calendarOf(
  numbers: Pick<RuleNumbers, "unit" | "align" | "timeZone">,
): Calendar | undefined {
  const { unit, align, timeZone = "UTC" } = numbers;
  if (unit === "ever") return { longestMs: UNITS.ever, periodAt: () => EVER };
  const isOnCalendar = numbers.timeZone !== undefined || unit === "month";
  if (!isOnCalendar || align === "first") return undefined;
  return new ZoneCalendar(timeZone, unit === "month");
}

/** In a day of 24 hours a clock may be set back. */
const LONGEST_DAY_MS = 27 * UNITS.hour;
const LONGEST_MONTH_MS = 31 * UNITS.day + 3 * UNITS.hour;

class ZoneCalendar implements Calendar {
  readonly longestMs: number;
  readonly #format: Intl.DateTimeFormat;
  #latest: Period = { label: "", startMs: Infinity, endMs: Infinity };

  constructor(timeZone: string, isByMonth: boolean) {
    this.longestMs = isByMonth ? LONGEST_MONTH_MS : LONGEST_DAY_MS;
    this.#format = new Intl.DateTimeFormat("en", {
      timeZone,
      calendar: "gregory",
      numberingSystem: "latn",
      year: "numeric",
      month: "2-digit",
      ...(!isByMonth && { day: "2-digit" }),
    });
  }

  periodAt(unixMs: number): Period {
    const { startMs, endMs } = this.#latest;
    if (unixMs < startMs || unixMs >= endMs) this.#latest = this.#find(unixMs);
    return this.#latest;
  }

  #find(unixMs: number): Period {
    const label = this.#labelAt(unixMs);
    return {
      label,
      startMs: this.#edge(label, unixMs - this.longestMs, unixMs, false),
      endMs: this.#edge(label, unixMs, unixMs + this.longestMs, true),
    };
  }

  /** The same in every locale and every version of its data, because keys on Redis contain it. */
  #labelAt(unixMs: number): string {
    const parts = new Map(
      this.#format.formatToParts(unixMs).map(({ type, value }) => [type, value]),
    );
    const label = `${parts.get("year")}-${parts.get("month")}`;
    return parts.has("day") ? `${label}-${parts.get("day")}` : label;
  }

  /** Finds the whole ms in (from, to] at which the label begins or ends: periods do not repeat. */
  #edge(label: string, from: number, to: number, isEnd: boolean): number {
    let [before, after] = [Math.floor(from), Math.ceil(to)];
    while (after - before > 1) {
      const middle = Math.floor((before + after) / 2);
      if ((this.#labelAt(middle) === label) !== isEnd) after = middle;
      else before = middle;
    }
    return after;
  }
}
