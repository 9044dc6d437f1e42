// Draws series as SVG. All charts of a width share one time axis.

import {
  xOf as at,
  LEFT,
  RIGHT,
  round,
  svg as shared,
  steps,
  xAxis,
  yAxis,
  yOf,
} from "../../cli/src/report/chart.ts";
import { algorithmOf, warmingUp, warmUpIntervalMs } from "../model/algorithms.ts";
import { boundAt, type Call, type Series, tenantsOf } from "../model/simulate.ts";

const COLOURS = 6;

/** The caller's class of colours: the same in every chart. */
export function colourOf(calls: readonly Call[], tenant: string): string {
  return `pg-tenant-${tenantsOf(calls).indexOf(tenant) % COLOURS}`;
}

/** The x of an instant. */
export function xOf(width: number, seconds: number, atMs: number): number {
  return at(width, seconds * 1000, atMs);
}

/** Three rows: when calls arrived, when they were granted, and when they were refused; slanted lines are waits. */
export function drawCalls(
  calls: readonly Call[],
  seconds: number,
  width: number,
  label: string,
): string {
  const x = (ms: number) => round(xOf(width, seconds, ms));
  const colours = new Map(tenantsOf(calls).map((tenant) => [tenant, colourOf(calls, tenant)]));
  const marks = calls.map(({ atMs, startedMs, refusedMs, tenant }) => {
    const endMs = Math.min(startedMs ?? refusedMs ?? seconds * 1000, seconds * 1000);
    const wait = endMs > atMs ? `<path class="pg-wait" d="M${x(atMs)} 24L${x(endMs)} 56"/>` : "";
    const arrived = `<path d="M${x(atMs)} 8v16"/>`;
    const went =
      startedMs === undefined ? "" : `<path class="pg-went" d="M${x(startedMs)} 56v16"/>`;
    const refused =
      refusedMs === undefined ? "" : `<path class="pg-refused" d="M${x(refusedMs)} 80v10"/>`;
    return `<g class="${colours.get(tenant)}">${wait}${arrived}${went}${refused}</g>`;
  });
  const rows = [
    [20, "arrived"],
    [68, "granted"],
    [89, "refused"],
  ].map(([y, text]) => `<text x="${LEFT - 4}" y="${y}" text-anchor="end">${text}</text>`);
  return svg(width, 116, label, [...rows, ...marks, axis(width, seconds, 94)]);
}

/** The sums: what arrived, what was granted, and the most that the algorithm promises to grant. */
export function drawSums(series: Series, other: Series | undefined, width: number): string {
  const { calls, seconds, permits } = series;
  const end = seconds * 1000;
  const arrived = sumsOf(
    calls.map(({ atMs }) => atMs),
    permits,
  );
  const went = sumsOf(startsOf(calls), permits);
  const beside = other === undefined ? [] : sumsOf(startsOf(other.calls), permits);
  const bound = Array.from({ length: 201 }, (_, i): Point => {
    const atMs = (end * i) / 200;
    return [atMs, boundAt(series, atMs)];
  });
  const top = Math.max(1, arrived.at(-1)?.[1] ?? 0, went.at(-1)?.[1] ?? 0) * 1.15;
  const paint = (points: readonly Point[], name: string) =>
    `<path class="${name}" d="${line(points, end, top, width, seconds, 150)}"/>`;
  const shown = bound.filter(([, y]) => y <= top);
  return svg(width, 176, "Sums of permits over time", [
    yAxis(width, 0, top, 150),
    paint(arrived, "pg-arrived"),
    shown.length > 1
      ? `<path class="pg-bound" d="${shown.map(([ms, y], i) => `${i === 0 ? "M" : "L"}${round(xOf(width, seconds, ms))} ${round(yOf(y, top, 150))}`).join("")}"/>`
      : "",
    other === undefined ? "" : paint(beside, "pg-other"),
    paint(went, "pg-sum"),
    axis(width, seconds, 154),
  ]);
}

/** The number that decides, and how many wait. */
export function drawState(series: Series, width: number): string {
  const { samples, seconds, algorithm, numbers } = series;
  const { most, state } = algorithmOf(algorithm);
  // a limiter that stores nothing has an axis, too
  const top = most(numbers) || 1;
  const points = samples.map(({ atMs, level }): Point => [atMs, level]);
  const path = points.map(
    ([ms, level], i) =>
      `${i === 0 ? "M" : "L"}${round(xOf(width, seconds, ms))} ${round(yOf(level, top, 90))}`,
  );
  const [first, last] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 0];
  const area = `${path.join("")}L${round(xOf(width, seconds, last))} 90L${round(xOf(width, seconds, first))} 90Z`;
  return svg(width, 116, `Over time: ${state}`, [
    yAxis(width, 0, top, 90),
    path.length > 1 ? `<path class="pg-area" d="${area}"/>` : "",
    axis(width, seconds, 94),
  ]);
}

/** How many wait: each tenant in its colour, one above the other. */
export function drawWaiting(series: Series, width: number): string {
  const { samples, seconds, calls } = series;
  const tenants = tenantsOf(calls);
  const sums = samples.map(({ waiting }) => [...waiting.values()].reduce((sum, n) => sum + n, 0));
  const top = Math.max(1, ...sums);
  const below = samples.map(() => 0);
  const layers = tenants.map((tenant) => {
    const bars = samples.flatMap(({ atMs, waiting }, i) => {
      const count = waiting.get(tenant) ?? 0;
      const from = below[i] ?? 0;
      if (count === 0) return [];
      below[i] = from + count;
      const x = xOf(width, seconds, atMs);
      const next = xOf(width, seconds, samples[i + 1]?.atMs ?? atMs);
      const [bottom, y] = [yOf(from, top, 60), yOf(from + count, top, 60)];
      return [`M${round(x)} ${round(bottom)}V${round(y)}H${round(next)}V${round(bottom)}Z`];
    });
    return `<path class="pg-queue ${colourOf(calls, tenant)}" d="${bars.join("")}"/>`;
  });
  return svg(width, 86, "Over time: calls that wait", [
    yAxis(width, 0, top, 60),
    ...layers,
    axis(width, seconds, 64),
  ]);
}

