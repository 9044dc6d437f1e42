/** Callers that come at random are no reason to move parts. */
import { gcra } from "smooth-limiter";
import * as assert from "uvu/assert";
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
  let state = 1;
  const random = () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
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

test.run();
