import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { drawRule, LEFT, RIGHT } from "../../src/report/chart.ts";
import type { Points, RuleReport } from "../../src/report/report.ts";

const test = suite("charts");

const WIDTH = 600;
const MIDNIGHT = Date.UTC(2026, 0, 2);

/** @param parts how many requests passed, waited and were refused in each step */
function ruleOf(
  parts: readonly (readonly [passed: number, waited: number, refused: number])[],
  more: Partial<RuleReport & Points> = {},
): RuleReport {
  const { stepMs = 1000, startMs = MIDNIGHT, peaks = parts.map(() => 1), ...rest } = more;
  const [passed, waited, refused] = [0, 1, 2].map((i) => parts.map((part) => part[i] ?? 0));
  const counts = { passed: passed ?? [], waited: waited ?? [], refused: refused ?? [] };
  const points = { stepMs, startMs, peaks, counts };
  const sums = { requests: 0, passed: 0, waited: 0, refused: 0, refusedElsewhere: 0 };
  return {
    ...{ name: "r", url: "/", algo: "window", scope: "local", mode: "enforce", ...sums },
    ...{ actor: "device", rpu: 1, periodMs: 1000, perSecond: { mean: 0, peak: 0 } },
    ...{ wait: { meanMs: 0, longestMs: 0 }, mostInWindow: 0, mostOfOneActor: 0, actors: [] },
    ...{ ...rest, points },
  };
}

const pathOf = (html: string, name: string) =>
  new RegExp(`<path class="chart-${name}" d="([^"]*)"`).exec(html)?.[1];

/** The y at the middle of each step, from a path of H and V. */
function levels(path: string, count: number): number[] {
  const edges = [...path.matchAll(/H([\d.]+)(?:V([\d.]+))?/g)].map(([, x, y]) => [
    Number(x),
    Number(y),
  ]);
  return Array.from({ length: count }, (_, i) => {
    const x = LEFT + ((i + 0.5) * (WIDTH - LEFT - RIGHT)) / count;
    return edges.findLast(([at = 0]) => at <= x)?.[1] ?? Number.NaN;
  });
}

test("areas stand on each other, in the proportion of their counts", async () => {
  const count = fc.nat(20);
  const step = fc.tuple(count, count, count);
  await fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 12 }), (parts) => {
      const html = drawRule(ruleOf([...parts, [1, 1, 1]]), 0, WIDTH);
      const top = Math.max(...parts.map(([a, b, c]) => a + b + c), 3) * 1.08;
      const sums = [...parts, [1, 1, 1] as const].map(([a, b, c]) => [a, a + b, a + b + c]);
      for (const [i, name] of ["passed", "waited", "refused"].entries()) {
        const drawn = levels(pathOf(html, name) ?? "", sums.length);
        for (const [at, sum] of sums.entries()) {
          const wanted = 176 - ((sum[i] ?? 0) / top) * 168;
          assert.ok(Math.abs((drawn[at] ?? 0) - wanted) < 0.1, `${name} ${at}: ${drawn[at]}`);
        }
      }
    }),
  );
});

test("what did not happen has no area, and a limit of each actor no line", () => {
  const html = drawRule(ruleOf([[3, 0, 0]]), 0, WIDTH);
  assert.ok(pathOf(html, "passed"));
  assert.equal(
    ["waited", "refused", "peak", "limit"].map((name) => pathOf(html, name)),
    [undefined, undefined, undefined, undefined],
  );
  const all = drawRule(ruleOf([[3, 0, 0]], { actor: "all" }), 0, WIDTH);
  // 1 of 3.24 a second
  assert.is(pathOf(all, "limit"), "M52 124.1H590");
});

test("steps of several seconds: the mean as an area, the busiest second as a line", () => {
  const html = drawRule(
    ruleOf(
      [
        [8, 0, 0],
        [0, 0, 0],
      ],
      { stepMs: 4000, peaks: [5, 0] },
    ),
    0,
    WIDTH,
  );
  assert.equal(levels(pathOf(html, "passed") ?? "", 2), [113.8, 176]);
  assert.equal(levels(pathOf(html, "peak") ?? "", 2), [20.4, 176]);
  assert.match(html, "Areas: the mean of each 4 s. Line: the busiest second of each 4 s.");
  assert.match(html, "<title>2026-01-02 00:00:00, 4 s: 8 passed; 5 in the busiest second</title>");
});

test("the time axis: few marks, in the zone of the log, with the date at midnight", () => {
  const texts = (seconds: number, steps: number, zoneMinutes = 0) => {
    const startMs = MIDNIGHT - 60_000;
    const rule = ruleOf(
      Array.from({ length: steps }, () => [1, 0, 0] as const),
      {
        ...{ stepMs: (seconds * 1000) / steps, startMs },
      },
    );
    const html = drawRule(rule, zoneMinutes, WIDTH);
    return [...html.matchAll(/dy="[12][^"]*"[^>]*>([^<]*)</g)].map(([, text]) => text);
  };
  assert.equal(texts(120, 120), [
    ...["23:59:00", "2026-01-01", "23:59:30"],
    ...["00:00:00", "2026-01-02", "00:00:30", "00:01:00"],
  ]);
  assert.equal(texts(7200, 100, 60), ["01:00", "2026-01-02", "01:30", "02:00", "02:30"]);
  assert.equal(texts(86_400 * 300, 500), [
    ...["2026-01-07", "2026-03-08", "2026-05-07", "2026-07-06", "2026-09-04"],
  ]);
  for (const seconds of [1, 59, 1000, 86_400, 1e6, 1e7, 1e9]) {
    const count = texts(seconds, 50).length;
    assert.ok(count >= 1 && count <= 12, `${seconds} s: ${count} texts`);
  }
});

test("a name is text, also in the label", () => {
  const html = drawRule(ruleOf([[1, 0, 0]], { name: '"><b onclick=x>' }), 0, WIDTH);
  assert.match(html, 'aria-label="requests a second over time: &quot;&gt;&lt;b onclick=x&gt;"');
});

test("without points there is no chart, and with many no more than 120 titles", () => {
  assert.is(drawRule(ruleOf([]), 0, WIDTH), "<p>no requests</p>");
  const many = ruleOf(Array.from({ length: 719 }, () => [1, 2, 3] as const));
  const titles = [...drawRule(many, 0, WIDTH).matchAll(/<title>[^<]*?: (\d+) passed/g)];
  assert.is(titles.length, 120);
  assert.is(
    titles.reduce((sum, [, passed]) => sum + Number(passed), 0),
    719,
  );
});

test.run();
