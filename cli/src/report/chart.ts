/**
 * Charts as the text of SVG, for the report of a replay and for the pages of the site. Only CSS says
 * which colours and which size of text they have.
 */
import { duration, number } from "../words.ts";
import type { Part, Points, RuleReport } from "./report.ts";

/** Between the edges of a chart and its field. */
export const LEFT = 52;
export const RIGHT = 10;

/** A place in a chart. */
export type Spot = readonly [x: number, y: number];

export function svg(
  width: number,
  height: number,
  label: string,
  parts: readonly string[],
): string {
  return `<svg class="chart" role="img" aria-label="${escaped(label)}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">${parts.join("")}</svg>`;
}

/** The x of an instant; later ones than the end are there. */
export function xOf(width: number, spanMs: number, atMs: number): number {
  return LEFT + Math.min(1, atMs / spanMs) * (width - LEFT - RIGHT);
}

/** The y of a value; larger ones than `top` are there. */
export function yOf(value: number, top: number, bottom: number): number {
  return bottom - (Math.min(value, top) / top) * (bottom - 8);
}

/** Continues a path to each spot: first across, then up or down. */
export function steps(spots: readonly Spot[]): string {
  let before = Number.NaN;
  return spots
    .map(([x, y]) => {
      const [at, level] = [round(x), round(y)];
      if (level === before) return "";
      before = level;
      return `H${at}V${level}`;
    })
    .join("");
}

export function yAxis(width: number, low: number, top: number, bottom: number): string {
  const high = top >= 10 ? Math.floor(top) : Number(top.toPrecision(2));
  const y = round(yOf(high, top, bottom));
  const text = high < 10_000 ? high : `${round(high / 1000)}k`;
  return `<path class="chart-axis" d="M${LEFT} 4V${bottom}M${LEFT} ${y}H${width - RIGHT}"/>
    <text x="${LEFT - 4}" y="${y}" dy="0.35em" text-anchor="end">${text}</text>
    <text x="${LEFT - 4}" y="${bottom}" text-anchor="end">${low}</text>`;
}

/** @param marks the x of each, and the lines of text below it */
export function xAxis(
  width: number,
  y: number,
  marks: readonly (readonly [x: number, ...lines: string[]])[],
): string {
  const drawn = marks.map(([at, ...lines]) => {
    const x = round(at);
    const anchor = x < LEFT + 12 ? "start" : x > width - 30 ? "end" : "middle";
    const texts = lines.map(
      (line, i) =>
        `<text x="${x}" y="${y + 4}" dy="${round(1.2 * (i + 1))}em" text-anchor="${anchor}">${line}</text>`,
    );
    return `<path class="chart-axis" d="M${x} ${y}v4"/>${texts.join("")}`;
  });
  return `<path class="chart-axis" d="M${LEFT} ${y}H${width - RIGHT}"/>${drawn.join("")}`;
}

/** To tenths. */
export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Text as it can stand in markup: logs contain text from unknown clients. */
export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}

// -- the points of a rule --

const PARTS: readonly Part[] = ["passed", "waited", "refused"];
const KEYS: Readonly<Record<string, string>> = { peak: "busiest second" };
const HEIGHT = 232;
const BOTTOM = 176;
/** The most places that tell their numbers when they are pointed at. */
const MOST_TITLES = 120;
const SECOND = 1000;
const DAY = 86_400 * SECOND;
/** Distances between the times on an axis, s. */
const DISTANCES = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
  ...[3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800],
];

/**
 * Draws as HTML how many requests a second passed, waited and were refused: areas that stand on each other.
 *
 * @param zoneMinutes the zone in which times are shown, minutes east of UTC
 */
