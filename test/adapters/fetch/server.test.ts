// Against real servers, in real time.

import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { limitedFetch } from "../../../src/adapters/fetch/index.ts";
import { RateLimiter } from "../../../src/index.ts";
import { RedisRateLimiter } from "../../../src/redis/index.ts";
import { httpServer } from "../../support/fetch/http-server.ts";
import { bursts, WindowCounter } from "../../support/fetch/window-server.ts";
import { failure } from "../../support/limiter/watch.ts";
import { PATIENT } from "../../support/patient.ts";
import { freshUrl } from "../../support/redis/server.ts";
import { suite } from "../../support/suite.ts";

const test = suite("limited fetch, real servers");

const WINDOW_MS = 1000;
const LIMIT = 40;

/** Runs callers for a number of windows; returns what the server granted and refused. */
async function underLoad(limiter: RateLimiter, callers: number, windows: number) {
  const counter = new WindowCounter(LIMIT, WINDOW_MS);
  const server = await httpServer(() => {
    const now = performance.now();
    const admitted = counter.admit(now);
    const headers = counter.fields(now);
    return { status: admitted ? 200 : 429, headers: { ...headers, "retry-after": "1" } };
  });
  const call = limitedFetch(limiter, { retries: 5 });
  const end = performance.now() + windows * WINDOW_MS;
  const work = async () => {
    while (performance.now() < end) {
      const response = await call(server.url);
      await response.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: callers }, work));
  await server.close();
  return { counter, share: counter.acceptedWithin(windows * WINDOW_MS) / (LIMIT * windows) };
}

test("with the right limit nothing is refused; with an unknown limit at most one burst, two on a busy machine", async () => {
  const [known, unknown] = await Promise.all([
    underLoad(RateLimiter.create(LIMIT, { burstSeconds: 0 }), 10, 2),
    underLoad(RateLimiter.create(2000, { prefilled: true }), 60, 2),
  ]);
  const { refusedAt } = unknown.counter;
  assert.is(known.counter.refused, 0);
  // a machine that stops for a second delivers two windows at once; sync.test.ts has simulated time, and allows one
  assert.ok(bursts(refusedAt, WINDOW_MS / 2) <= 2, `${refusedAt.map(Math.round)}`);
  // on a busy machine windows pass unused: the soak checks that nine tenths are used
  for (const { share } of [known, unknown]) assert.ok(share > 0.1, `${share} was used`);
});

test("connections of discarded responses do not pile up", async () => {
  let n = 0;
  const server = await httpServer(() => ({
    status: ++n % 4 === 0 ? 200 : 429,
    headers: { "retry-after-ms": "1" },
    body: "x".repeat(200_000),
  }));
  const call = limitedFetch(RateLimiter.create(1000), { retries: 3 });
  for (let i = 0; i < 20; i++) {
    const response = await call(server.url);
    assert.is(response.status, 200);
    await response.arrayBuffer();
  }
  const open = await server.connections();
  assert.is(n, 80);
  assert.ok(open <= 5, `${open} connections are open`);
  await server.close();
});

test("an abort ends a request in flight", async () => {
  const server = await httpServer(() => new Promise(() => {}));
  const call = limitedFetch(RateLimiter.create(1000));
  const reason = new Error("enough");
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason), 50);
  assert.is(await failure(() => call(server.url, { signal: controller.signal })), reason);
  await server.close();
});

test("a server that is down: the error of fetch, after the retries", async () => {
  const server = await httpServer(() => ({ status: 200 }));
  await server.close();
  const call = limitedFetch(RateLimiter.create(1000), { retries: 2, backoffMs: 10 });
  assert.instance(await failure(() => call(server.url)), TypeError);
});

test("on Redis a refusal also delays requests of other processes", async () => {
  let n = 0;
  const server = await httpServer(() =>
    ++n === 1 ? { status: 429, headers: { "retry-after-ms": "1000" } } : { status: 200 },
  );
  const redis = new Redis(await freshUrl());
  try {
    const make = () => RedisRateLimiter.create(redis, "api", 1000, PATIENT);
    const [here, there] = [make(), make()];
    const startedAt = performance.now();
    const first = limitedFetch(here)(server.url);
    while ((await there.peek()).waitMs < 10) await new Promise((done) => setTimeout(done, 1));
    const second = await limitedFetch(there)(server.url);
    assert.ok(performance.now() - startedAt >= 995, "the request waited for the pause");
    assert.equal([(await first).status, second.status, n], [200, 200, 3]);
  } finally {
    redis.disconnect();
    await server.close();
  }
});

test.run();
