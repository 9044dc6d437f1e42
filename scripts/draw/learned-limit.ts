// Runs the playground's scene of an adaptive concurrency limit, and draws the limit and the latency over time.

import { SECONDS, simulate } from "../../site/model/concurrency.ts";
import { drawLines } from "../../site/view/chart.ts";

const WORKERS = { workers: 10, between: 20, serviceMs: 50 };
/** The attributes that a page gives to the classes of a chart. */
const LOOKS: Readonly<Record<string, string>> = {
  chart: 'overflow="visible"',
  "chart-axis": 'fill="none" stroke="#e4e7ec"',
  "pg-bound": 'fill="none" stroke="#98a2b3" stroke-width="2"',
  "pg-sum": 'fill="none" stroke="#1f5fbf" stroke-width="2"',
  "pg-cursor": 'display="none"',
};

/** Returns the picture, as SVG. */
export function drawLearnedLimit(
  svg: (width: number, height: number, content: readonly string[]) => string,
): string {
  const { workers, limits, latenciesMs } = simulate({
    limit: "gradient",
    server: "queues",
    numbers: WORKERS,
  });
  const row = (y: number, title: string, known: readonly number[], found: readonly number[]) => {
    const lines = [
      { name: "pg-bound", values: known },
      { name: "pg-sum", values: found },
    ];
    const chart = drawLines(title, SECONDS, 510, lines).replace(
      / class="([\w-]+)"/g,
      (_, name: string) => ` ${LOOKS[name] ?? ""}`,
    );
    return `<text x="12" y="${y}">${title}</text><g transform="translate(0 ${y + 8})">${chart}</g>`;
  };
  return svg(534, 434, [
    `<text x="12" y="28" font-size="19" font-weight="bold" fill="#000">An adaptive limit finds 10, 20 and 10 workers</text>`,
    row(58, "Blue: the limit. Grey: workers.", workers, limits),
    row(
      254,
      "Blue: latency, ms. Grey: latency without a queue.",
      latenciesMs.map(() => WORKERS.serviceMs),
      latenciesMs,
    ),
  ]);
}
