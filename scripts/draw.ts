// Runs the library's limiters and draws their behaviour as docs/pictures/*.svg:
//
//   npm run draw             writes the pictures
//   npm run draw -- --check  fails if a picture is out of date

import { drawLearnedLimit } from "./draw/learned-limit.ts";
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
import { writeOrCheck } from "./generated.ts";

/**
 * Sizes in pixels: the width of the field with the marks, the margin around it, the height of a row, and in it
 * the line on which marks stand, below the row's name. A phone of 320 pixels shows a picture at half its size,
 * so its smallest text is twice as large as text must be.
 */
const WIDTH = 510;
const MARGIN = 12;
const ROW = 46;
const LINE = 34;
const TEXT = 17;
const TITLE = 19;

/** The colour that a dark theme shows for each one. */
const DARK: Readonly<Record<string, string>> = {
  "#fff": "#1b1b1f",
  "#000": "#f2f4f7",
  "#101828": "#f2f4f7",
  "#344054": "#d0d5dd",
  "#e4e7ec": "#33363d",
  "#98a2b3": "#6b7280",
  "#667085": "#a9b0bb",
  "#1f5fbf": "#7db0ff",
  "#d9580d": "#ffa05c",
};

/** Returns the arrivals (ms) of `count` requests, evenly spaced from `fromMs` to before `untilMs`. */
function burst(count: number, fromMs: number, untilMs: number): number[] {
  return Array.from({ length: count }, (_, i) => fromMs + ((untilMs - fromMs) * i) / count);
}

interface Picture {
  readonly file: string;
  /** Both with a line break where they do not fit on a line. */
  readonly title: string;
  readonly subtitle: string;
  /** The callers of each row. */
  readonly rows: () => Promise<Readonly<Record<string, readonly Caller[]>>>;
  readonly arrivals: readonly number[];
  readonly seconds: number;
  /** What stands at the right of the first row, and of each other row. */
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
    title: "tryAcquire(): which requests each algorithm\ngrants",
    subtitle:
      "Each algorithm is set to 10 permits a second. Blue, above\nthe line: granted. Orange, below: refused.",
    rows: () => rowsOf(refusing, REFUSED),
    arrivals: REFUSED,
    seconds: 6.25,
    sums: "granted; most in any second",
    sum: (callers) => {
      const starts = startsOf(callers);
      return `${starts.length} of ${callers.length}; ${mostInASecond(starts)}`;
    },
  },
  {
    file: "waiting.svg",
    title: "acquire(): when each algorithm grants\nwaiting requests",
    subtitle:
      "Each algorithm is set to 10 permits a second. Blue, above\nthe line: granted (a number: how many at once). Orange,\nbelow: refused.",
    rows: () => rowsOf(waiting, WAITING),
    arrivals: WAITING,
    seconds: 5.75,
    sums: "granted; longest wait",
    sum: servedOf,
  },
  {
    file: "fair.svg",
    title: "Three tenants on one limit of 10 a second:\nfirst in, first out (FIFO), and fair",
    subtitle:
      "Grey: all requests. Blue: granted. Both grant at the same\ninstants, to different tenants.",
    rows: shared,
    arrivals: Object.values(tenants).flat(),
    seconds: 7,
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
 * Draws a picture. Lines at equal distances are one thick, dashed line.
 */
async function draw(picture: Picture): Promise<string> {
  const { seconds } = picture;
  const [titles, subtitles] = [picture.title.split("\n"), picture.subtitle.split("\n")];
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
      return count > 1 ? text(count, Math.round((ms * perSecond) / 1000) + 3, (row + 1) * ROW) : "";
    });
  });
  const times = Array.from({ length: Math.floor(seconds * 2) + 1 }, (_, i) =>
    text(i / 2, Math.round((i * perSecond) / 2)),
  );
  const names = ["requests", ...rows.map(([name]) => name)];
  const sums = [picture.sums, ...rows.map(([, callers]) => picture.sum(callers))];
  const below = MARGIN + titles.length * 24;
  const head = below + subtitles.length * 21 + 14;
  const [width, all] = [WIDTH + 2 * MARGIN, head + height + 54];
  return svg(width, all, [
    column(
      titles,
      24,
      `font-size="${TITLE}" font-weight="bold" fill="#000" ${moved(MARGIN, MARGIN + 16)}`,
    ),
    column(subtitles, 21, moved(MARGIN, below + 16)),
    `<g ${moved(MARGIN, head)}>`,
    dashes("#e4e7ec", `M0 ${height / 2}h${WIDTH + 1}`, height, 1, half),
    dashes("#888", `M0 ${height + 2}h${WIDTH + 1}`, 5, 1, half),
    dashes("#98a2b3", `M${WIDTH / 2} ${LINE}v${height - ROW + 1}`, WIDTH, 0.7, ROW),
    `<g text-anchor="middle" fill="#101828" ${moved(0, height + 20)}>${times.join("")}</g>`,
    `<text text-anchor="middle" x="${WIDTH / 2}" y="${height + 41}">seconds</text>`,
    column(names, ROW, `fill="#101828" ${moved(0, 16)}`),
    column(sums, ROW, `text-anchor="end" ${moved(WIDTH, 16)}`),
    `<g ${moved(0, LINE)}><g transform="scale(.1)">`,
    strokes("#667085", -80, 150, [marks(picture.arrivals)]),
    strokes("#1f5fbf", -135, 130, [[], ...granted]),
    strokes("#d9580d", 5, 70, [[], ...refused]),
    `</g><g fill="#1f5fbf" ${moved(0, -2)}>${counts.join("")}</g></g></g>`,
  ]);
}

/** Returns a picture with a background. */
function svg(width: number, height: number, content: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="Helvetica,Arial,sans-serif" font-size="${TEXT}" fill="#344054">${themed()}<path fill="#fff" d="M0 0h${width}v${height}H0"/>${content.join("")}</svg>\n`;
}

/** The style for a dark theme. A site that sets `color-scheme` on its pages decides the theme, else the reader's system does. */
function themed(): string {
  const rules = Object.entries(DARK).map(
    ([light, dark]) => `[fill="${light}"]{fill:${dark}}[stroke="${light}"]{stroke:${dark}}`,
  );
  return `<style>@media(prefers-color-scheme:dark){${rules.join("")}}</style>`;
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

function moved(x: number, y: number): string {
  return `transform="translate(${x} ${y})"`;
}

function column(texts: readonly string[], step: number, attributes: string): string {
  return `<g ${attributes}>${texts.map((each, i) => text(each, 0, i * step)).join("")}</g>`;
}

/** Draws a stroke at each instant of each row; all numbers are tenths of a pixel. */
function strokes(
  color: string,
  top: number,
  length: number,
  rows: readonly (readonly number[])[],
): string {
  const lines = rows.flatMap((instants, i) =>
    instants.map((at) => `M${at} ${i * ROW * 10 + top}v${length}`),
  );
  return `<path stroke="${color}" stroke-width="15" d="${lines.join("")}"/>`;
}

const write = (name: string, svg: string) =>
  writeOrCheck(`docs/pictures/${name}`, svg, "npm run draw");
for (const picture of pictures) write(picture.file, await draw(picture));
write("adaptive.svg", drawLearnedLimit(svg));
