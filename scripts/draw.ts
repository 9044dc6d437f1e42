// Runs the library's limiters and draws their behaviour as docs/pictures/*.svg:
//
//   npm run draw             writes the pictures
//   npm run draw -- --check  fails if a picture is out of date

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { optimize } from "svgo";
import { parse, View } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";
import type { PositionFieldDef } from "vega-lite/types_unstable/channeldef.js";
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
const WIDTH = 760;
const ROW = 30;
const BLUE = "#1f5fbf";
const ORANGE = "#d9580d";
const GREY = "#667085";

/** Returns the arrivals (ms) of `count` requests, evenly spaced from `fromMs` to before `untilMs`. */
function burst(count: number, fromMs: number, untilMs: number): number[] {
  return Array.from({ length: count }, (_, i) => fromMs + ((untilMs - fromMs) * i) / count);
}

interface Mark {
  readonly row: string;
  readonly second: number;
  readonly what: "request" | "granted" | "refused";
}

interface Label {
  readonly row: string;
  readonly text: string;
}

/** The number of requests that start at one instant. */
interface Count extends Label {
  readonly second: number;
}

interface Picture {
  readonly file: string;
  readonly title: string;
  readonly subtitle: string;
  /** The callers of each row. */
  readonly rows: () => Promise<Readonly<Record<string, readonly Caller[]>>>;
  readonly arrivals: readonly number[];
  readonly seconds: number;
  /** The head of the column at the right, and the text of that column for a row. */
  readonly sums: string;
  readonly sum: (callers: readonly Caller[]) => string;
}

const REQUESTS = "requests";
const ROW_AXIS = { ticks: false, domain: false, labelPadding: 10, labelLimit: 300 };

type Position = PositionFieldDef<string>;

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

async function draw(picture: Picture): Promise<string> {
  const marks: Mark[] = picture.arrivals.map((ms) => ({
    row: REQUESTS,
    second: ms / 1000,
    what: "request",
  }));
  const sums: Label[] = [{ row: REQUESTS, text: picture.sums }];
  const counts: Count[] = [];
  const rows = await picture.rows();
  for (const [row, callers] of Object.entries(rows)) {
    sums.push({ row, text: picture.sum(callers) });
    for (const { askedMs, startedMs } of callers) {
      const second = (startedMs ?? askedMs) / 1000;
      marks.push({ row, second, what: startedMs === undefined ? "refused" : "granted" });
    }
    const starts = startsOf(callers);
    for (const ms of new Set(starts)) {
      const count = starts.filter((start) => start === ms).length;
      if (count > 1) counts.push({ row, second: ms / 1000, text: `${count}` });
    }
  }
  const { spec } = compile(specOf(picture, Object.keys(rows), marks, sums, counts));
  const view = new View(parse(spec), { renderer: "none" });
  const svg = await view.toSVG();
  view.finalize();
  return `${compact(svg)}\n`;
}

const SAME_FILL = /<path d="[^"]*" fill="([^"]*)"\/>(?:<path d="[^"]*" fill="\1"\/>)+/g;

/** Returns the same picture in a quarter of the bytes, because the installed package contains it. */
function compact(svg: string): string {
  return svg
    .replace(/ (?:aria-[a-z]+|role|class)="[^"]*"| (?:opacity|stroke-width)="1"/g, "")
    .replace(/\d+\.\d{3,}/g, (number) => String(Math.round(Number(number) * 100) / 100))
    .replace(SAME_FILL, (run, fill) => {
      const shapes = Array.from(run.matchAll(/ d="([^"]*)"/g), ([, shape]) => shape);
      return `<path d="${shapes.join("")}" fill="${fill}"/>`;
    });
}

function specOf(
  picture: Picture,
  names: readonly string[],
  marks: readonly Mark[],
  sums: readonly Label[],
  counts: readonly Count[],
): TopLevelSpec {
  const rows = [REQUESTS, ...names];
  const y: Position = { field: "row", type: "nominal", sort: rows, title: null, axis: ROW_AXIS };
  const x: Position = {
    field: "second",
    type: "quantitative",
    scale: { domain: [0, picture.seconds], nice: false },
    axis: {
      title: "seconds",
      tickCount: 12,
      format: "~g",
      gridColor: "#e4e7ec",
      labelFlush: false,
    },
  };
  const text = { field: "text", type: "nominal" } as const;
  const small = { type: "text", align: "left", fontSize: 11 } as const;
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    background: "white",
    padding: 14,
    width: WIDTH,
    height: { step: ROW },
    title: { text: picture.title, subtitle: picture.subtitle, anchor: "start", offset: 12 },
    layer: [
      {
        data: { values: [...sums] },
        mark: { type: "rule", color: "#98a2b3", strokeWidth: 0.7, x: 0, x2: WIDTH },
        encoding: { y },
      },
      {
        data: { values: [...sums] },
        mark: { ...small, x: WIDTH + 12, color: "#344054" },
        encoding: { y, text },
      },
      ...(["request", "granted", "refused"] as const).map((what) => strokes(marks, what, x, y)),
      {
        data: { values: [...counts] },
        mark: { ...small, dx: 4, dy: -7, color: BLUE },
        encoding: { x, y, text },
      },
    ],
    config: {
      aria: false,
      font: "Helvetica, Arial, sans-serif",
      view: { stroke: null },
      axis: { labelFontSize: 12, labelColor: "#101828", titleColor: "#344054", domain: false },
      title: { fontSize: 16, subtitleFontSize: 12, subtitleColor: "#344054" },
    },
  };
}

/** Draws one stroke for each mark: above the line of its row, or below it for a refusal. */
function strokes(marks: readonly Mark[], what: Mark["what"], x: Position, y: Position) {
  const looks = {
    request: { color: GREY, size: 16, yOffset: 0 },
    granted: { color: BLUE, size: 13, yOffset: -7 },
    refused: { color: ORANGE, size: 7, yOffset: 4 },
  } as const;
  const { color, size, yOffset } = looks[what];
  return {
    data: { values: marks.filter((mark) => mark.what === what) },
    mark: {
      type: "point",
      // a stroke takes fewer bytes in the picture than the rectangle of a tick
      shape: "M0,-1V1",
      filled: false,
      strokeWidth: 1.5,
      opacity: 1,
      color,
      size: size ** 2,
      yOffset,
    } as const,
    encoding: { x, y },
  };
}

for (const picture of pictures) {
  const file = join(FOLDER, picture.file);
  const { data: svg } = optimize(await draw(picture), { multipass: true, floatPrecision: 1 });
  if (!process.argv.includes("--check")) writeFileSync(file, svg);
  else if (readFileSync(file, "utf8") !== svg) {
    console.error(`${file} is out of date: run npm run draw`);
    process.exitCode = 1;
  }
}
