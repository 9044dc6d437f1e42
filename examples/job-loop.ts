/**
 * A shop shows recommendations. Fresh ones come from a model that allows 20 calls a second. Pages are requested more
 * often than that, and no page should wait. `tryAcquire` returns at once whether a call is allowed; if not, the page
 * gets yesterday's recommendations.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";

const limiter = RateLimiter.create(20);

let fresh = 0;
let cached = 0;

function recommend(): string {
  if (limiter.tryAcquire()) {
    fresh += 1;
    return colors.green("■");
  }
  cached += 1;
  return colors.dim("·");
}

const startedAt = performance.now();

async function visitors(what: string, pages: number, perSecond: number): Promise<void> {
  process.stdout.write(`  ${what.padEnd(12)}`);
  for (let page = 0; page < pages; page += 1) {
    process.stdout.write(recommend());
    await sleep(1000 / perSecond);
  }
  process.stdout.write("\n");
}

console.log(`Each page asks for recommendations: ${colors.green("■")} fresh  · yesterday's\n`);
await visitors("quiet", 8, 10);
await visitors("busy", 60, 60);
await sleep(600);
await visitors("busy again", 60, 60);

const seconds = (performance.now() - startedAt) / 1000;
console.log(`
  ${fresh} fresh and ${cached} of yesterday in ${seconds.toFixed(1)} s. No page waited. The model was called 20 times a second on
  average. Permits that were saved up during the break were used at once after it.`);

assert.equal(fresh + cached, 128, "every page got recommendations");
assert.ok(fresh <= 20 * seconds + 1, `${fresh} fresh in ${seconds} s is more than 20 a second`);
assert.ok(fresh >= 20, `only ${fresh} fresh: permits were left unused`);
