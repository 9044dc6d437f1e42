// The requests that the playground sends.

export interface Arrival {
  readonly atMs: number;
  /** The caller that sends it, for the colours. */
  readonly tenant: string;
  /** The caller itself, where several share a colour. */
  readonly caller?: string;
}

export const TRAFFIC_KINDS = {
  steady: "steady",
  bursts: "bursts",
  cold: "cold start: a pause between two busy spells",
  tenants: "two tenants: one steady, one in bursts",
  three: "three tenants: the third sends all at once",
  drawn: "drawn by hand",
  log: "an access log",
} as const;

export type TrafficKind = keyof typeof TRAFFIC_KINDS;

/** How many bars a drawing has, and how high one may be. */
export const BARS = 40;
export const HIGHEST_BAR = 35;

/** Only so many requests are simulated: the page stays quick, and the picture readable. */
export const MOST_ARRIVALS = 1000;

export interface Traffic {
  readonly kind: TrafficKind;
  readonly seconds: number;
  /** Requests per second. */
  readonly rate: number;
  /** Requests in a burst. */
  readonly burst: number;
  /** Requests in each of the BARS equal parts of the time, where they are drawn. */
  readonly bars: readonly number[];
  /** The requests of an access log. */
  readonly log: readonly Arrival[];
  /** The time of the log at which the picture begins, s. */
  readonly logFrom: number;
}

/** The requests in the order of their time, which is a whole number of microseconds. */
export function arrivalsOf(traffic: Traffic): Arrival[] {
  const { kind, seconds, rate, burst, bars, log, logFrom } = traffic;
  const end = seconds * 1000;
  switch (kind) {
    case "steady":
      return sorted(evenly(0, end, rate, "a"), end);
    case "bursts":
      return sorted(bursts(end, rate, burst, "a"), end);
    case "cold":
      return sorted(
        [...evenly(0, end * 0.3, rate, "a"), ...evenly(end * 0.65, end, rate, "a")],
        end,
      );
    case "tenants":
      return sorted([...evenly(0, end, rate / 2, "a"), ...bursts(end, rate / 2, burst, "b")], end);
    case "three":
      return sorted(
        [
          ...evenly(0, end, rate / 3, "a"),
          ...bursts(end, rate / 3, burst, "b"),
          ...evenly(end * 0.05, end * 0.05 + burst * 3, 1000, "c"),
        ],
        end,
      );
    case "drawn":
      return sorted(
        bars.flatMap((count, i) => {
          const width = end / BARS;
          return evenly(i * width, (i + 1) * width, (count * 1000) / width, "a");
        }),
        end,
      );
    case "log":
      return sorted(
        log
          .map((arrival) => ({ ...arrival, atMs: arrival.atMs - logFrom * 1000 }))
          .filter(({ atMs }) => atMs >= 0),
        end,
      );
  }
}

function evenly(fromMs: number, untilMs: number, perSecond: number, tenant: string): Arrival[] {
  const count = Math.round(((untilMs - fromMs) * perSecond) / 1000);
  return Array.from({ length: count }, (_, i) => ({
    atMs: fromMs + (i * 1000) / perSecond,
    tenant,
  }));
}

/** Bursts of requests 5 ms apart, so often that the mean is the rate. */
function bursts(end: number, rate: number, burst: number, tenant: string): Arrival[] {
  const everyMs = (burst * 1000) / rate;
  const first = Math.min(everyMs / 2, end / 5);
  const starts = Array.from({ length: Math.ceil(end / everyMs) }, (_, i) => first + i * everyMs);
  return starts.flatMap((start) => evenly(start, start + burst * 5, 200, tenant));
}

function sorted(arrivals: readonly Arrival[], end: number): Arrival[] {
  return arrivals
    .map((arrival) => ({ ...arrival, atMs: Math.round(arrival.atMs * 1000) / 1000 }))
    .filter(({ atMs }) => atMs < end)
    .sort((a, b) => a.atMs - b.atMs);
}
