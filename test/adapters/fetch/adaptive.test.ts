import * as assert from "uvu/assert";
import { limitedFetch } from "../../../src/adapters/fetch/index.ts";
import { RateLimiter } from "../../../src/index.ts";
import { type FakeServer, fakeServer, status } from "../../support/fetch/fake-server.ts";
import {
  bucket,
  burstsOf,
  fixedWindow,
  roundsOf,
  silentServer,
  slidingWindow,
} from "../../support/fetch/silent-server.ts";
import { watch } from "../../support/limiter/watch.ts";
import { isTried, runs, suite } from "../../support/suite.ts";

const test = suite("limited fetch, adaptive rate");

const URL_OF = "http://api.test/";

/** A limiter that finds its rate within these bounds, and the rates that it was given. */
function adaptive(
  { clock, fetch }: FakeServer,
  bounds: { min: number; max: number; start?: number },
) {
  const limiter = RateLimiter.create(1, { clock, burstSeconds: 0 });
  const rates: number[] = [];
  const setRate = (rate: number, own: unknown) => {
    assert.is(own, limiter);
    rates.push(rate);
    limiter.setRate(rate);
  };
  const call = limitedFetch(limiter, {
    clock,
    fetch,
    retries: 9,
    adaptive: { ...bounds, setRate },
  });
  return { rates, call };
}

/** A latency of at least `leastMs`, plus up to `moreMs` from a fixed random sequence. */
function between(leastMs: number, moreMs: number): () => number {
  let state = 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return leastMs + (moreMs * state) / 2_147_483_647;
  };
}

// what each server refuses in the half minute after the rate has reached twice the old limit: a
// window refuses once for each window in which the rate rose, a bucket when it is empty
const servers = [
  { name: "a fixed window of 1 s", make: () => fixedWindow(1000), above: 1 },
  { name: "a fixed window of 10 s", make: () => fixedWindow(10_000), above: 3 },
  { name: "a sliding window of 1 s", make: () => slidingWindow(1000), above: 1 },
  { name: "a sliding window of 10 s", make: () => slidingWindow(10_000), above: 2 },
  { name: "a bucket of 1 s", make: () => bucket(1), above: 2 },
];
const ways = { near: () => between(2, 2), far: () => between(30, 20) };

const cases = [
  [runs(20, 10), "near"],
  [8, "far"],
] as const;
const S = 1000;

for (const [s, { name, make, above }] of servers.entries()) {
  for (const [c, [perSecond, way]] of cases.entries()) {
    if (!isTried(s, c)) continue;
    test(`${name}, ${perSecond} a second, ${way}: nine tenths are used, a change costs a burst`, async () => {
      const server = silentServer(make(), perSecond, ways[way]());
      const { clock } = server;
      const bounds = { min: perSecond / 50, max: 2 * perSecond };
      const { rates, call } = adaptive(server, bounds);
      const work = async () => {
        while (clock.now() < 460 * S) await call(URL_OF);
      };
      const all = Promise.all(Array.from({ length: 2 * perSecond }, work));

      await clock.advance(180 * S);
      const steady = server.used(60 * S, 180 * S);
      assert.ok(steady >= 0.9, `${steady} of the allowance was used`);
      const probes = burstsOf(server.refused(0, 180 * S));
      assert.ok(probes <= 5, `${probes} bursts in three minutes`);

      server.perSecond = perSecond / 2;
      await clock.advance(120 * S);
      const [fell] = server.refused(180 * S, 300 * S);
      assert.ok(fell, "the limiter has noticed");
      const after = server.refused(fell.at, fell.at + 30 * S);
      assert.is(burstsOf(after), 1, JSON.stringify(after));
      assert.ok(roundsOf(after) <= 3, JSON.stringify(after));
      const fallen = server.used(180 * S, 300 * S);
      assert.ok(fallen >= 0.75, `${fallen} of half the allowance was used`);

      server.perSecond = perSecond;
      await clock.advance(160 * S);
      const atLimit = ({ at }: { at: number }) => server.used(at - 3 * S, at) > 0.9;
      const [risen] = server.refused(320 * S, 460 * S).filter(atLimit);
      assert.ok(risen, "the limiter has found the limit again");
      const rounds = roundsOf(server.refused(risen.at, risen.at + 30 * S));
      assert.ok(rounds <= above, `refused ${rounds} times`);
      const again = server.used(risen.at, 460 * S);
      assert.ok(again >= 0.9, `${again} of the allowance was used again`);

      await clock.advance(60 * S);
      await all;
      assert.ok(rates.every((rate) => rate >= bounds.min && rate <= bounds.max));
    });
  }
}

test("an idle client does not raise the rate", async () => {
  const server = fakeServer(status(200));
  const { clock } = server;
  const { rates, call } = adaptive(server, { min: 1, max: 20, start: 5 });
  for (let i = 0; i < 20; i++) {
    const one = watch(clock, call(URL_OF));
    await clock.advance(1500);
    assert.is(one.value?.status, 200);
  }
  assert.equal(rates, [5]);
});

test("a rate that cannot be set at first is an error, and is set again", async () => {
  const server = fakeServer(status(200));
  const { clock } = server;
  let tries = 0;
  const call = limitedFetch(RateLimiter.create(10, { clock }), {
    clock,
    fetch: server.fetch,
    adaptive: {
      ...{ min: 1, max: 10 },
      setRate: async () => {
        if (++tries === 1) throw new Error("away");
      },
    },
  });
  const first = watch(clock, call(URL_OF));
  await clock.advance(10);
  assert.match(String(first.error), "away");
  const second = watch(clock, call(URL_OF));
  await clock.advance(10);
  assert.is(second.value?.status, 200);
  assert.is(tries, 2);
});

test.run();
