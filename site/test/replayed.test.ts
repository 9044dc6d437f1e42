import * as assert from "uvu/assert";
import { drawRule } from "../../cli/src/report/chart.ts";
import { cli, inFolder } from "../../cli/test/support/run.ts";
import { suite } from "../../test/support/suite.ts";
import { readReplayed, sumsOf } from "../model/replayed.ts";

const test = suite("reports of replays in the playground");

const RULES = `url: /
rules: [{ actor: all, unit: second, rpu: 2, name: all }, { actor: device, unit: day, rpu: 9, name: each }]`;
const LOG = Array.from(
  { length: 5 },
  (_, i) => `{"time": ${1.7e12 + i}, "url": "/", "ip": "192.0.2.1"}`,
);

const written = inFolder({ "rules.yaml": RULES }, async (path) => {
  const stdin = LOG.join("\n");
  return (await cli(["replay", path("rules.yaml"), "-", "--json"], { stdin })).out;
});

test("what replay --json writes is read, and each rule can be drawn", async () => {
  const replayed = readReplayed(await written);
  assert.ok(replayed);
  assert.is(replayed.log, "stdin");
  assert.is(sumsOf(replayed.report), "5 requests: 2 passed at once, 0 waited, 3 refused.");
  const charts = replayed.report.rules.map((rule) => drawRule(rule, replayed.zoneMinutes, 600));
  assert.is(charts.length, 2);
  for (const chart of charts) assert.match(chart, /^<p class="chart-legend">.*<svg /);
});

test("an access log is left to its own reader, also one of a single line", () => {
  assert.is(readReplayed(LOG.join("\n")), undefined);
  assert.is(readReplayed(LOG[0] ?? ""), undefined);
  assert.is(
    readReplayed('192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5'),
    undefined,
  );
  assert.is(readReplayed(""), undefined);
});

test("other JSON is refused with what it lacks", async () => {
  const refusal = (value: unknown) => {
    try {
      readReplayed(JSON.stringify(value, null, 2));
      return "";
    } catch (error) {
      return (error as Error).message;
    }
  };
  const report = JSON.parse(await written);
  assert.is(
    refusal({ findings: [] }),
    "This JSON is neither an access log, with a request in each line, nor a report that `smooth-limiter replay --json` wrote: it has no report.rules.",
  );
  assert.match(refusal([1, 2]), "it has no report.rules.");
  assert.match(refusal({ ...report, zoneMinutes: "UTC" }), "it has no zoneMinutes.");
  const [first, second] = report.report.rules;
  const lacking = { ...second, points: { ...second.points, counts: { passed: [1], waited: [1] } } };
  const rules = [first, lacking];
  assert.match(
    refusal({ ...report, report: { ...report.report, rules } }),
    "it has no report.rules[1].points.counts.",
  );
  assert.match(
    refusal({ ...report, report: { ...report.report, passed: null } }),
    "no report.passed.",
  );
  const late = { ...first, points: { ...first.points, startMs: 8.64e15 } };
  assert.match(
    refusal({ ...report, report: { ...report.report, rules: [late] } }),
    "it has no report.rules[0].points.startMs between 1970 and 9999.",
  );
  assert.match(refusal({ ...report, zoneMinutes: 1e9 }), "it has no zoneMinutes.");
  assert.is(refusal(report), "");
});

test.run();
