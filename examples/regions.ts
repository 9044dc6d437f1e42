/**
 * An API allows 1000 calls a second, from servers in three regions together. Each region decides by itself, with its
 * part of the limit; once a second the regions tell a store that all of them reach, the home, how much they call. The
 * demand moves as the day does, the home is away for ten seconds, and at no time more than the limit is granted. All
 * regions are in this process, on a simulated clock, and the home is a store in memory; yours is a Redis or PostgreSQL.
 */
import assert from "node:assert/strict";
import colors from "picocolors";
import { tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";

const LIMIT = 1000;
const TICK_MS = 10;
const WIDTH = 40;

const clock = new FakeClock(Date.now());
const home = memoryStore({ clock });
const regions = ["asia", "eu", "us"];
const policy = tokenBucket({ capacity: LIMIT, refill: LIMIT, everyMs: 1000 });
const limiters = regions.map((region) =>
  RegionalLimiter.create("api", policy, { home, region, regions, clock }),
);
const looks = [colors.yellow, colors.blue, colors.red];

/** How many permits were granted in each tick, by all regions. */
const grants: number[] = [];
/** Calls that are due, by region; fractions count for the next tick. */
const due = regions.map(() => 0);

/** Lets each region call so often a second, and returns how many calls each could make. */
async function call(seconds: number, demands: readonly number[]): Promise<readonly number[]> {
  const granted = regions.map(() => 0);
  for (let tick = 0; tick < (seconds * 1000) / TICK_MS; tick++) {
    let inTick = 0;
    for (const [i, limiter] of limiters.entries()) {
      due[i] = (due[i] ?? 0) + ((demands[i] ?? 0) * TICK_MS) / 1000;
      for (; (due[i] ?? 0) >= 1; due[i] = (due[i] ?? 0) - 1) {
        if (!(await limiter.tryAcquire())) continue;
        granted[i] = (granted[i] ?? 0) + 1;
        inTick += 1;
      }
    }
    grants.push(inTick);
    await clock.advance(TICK_MS);
  }
  return granted;
}

/** Plays a part of the story, and shows the parts and the grants of each second. */
async function play(title: string, seconds: number, demands: readonly number[]) {
  const wishes = regions.map((region, i) => `${region} ${demands[i]}`);
  console.log(`\n${title}: calls a second: ${wishes.join(", ")}`);
  let granted: readonly number[] = [];
  for (let second = 1; second <= seconds; second++) {
    granted = await call(1, demands);
    const bars = limiters.map(({ fraction }, i) => {
      const bar = (regions[i]?.[0] ?? "").repeat(Math.max(1, Math.round(fraction * WIDTH)));
      return looks[i]?.(bar) ?? bar;
    });
    const numbers = granted.map((count) => String(count).padStart(4)).join("");
    console.log(`  ${String(second).padStart(2)} s  ${numbers}   ${bars.join("")}`);
  }
  return granted;
}

console.log(`each second: granted calls of ${regions.join(", ")}, and their parts of the limit`);
await call(10, [50, 50, 50]); // a new home gives no parts for the first seconds
const morning = await play("morning in Asia", 6, [800, 100, 300]);
const evening = await play("evening in Asia, noon in Europe", 6, [100, 800, 300]);
const crowd = await play("all call more than the limit", 4, [2000, 2000, 2000]);

home.fail();
const away = await play(
  "the home is away: parts until the lease ends, then reserves",
  8,
  [2000, 2000, 2000],
);
home.recover();
const back = await play("the home is back", 4, [2000, 2000, 2000]);

const near = (counts: readonly number[], wanted: readonly number[]) =>
  counts.every((count, i) => Math.abs(count - (wanted[i] ?? 0)) <= 20);
assert.ok(near(morning, [600, 100, 300]), `morning: ${morning}`);
assert.ok(near(evening, [100, 600, 300]), `evening: ${evening}`);
assert.ok(near(crowd, [333, 333, 333]), `crowd: ${crowd}`);
assert.ok(near(away, [33, 33, 33]), `without the home: ${away}`);
assert.ok(near(back, [333, 333, 333]), `with the home again: ${back}`);

let most = 0;
for (let from = 0; from < grants.length; from++) {
  let sum = 0;
  for (const [ticks, count] of grants.slice(from).entries()) {
    sum += count;
    const bound = LIMIT + (LIMIT * ticks * TICK_MS) / 1000;
    assert.ok(sum <= bound + 1e-6, `${sum} in ${ticks * TICK_MS} ms, at most ${bound}`);
    if (ticks === 1000 / TICK_MS) most = Math.max(most, sum);
  }
}
console.log(`\nin any second all regions together made at most ${most} calls; the bound is 2000`);
for (const limiter of limiters) await limiter.close();
