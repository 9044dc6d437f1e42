// Runs the library's limiters and draws their behaviour as docs/pictures/*.svg:
//
//   npm run draw             writes the pictures
//   npm run draw -- --check  fails if a picture is out of date

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Caller,
  type Door,
  mostInASecond,
  refusing,
  shared,
  tenants,
  waiting,
  watch,
} from "./draw/traffic.ts";

const FOLDER = "docs/pictures";
/** Sizes in pixels: the width of the field with the marks, the height of a row, and of what is above and below the field. */
const WIDTH = 760;
const ROW = 30;
const HEAD = 56;
const FOOT = 47;

/** Returns the arrivals (ms) of `count` requests, evenly spaced from `fromMs` to before `untilMs`. */
function burst(count: number, fromMs: number, untilMs: number): number[] {
  return Array.from({ length: count }, (_, i) => fromMs + ((untilMs - fromMs) * i) / count);
}

interface Picture {
  readonly file: string;
  readonly title: string;
  readonly subtitle: string;
  /** The callers of each row. */
  readonly rows: () => Promise<Readonly<Record<string, readonly Caller[]>>>;
  readonly arrivals: readonly number[];
  readonly seconds: number;
  /** Where the field begins, behind the names of the rows, pixels. */
  readonly left: number;
  /** The head of the column at the right, and the text of that column for a row. */
  readonly sums: string;
  readonly sum: (callers: readonly Caller[]) => string;
}

const REFUSED: readonly number[] = [
  ...burst(6, 50, 1550),
  ...burst(28, 1900, 2300),
  ...burst(40, 4060, 6060),
];
const WAITING: readonly number[] = [...burst(15, 500, 800), ...burst(15, 3500, 3800)];

/** A row for each limiter, with the same arrivals. */
async function rowsOf(doors: Readonly<Record<string, Door>>, arrivals: readonly number[]) {
  const rows: Record<string, Caller[]> = {};
  for (const [row, door] of Object.entries(doors)) rows[row] = await watch(door, arrivals);
  return rows;
}

const pictures: readonly Picture[] = [
  {
    file: "refused.svg",
    title: "tryAcquire(): which requests each algorithm grants",
    subtitle:
      "Each algorithm is set to 10 permits a second. Blue, above the line: granted. Orange, below: refused.",
    rows: () => rowsOf(refusing, REFUSED),
    arrivals: REFUSED,
    seconds: 6.25,
    left: 292,
    sums: "granted; most in any second",
    sum: (callers) => {
      const starts = startsOf(callers);
      return `${starts.length} of ${callers.length}; ${mostInASecond(starts)}`;
    },
  },
  {
    file: "waiting.svg",
    title: "acquire(): when each algorithm grants waiting requests",
    subtitle:
      "Each algorithm is set to 10 permits a second. Blue, above the line: granted (a number: how many at once). Orange, below: refused.",
    rows: () => rowsOf(waiting, WAITING),
    arrivals: WAITING,
    seconds: 5.75,
    left: 292,
    sums: "granted; longest wait",
    sum: servedOf,
  },
  {
    file: "fair.svg",
    title: "Three tenants on one limit of 10 a second: first in, first out (FIFO), and fair",
    subtitle:
      "Grey: all requests. Blue: granted. Both grant at the same instants, to different tenants.",
    rows: shared,
    arrivals: Object.values(tenants).flat(),
    seconds: 7,
    left: 216,
    sums: "granted; longest wait",
    sum: servedOf,
  },
];

function servedOf(callers: readonly Caller[]): string {
  const waits = callers.map(({ askedMs, startedMs = Number.NaN }) => startedMs - askedMs);
  const served = waits.filter((ms) => ms >= 0);
  return `${served.length} of ${waits.length}; ${(Math.max(...served) / 1000).toFixed(2)} s`;
}

function startsOf(callers: readonly Caller[]): number[] {
  return callers.flatMap(({ startedMs }) => startedMs ?? []);
}

/**
 * Draws a picture in few bytes, because the installed package contains it: lines at equal distances are
 * one thick, dashed line, and each mark is a vertex of a path that its marker draws.
 */
