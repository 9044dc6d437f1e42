// Simulates a limit that many processes in several regions share, in each way that there is:
//
//   npm run scale               all sizes: a minute or two
//   npm run scale -- --short    small ones, on a day of a minute
//   npm run scale -- --write    also puts the tables into docs/scale.md

import { writeMarked } from "../../scripts/marked.ts";
import { short } from "../lib/options.ts";
import { markdown } from "../lib/report.ts";
import { equalFractions } from "./equal-fractions.ts";
import { homeCosts } from "./home-cost.ts";
import { type Contender, type Outcome, play } from "./measure.ts";
import { oneRedis, prefetch } from "./one-redis.ts";
import { regions } from "./regions.ts";
import type { Scene, Size } from "./world.ts";

const DAY_MS = short ? 60_000 : 240_000;
/** Messages of a member a second, at `everyMs: 1000`. */
const MESSAGES = 1.5;

interface Played extends Size {
  readonly ours: readonly Contender[];
}

const others: readonly Contender[] = [
  { name: "every call to one Redis", make: oneRedis, sample: 1 },
  { name: 'one Redis, prefetch: "auto"', make: prefetch, sample: 1 },
  { name: "equal fractions, a Redis in each region", make: equalFractions, sample: 1 },
];
const one: Contender = { name: "regions", make: regions({}), sample: 1 };
const local: Contender = { name: "regions, local", make: regions({ local: true }), sample: 1 };

/** Several limits of 10 or 20 processes. With a sample only some of them are simulated, since all are alike. */
function several(limits: number, { sample = 1, leaseMs = 5000 } = {}): Contender {
  const lease = leaseMs === 5000 ? "" : `, leaseMs: ${leaseMs / 1000}_000`;
  const make = regions({ limits: limits * sample, leaseMs });
  return { name: `regions, ${limits} limits${lease}`, make, sample };
}

const sizes: readonly Played[] = [
  { processes: 10, regions: 1, ours: [one] },
  { processes: 10, regions: 5, ours: [one] },
  {
    processes: 100,
    regions: 5,
    ours: [...(short ? [] : [local]), several(10), several(10, { leaseMs: 30_000 })],
  },
  { processes: 1000, regions: 10, ours: [several(100, { sample: 0.2 })] },
  ...(short ? [] : [{ processes: 10_000, regions: 20, ours: [several(500, { sample: 0.02 })] }]),
];

const SCENES: readonly Scene["name"][] = [
  "the sun",
  "a flash crowd",
  "a region cut off",
  "the home away",
];
const HEAD = [
  "calls to the home a second",
  "to near stores",
  "a call waits",
  ...SCENES.map((scene) => `used: ${scene}`),
  "permits beyond the bound",
  "adapts within",
];

const count = (number: number) => Math.round(number).toLocaleString("en");

function row(name: string, outcome: Outcome): readonly string[] {
  const { homeCalls, nearCalls, callWaits, utilisation, overshoot, adaptMs } = outcome;
  const used = SCENES.map((scene) => {
    const part = utilisation.get(scene);
    return part === undefined ? "–" : `${(100 * part).toFixed(0)} %`;
  });
  const adapts = adaptMs === Infinity ? "never" : `${(adaptMs / 1000).toFixed(1)} s`;
  return [name, count(homeCalls), count(nearCalls), callWaits, ...used, count(overshoot), adapts];
}

/** Less than this under the sun is an error of the model: equal fractions use three quarters. */
const LEAST_USED = 0.85;

/** What regions promise holds in the model too. */
function check({ name }: Contender, { utilisation, overshoot }: Outcome): void {
  const used = utilisation.get("the sun") ?? 0;
  if (overshoot === 0 && used >= LEAST_USED) return;
  console.error(`${name}: ${overshoot} permits beyond the bound, ${used} used`);
  process.exitCode = 1;
}

const printed: string[] = [];
const print = (text: string) => {
  printed.push(text);
  console.log(text);
};

for (const { ours, ...size } of sizes) {
  const rows = [...others, ...ours].map((contender) => {
    const outcome = play(size, DAY_MS, contender);
    if (ours.includes(contender)) check(contender, outcome);
    return row(contender.name, outcome);
  });
  const { processes, regions: number } = size;
  const limit = `${count(100 * processes)} a second`;
  const title = `${count(processes)} processes in ${number} region${number > 1 ? "s" : ""}, ${limit}`;
  print(markdown([title, ...HEAD], rows));
}

const costs = await homeCosts(short ? [10, 100] : [10, 20, 50, 100, 300, 1000]);
const work = (members: number, ms: number) => {
  const percent = (members * MESSAGES * ms) / 10;
  return `${percent < 10 ? percent.toFixed(1) : count(percent)} %`;
};
print(
  markdown(
    ["members of one limit", "bytes of a reply", "in a process", "in Redis", "Redis, of a core"],
    costs.map(({ members, bytes, inProcessMs, inRedisMs }) => [
      count(members),
      count(bytes),
      `${inProcessMs.toFixed(2)} ms`,
      `${inRedisMs.toFixed(2)} ms`,
      work(members, inRedisMs),
    ]),
  ).trim(),
);
if (process.argv.includes("--write"))
  writeMarked("docs/scale.md", "scale", `${printed.join("\n")}\n`);
