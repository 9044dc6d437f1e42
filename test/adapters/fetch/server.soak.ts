// Longer runs against real servers, which change their limits, and of which some report nothing.

import * as assert from "uvu/assert";
import { limitedFetch } from "../../../src/adapters/fetch/index.ts";
import { RateLimiter } from "../../../src/index.ts";
import { httpServer } from "../../support/fetch/http-server.ts";
import { bursts, WindowCounter } from "../../support/fetch/window-server.ts";
import { suite } from "../../support/suite.ts";

const test = suite("limited fetch, real servers, long", { timeoutMs: 250_000 });

/** Sends for `forMs` from many callers, while the limit changes at intervals. */
async function load(
  call: typeof fetch,
  counter: WindowCounter,
  tells: boolean,
  { ms, limits }: { ms: number; limits: readonly number[] },
): Promise<void> {
  const server = await httpServer(() => {
    const now = performance.now();
    const admitted = counter.admit(now);
    const retry = { "retry-after": `${Math.ceil(counter.resetMs(now) / 1000)}` };
    const headers = { ...(tells && counter.fields(now)), ...(!admitted && retry) };
    return { status: admitted ? 200 : 429, headers };
  });
  const startedAt = performance.now();
  const end = startedAt + ms * limits.length;
  const work = async () => {
    while (performance.now() < end) {
      counter.limit = limits[Math.floor((performance.now() - startedAt) / ms)] ?? counter.limit;
      await (await call(server.url)).arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: 30 }, work));
  await server.close();
}

test("a server that reports its limit, and changes it: one burst of refusals for each change", async () => {
  const counter = new WindowCounter(100, 2000);
  const call = limitedFetch(RateLimiter.create(2000), { retries: 5 });
  const limits = [100, 20, 100];
  await load(call, counter, true, { ms: 20_000, limits });
  const changes = bursts(counter.refusedAt, 1000);
  const share = counter.acceptedWithin(60_000) / (10 * (100 + 20 + 100));
  console.log(
    `${counter.refused} refused in ${changes} bursts, ${(100 * share).toFixed(1)} % used`,
  );
  // one for each change where timers are on time
  assert.ok(changes <= 2 * limits.length, `${counter.refusedAt.map(Math.round)}`);
  assert.ok(share >= 0.7, `${share} of the allowance was used`);
});

test("a server that reports nothing, and changes its limit: the rate is found", async () => {
  const counter = new WindowCounter(50, 1000);
  const limiter = RateLimiter.create(1, { burstSeconds: 0 });
  const call = limitedFetch(limiter, {
    retries: 5,
    adaptive: { min: 1, max: 100, setRate: (rate) => limiter.setRate(rate) },
  });
  await load(call, counter, false, { ms: 40_000, limits: [50, 50, 50, 25] });
  const share = counter.acceptedWithin(120_000) / (50 * 120);
  const [first = 0] = counter.acceptedAt;
  const refused = counter.refusedAt.map((at) => Math.round(at - first));
  const refusedWithin = (from: number, to: number) => refused.filter((at) => at > from && at < to);
  console.log(`${(100 * share).toFixed(1)} % used in two minutes; refused at ${refused} ms`);
  // as many as the algorithm promises where timers are on time: adaptive.test.ts
  assert.ok(share >= 0.4, `${share} of the allowance was used`);
  assert.ok(bursts(refusedWithin(0, 120_000), 5000) <= 15, `${refused}`);
  // a pause is 1 s long, so that refusals within four pauses belong to the same burst
  assert.ok(bursts(refusedWithin(120_000, 140_000), 5000) <= 6, `${refused}`);
});

test.run();