/** What each tenant was granted, in its colour; dashed, what it was granted beside it. */
export function drawShares(series: Series, other: Series | undefined, width: number): string {
  const { calls, seconds } = series;
  const runs = [other, series].filter((run) => run !== undefined);
  const lines = runs.flatMap((run) =>
    tenantsOf(calls).map((tenant) => {
      const own = run.calls.filter((call) => call.tenant === tenant);
      const kind = run === series ? "pg-share" : "pg-share pg-beside";
      const points = sumsOf(startsOf(own), run.permits);
      return { name: `${kind} ${colourOf(calls, tenant)}`, points };
    }),
  );
  const top = Math.max(1, ...lines.map(({ points }) => points.at(-1)?.[1] ?? 0)) * 1.1;
  return svg(width, 136, "Permits granted to each tenant over time", [
    yAxis(width, 0, top, 110),
    ...lines.map(
      ({ name, points }) =>
        `<path class="${name}" d="${line(points, seconds * 1000, top, width, seconds, 110)}"/>`,
    ),
    axis(width, seconds, 114),
  ]);
}

/** The warm-up's slope: what a permit costs by how many are stored, and where the limiter is now. */
export function drawSlope(series: Series, atMs: number, width: number): string {
  const { numbers, samples } = series;
  const policy = warmingUp(numbers);
  const { max: most, threshold } = policy;
  const stored = samples.findLast((sample) => sample.atMs <= atMs)?.level ?? most;
  const top = warmUpIntervalMs(policy, most) * 1.1;
  const x = (permits: number) => round(LEFT + (permits / most) * (width - LEFT - RIGHT));
  const y = (permits: number) => round(yOf(warmUpIntervalMs(policy, permits), top, 110));
  return svg(width, 150, "What a permit costs, ms, by how many permits are stored", [
    yAxis(width, 0, top, 110),
    `<path class="pg-area" d="M${x(stored)} 110V${y(stored)}${stored < threshold ? `L${x(threshold)} ${y(threshold)}` : ""}L${x(most)} ${y(most)}V110Z"/>`,
    `<path class="pg-sum" d="M${x(0)} ${y(0)}L${x(threshold)} ${y(threshold)}L${x(most)} ${y(most)}"/>`,
    `<circle class="pg-dot" cx="${x(stored)}" cy="${y(stored)}" r="6"/>`,
    `<text x="${x(0)}" y="126">0 stored: warm</text>`,
    `<text x="${x(most)}" y="126" text-anchor="end">${round(most)} stored: cold</text>`,
    `<text x="${x(most / 2)}" y="144" text-anchor="middle">now ${round(stored)} stored, ${round(warmUpIntervalMs(policy, stored))} ms a permit</text>`,
  ]);
}

/** Several numbers over time, each a line; they are equally far apart. */
export function drawLines(
  label: string,
  seconds: number,
  width: number,
  lines: readonly { readonly name: string; readonly values: readonly number[] }[],
): string {
  const top = Math.max(1, ...lines.flatMap(({ values }) => values)) * 1.1;
  const paths = lines.map(({ name, values }) => {
    const spots = values.map((value, i) => {
      const x = xOf(width, seconds, (i * seconds * 1000) / values.length);
      return `${round(x)} ${round(yOf(value, top, 130))}`;
    });
    return `<path class="${name}" d="M${spots.join("L")}"/>`;
  });
  return svg(width, 156, label, [yAxis(width, 0, top, 130), ...paths, axis(width, seconds, 134)]);
}

type Point = readonly [atMs: number, sum: number];

function startsOf(calls: readonly Call[]): number[] {
  return calls
    .flatMap(({ startedMs }) => (startedMs === undefined ? [] : [startedMs]))
    .sort((a, b) => a - b);
}

function sumsOf(instants: readonly number[], permits: number): Point[] {
  return instants.map((atMs, i) => [atMs, (i + 1) * permits]);
}

/** A line that rises at each instant. */
function line(
  points: readonly Point[],
  end: number,
  top: number,
  width: number,
  seconds: number,
  bottom: number,
): string {
  const spots = points.map(
    ([ms, sum]) => [xOf(width, seconds, ms), yOf(sum, top, bottom)] as const,
  );
  return `M${LEFT} ${bottom}${steps(spots)}H${round(xOf(width, seconds, end))}`;
}

function axis(width: number, seconds: number, y: number): string {
  const most = Math.floor(width / 60);
  const every = [1, 2, 5, 10, 20].find((step) => seconds / step <= most) ?? 30;
  const marks = Array.from({ length: Math.floor(seconds / every) + 1 }, (_, i) => {
    return [xOf(width, seconds, i * every * 1000), `${i * every} s`] as const;
  });
  return xAxis(width, y, marks);
}

/** With a cursor, which the view moves. */
function svg(width: number, height: number, label: string, parts: readonly string[]): string {
  return shared(width, height, label, [
    ...parts,
    `<path class="pg-cursor" d="M-9 0V${height - 22}"/>`,
  ]);
}