export function drawRule(rule: RuleReport, zoneMinutes: number, width: number): string {
  const { name, actor, rpu, periodMs, points } = rule;
  const { stepMs, startMs, counts, peaks } = points;
  if (peaks.length === 0) return "<p>no requests</p>";
  // per second; a limit for each actor cannot be drawn in a chart of all actors together
  const limit = actor === "all" ? (rpu * SECOND) / periodMs : 0;
  const spanMs = peaks.length * stepMs;
  let below = peaks.map(() => 0);
  const layers = PARTS.map((part) => {
    below = below.map((sum, i) => sum + ((counts[part][i] ?? 0) * SECOND) / stepMs);
    return { part, sums: below };
  });
  const hasPeaks = stepMs > SECOND;
  const highest = Math.max(...below, ...(hasPeaks ? peaks : []), limit);
  const top = 1.08 * Math.max(highest, 1e-6);
  const x = (i: number) => xOf(width, spanMs, i * stepMs);
  const path = (sums: readonly number[]) =>
    `${steps(sums.map((sum, i) => [x(i), yOf(sum, top, BOTTOM)]))}H${width - RIGHT}`;
  // the highest is painted first, the others cover its lower part
  const areas = layers.toReversed().map(({ part, sums }) => {
    const isEmpty = counts[part].every((count) => count === 0);
    const d = `M${LEFT} ${BOTTOM}${path(sums)}V${BOTTOM}Z`;
    return isEmpty ? "" : `<path class="chart-${part}" d="${d}"/>`;
  });
  const y = (value: number) => round(yOf(value, top, BOTTOM));
  const chart = svg(width, HEIGHT, `requests a second over time: ${name}`, [
    yAxis(width, 0, top, BOTTOM),
    ...areas,
    hasPeaks ? `<path class="chart-peak" d="M${LEFT} ${y(peaks[0] ?? 0)}${path(peaks)}"/>` : "",
    limit > 0 ? `<path class="chart-limit" d="M${LEFT} ${y(limit)}H${width - RIGHT}"/>` : "",
    xAxis(width, BOTTOM, timesOf(startMs + zoneMinutes * 60 * SECOND, spanMs, width)),
    titles(points, zoneMinutes, x),
  ]);
  const legend = [...PARTS, ...(hasPeaks ? ["peak"] : []), ...(limit > 0 ? ["limit"] : [])];
  const keys = legend.map((key) => `<span class="chart-${key}">${KEYS[key] ?? key}</span>`);
  return `<p class="chart-legend">${keys.join(" ")}</p>${chart}<p class="chart-caption">${captionOf(points, zoneMinutes)}</p>`;
}

/** @param localMs the beginning, in a zone that is shown as if it were UTC */
function timesOf(localMs: number, spanMs: number, width: number) {
  const most = Math.max(1, Math.floor(width / 110));
  const fitting = DISTANCES.find((seconds) => spanMs / (seconds * SECOND) <= most);
  const everyMs = fitting ? fitting * SECOND : DAY * Math.ceil(spanMs / most / DAY);
  const first = Math.ceil(localMs / everyMs) * everyMs;
  const count = Math.max(0, Math.floor((localMs + spanMs - first) / everyMs) + 1);
  return Array.from({ length: count }, (_, i) => {
    const atMs = first + i * everyMs;
    const [date = "", time = ""] = new Date(atMs).toISOString().split("T");
    const clock = time.slice(0, everyMs < 60 * SECOND ? 8 : 5);
    const lines = everyMs >= DAY ? [date] : i === 0 || atMs % DAY === 0 ? [clock, date] : [clock];
    return [xOf(width, spanMs, atMs - localMs), ...lines] as const;
  });
}

/** Invisible fields that tell their numbers when they are pointed at. */
function titles(
  { stepMs, startMs, counts, peaks }: Points,
  zoneMinutes: number,
  x: (i: number) => number,
): string {
  const size = Math.ceil(peaks.length / MOST_TITLES);
  const fields = Array.from({ length: Math.ceil(peaks.length / size) }, (_, field) => {
    const [from, to] = [field * size, Math.min((field + 1) * size, peaks.length)];
    const sum = (part: Part) => counts[part].slice(from, to).reduce((all, count) => all + count, 0);
    const sums = PARTS.map((part) => [part, sum(part)] as const).filter(([, count]) => count > 0);
    if (sums.length === 0) return "";
    const words = sums.map(([part, count]) => `${number(count)} ${part}`).join(", ");
    const peak = number(Math.max(...peaks.slice(from, to)));
    const busiest = (to - from) * stepMs > SECOND ? `; ${peak} in the busiest second` : "";
    const time = timeIn(zoneMinutes, startMs + from * stepMs).slice(0, 19);
    const title = `${time}, ${duration((to - from) * stepMs)}: ${words}${busiest}`;
    return `<path class="chart-hover" d="M${round(x(from))} 4H${round(x(to))}V${BOTTOM}H${round(x(from))}Z"><title>${title}</title></path>`;
  });
  return fields.join("");
}

/** An instant in a zone. */
export function timeIn(zoneMinutes: number, ms: number): string {
  return new Date(ms + zoneMinutes * 60_000).toISOString().replace("T", " ").replace("Z", "");
}

/** "UTC+05:30". */
export function zoneName(minutes: number): string {
  if (minutes === 0) return "UTC";
  const two = (count: number) => String(count).padStart(2, "0");
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** Says what a point is. */
function captionOf({ stepMs }: Points, zoneMinutes: number): string {
  const step = duration(stepMs);
  const what =
    stepMs === SECOND
      ? `Requests in each ${step}.`
      : `Areas: the mean of each ${step}. Line: the busiest second of each ${step}.`;
  return `${what} Times: ${zoneName(zoneMinutes)}.`;
}