async function draw(picture: Picture): Promise<string> {
  const { left, seconds } = picture;
  const rows = Object.entries(await picture.rows());
  const height = ROW * (rows.length + 1);
  const perSecond = WIDTH / seconds;
  const half = Math.round(perSecond * 5) / 10;
  const marks = (instants: Iterable<number>) =>
    [...new Set([...instants].map((ms) => Math.round((ms * perSecond) / 100)))].toSorted(
      (a, b) => a - b,
    );
  const granted = rows.map(([, callers]) => marks(startsOf(callers)));
  const refused = rows.map(([, callers]) =>
    marks(callers.flatMap(({ askedMs, startedMs }) => (startedMs === undefined ? askedMs : []))),
  );
  const counts = rows.flatMap(([, callers], row) => {
    const starts = startsOf(callers);
    return [...new Set(starts)].map((ms) => {
      const count = starts.filter((start) => start === ms).length;
      const [x, y] = [Math.round((ms * perSecond) / 1000) + 4, (row + 1) * ROW];
      return count > 1 ? text(count, x, y) : "";
    });
  });
  const times = Array.from({ length: Math.floor(seconds * 2) + 1 }, (_, i) =>
    text(i / 2, Math.round((i * perSecond) / 2)),
  );
  const names = ["requests", ...rows.map(([name]) => name)];
  const sums = [picture.sums, ...rows.map(([, callers]) => picture.sum(callers))];
  const [width, all] = [left + WIDTH + 176, HEAD + height + FOOT];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${all}" viewBox="0 0 ${width} ${all}" font-family="Helvetica,Arial,sans-serif" font-size="12" fill="#344054">`,
    `<path fill="#fff" d="M0 0h${width}v${all}H0"/>`,
    `<text x="14" y="27" font-size="16" font-weight="bold" fill="#000">${picture.title}</text>`,
    text(picture.subtitle, 14, 42),
    `<g transform="translate(${left} ${HEAD})">`,
    dashes("#e4e7ec", `M0 ${height / 2}h${WIDTH + 1}`, height, 1, half),
    dashes("#888", `M0 ${height + 2}h${WIDTH + 1}`, 5, 1, half),
    dashes("#98a2b3", `M${WIDTH / 2} 15v${height - 29}`, WIDTH, 0.7, ROW),
    `<g text-anchor="middle" fill="#101828" transform="translate(0 ${height + 16})">${times.join("")}</g>`,
    `<text text-anchor="middle" font-size="11" font-weight="bold" x="${WIDTH / 2}" y="${height + 31}">seconds</text>`,
    column(names, `text-anchor="end" fill="#101828" transform="translate(-10 19)"`),
    column(sums, `font-size="11" transform="translate(${WIDTH + 12} 18)"`),
    `<g transform="translate(0 15)"><g transform="scale(.1)">`,
    strokes("#667085", "M0-80v160", 0, [marks(picture.arrivals)]),
    strokes("#1f5fbf", "M0-135v130", 1, granted),
    strokes("#d9580d", "M0 5v70", 1, refused),
    `</g><g fill="#1f5fbf" font-size="11" transform="translate(0 -4)">${counts.join("")}</g></g></g></svg>\n`,
  ].join("");
}

/** Draws equally distant lines across a line. */
function dashes(color: string, line: string, across: number, width: number, step: number): string {
  const gap = Math.round((step - width) * 10) / 10;
  return `<path stroke="${color}" stroke-width="${across}" stroke-dasharray="${width} ${gap}" d="${line}"/>`;
}

function text(content: string | number, x: number, y = 0): string {
  const position = `${x === 0 ? "" : ` x="${x}"`}${y === 0 ? "" : ` y="${y}"`}`;
  return `<text${position}>${content}</text>`;
}

function column(texts: readonly string[], attributes: string): string {
  return `<g ${attributes}>${texts.map((each, row) => text(each, 0, row * ROW)).join("")}</g>`;
}

/** Draws a stroke at each instant (tenths of a pixel) of each row. */
function strokes(
  color: string,
  stroke: string,
  firstRow: number,
  marks: readonly (readonly number[])[],
): string {
  const id = color.slice(1);
  const lines = marks.map((instants, i) => {
    if (instants.length === 0) return "";
    const steps = instants.slice(1).map((at, k) => at - (instants[k] ?? 0));
    return `M${instants[0]} ${(firstRow + i) * ROW * 10}${steps.length > 0 ? "h" : ""}${steps.join(" ")}`;
  });
  return `<marker id="${id}" markerUnits="userSpaceOnUse" overflow="visible"><path stroke="${color}" stroke-width="15" d="${stroke}"/></marker><path style="marker:url(#${id})" d="${lines.join("")}"/>`;
}

for (const picture of pictures) {
  const file = join(FOLDER, picture.file);
  const svg = await draw(picture);
  if (!process.argv.includes("--check")) writeFileSync(file, svg);
  else if (readFileSync(file, "utf8") !== svg) {
    console.error(`${file} is out of date: run npm run draw`);
    process.exitCode = 1;
  }
}
