// Runs an adaptive concurrency limit against a simulated server whose number of workers changes, and draws the limit and the
// latency over time.

import { adaptive } from "smooth-limiter";
import { runScene } from "../../test/support/concurrency/server-model.ts";

const SECONDS = 30;
const EVERY_MS = 250;
const SERVICE_MS = 50;
const MOST_SLOTS = 30;
const MOST_MS = 200;
const [WIDTH, ROW, LEFT, GAP] = [460, 110, 40, 46];

const workers = (atMs: number) => (atMs >= 10_000 && atMs < 20_000 ? 20 : 10);

/** Returns the picture, as SVG. */
export function drawLearnedLimit(
  svg: (width: number, height: number, content: readonly string[]) => string,
): string {
  const { calls, limits } = runScene(
    {
      durationMs: SECONDS * 1000,
      workers,
      serviceMs: (random) => SERVICE_MS * (0.5 + random()),
      clients: [() => Infinity],
    },
    adaptive({ max: 100 }),
  );
  const instants = Array.from({ length: (SECONDS * 1000) / EVERY_MS }, (_, i) => i * EVERY_MS);
  const limit = instants.map((ms) => limits[Math.floor(ms / 100)]?.[0] ?? 0);
  const heldMs = instants.map((ms) => {
    const ended = calls.filter(({ endedMs }) => endedMs >= ms && endedMs < ms + EVERY_MS);
    return ended.reduce((sum, call) => sum + call.endedMs - call.startedMs, 0) / ended.length;
  });
  const x = (i: number) => Math.round((i * WIDTH) / (instants.length - 1));
  const path = (values: readonly number[], most: number, color: string) => {
    const points = values.map((value, i) => {
      return `${x(i)} ${Math.round(ROW * (1 - Math.min(most, value) / most))}`;
    });
    return `<path fill="none" stroke="${color}" stroke-width="2" d="M${points.join("L")}"/>`;
  };
  const row = (
    y: number,
    title: string,
    most: number,
    known: readonly number[],
    found: readonly number[],
  ) =>
    [
      `<g transform="translate(${LEFT} ${y})"><text y="-10">${title}</text>`,
      `<path fill="none" stroke="#e4e7ec" d="M0 0v${ROW}h${WIDTH}"/>`,
      `<g text-anchor="end"><text x="-6" y="6">${most}</text><text x="-6" y="${ROW}">0</text></g>`,
      path(known, most, "#98a2b3"),
      path(found, most, "#1f5fbf"),
      "</g>",
    ].join("");
  const [first, second] = [70, 70 + ROW + GAP];
  const below = second + ROW;
  const [width, height] = [LEFT + WIDTH + 20, below + 52];
  const seconds = [0, 10, 20, 30].map((s) => {
    return `<text x="${LEFT + (s * WIDTH) / SECONDS}" y="${below + 20}">${s}</text>`;
  });
  return svg(width, height, [
    `<text x="12" y="28" font-size="19" font-weight="bold" fill="#000">An adaptive limit finds 10, 20 and 10 workers</text>`,
    row(first, "Blue: the limit. Grey: workers.", MOST_SLOTS, instants.map(workers), limit),
    row(
      second,
      "Blue: latency, ms. Grey: latency without a queue.",
      MOST_MS,
      instants.map(() => SERVICE_MS),
      heldMs,
    ),
    `<g text-anchor="middle">${seconds.join("")}<text x="${LEFT + WIDTH / 2}" y="${below + 42}">seconds</text></g>`,
  ]);
}
