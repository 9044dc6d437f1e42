/** Callers that come at random are no reason to move parts. */
import { gcra, tokenBucket } from "smooth-limiter";
import * as assert from "uvu/assert";
import { randomFrom } from "../support/random.ts";
import { World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, callers that come at random");

const REGIONS = ["eu", "us", "asia", "africa", "australia"];
/** A second, in each region. */
const CALLS = 10;
const STEP_MS = 10;

test("parts stay where they are while demand differs by chance only", async () => {
  const limit = CALLS * REGIONS.length;
  const world = new World(gcra({ limit, periodMs: 1000, burst: limit }), { regions: REGIONS });
  world.home.latencyMs = 60;
  const random = randomFrom(1);
  let asked = 0;
  let granted = 0;
  for (let ms = 0; ms < 60_000; ms += STEP_MS) {
    if (ms === 15_000) asked = granted = 0;
    for (const { limiter } of world.regions) {
      if (random() > (CALLS * STEP_MS) / 1000) continue;
      asked += 1;
      if (await limiter.tryAcquire()) granted += 1;
    }
    await world.clock.advance(STEP_MS);
  }
  await world.close();
  const part = granted / asked;
  assert.ok(part > 0.9, `${part} of what was asked for is granted`);
  const messages = world.home.messages / 60 / REGIONS.length;
  // about 4, and above 7 without patience
  assert.ok(messages < 6, `${messages} messages a second from each region`);
});

test("callers who come seldom and at random, and wait, cost the others little", async () => {
  const world = new World(tokenBucket({ capacity: 22, refill: 22, everyMs: 1000 }), {
    regions: ["eu", "us"],
  });
  world.home.latencyMs = 80;
  const [eu, us] = world.regions.map(({ limiter }) => limiter);
  const random = randomFrom(7);
  await world.clock.advance(10_000);
  let granted = 0;
  const one = () => {
    granted += 1;
  };
  for (let ms = 0; ms < 230_000; ms += 20) {
    if (ms === 30_000) granted = 0;
    if (random() < 0.2 * 22 * 0.02) void eu?.acquire().then(one, () => {});
    for (let n = 0; n < 3; n++) if (await us?.tryAcquire()) one();
    await world.clock.advance(20);
  }
  await world.close();
  const used = granted / (22 * 200);
  // about 0.94, and 0.89 if chance looks like growing demand
  assert.ok(used > 0.91, `${used} of the limit`);
});

test.run();
