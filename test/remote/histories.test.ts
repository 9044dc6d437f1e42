/** Random histories of limiters on a store that is slow, silent, or repeats and loses replies. */
import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  allOf,
  fairShares,
  fixedWindow,
  Limiter,
  type Reservation,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../src/index.ts";
import { type Store, StoreLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("random histories of remote limiters", { timeoutMs: 120_000 });

const FAULTS = ["none", "none", "none", "slow", "fails", "lost", "twice", "silent"] as const;
type Fault = (typeof FAULTS)[number];

const world = fc.record({
  whenUnavailable: fc.constantFrom("throw", "wait", "local", "allow"),
  fair: fc.boolean(),
  prefetch: fc.constantFrom(undefined, { permits: 3, maxAgeMs: 50 }),
  maxWaiting: fc.constantFrom(Infinity, 3),
  faults: fc.array(fc.constantFrom(...FAULTS), { minLength: 1, maxLength: 20 }),
});
const step = fc.record({
  verb: fc.constantFrom(
    ...(["acquire", "acquire", "acquire", "timed", "reserve", "ready", "settle", "undo"] as const),
    ...(["decide", "peek", "charge", "pause", "reset", "abort", "tick", "tick", "tick"] as const),
  ),
  on: fc.nat(4),
  pick: fc.nat(500),
});
const history = fc.array(step, { maxLength: 60, size: "max" });

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Runs a call with a fault. */
async function suffer<T>(fault: Fault, run: () => Promise<T>): Promise<T> {
  if (fault === "slow") await sleep(30);
  if (fault === "fails") throw new Error("ECONNREFUSED");
  const reply = await run();
  if (fault === "twice") return run();
  if (fault === "lost") throw new Error("ECONNRESET");
  if (fault === "silent") await sleep(1500);
  return reply;
}

test("every call ends, close leaves nothing behind, and no caller is counted twice", async () => {
  const property = fc.asyncProperty(world, history, async ({ faults, fair, ...others }, steps) => {
    const options = { ...others, order: fair ? fairShares() : undefined };
    const timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    try {
      const base = memoryStore();
      let calls = 0;
      const store: Store = {
        breakerOf: () => base.breakerOf(),
        run: (key, declared, requests, now, batchId) =>
          suffer(faults[calls++ % faults.length] as Fault, () =>
            base.run(key, declared, requests, now, batchId),
          ),
      };
      const bucket = tokenBucket({ capacity: 5, refill: 5, everyMs: 1000 });
      const remote = ["one", "one", "other"].map((name) =>
        StoreLimiter.create(store, name, bucket, { ...options, instances: 2 }),
      );
      const [one, , other] = remote as [StoreLimiter, StoreLimiter, StoreLimiter];
      const limiters = [...remote, allOf(one, other), allOf(one, Limiter.create(bucket))];
      const pending = new Set<string>();
      let abort = new AbortController();
      const reservations: Reservation[] = [];
      const track = async (what: string, call: () => unknown) => {
        pending.add(what);
        try {
          await call();
        } catch (error) {
          const { code = error } = Object(error);
          assert.match(`${code}`, /^(STORE_UNAVAILABLE|LIMITER_CLOSED|QUEUE_FULL|RESERV|enough)/);
        } finally {
          pending.delete(what);
        }
      };
      const ends: Promise<unknown>[] = [];
      for (const [i, { verb, on, pick }] of steps.entries()) {
        const limiter = limiters[on] as (typeof limiters)[number];
        const reservation = reservations[pick % Math.max(1, reservations.length)];
        const { signal } = abort;
        const permits = 1 + (pick % 2);
        const act = {
          acquire: () => limiter.acquire(permits, pick < 250 ? { signal } : {}),
          timed: () => limiter.tryAcquire(permits, { timeoutMs: pick, signal }),
          reserve: async () => void reservations.push(await limiter.reserve(permits)),
          ready: () => reservation?.ready(pick < 250 ? { signal } : {}),
          settle: () => reservation?.settle(permits),
          undo: () => reservation?.undo(),
          decide: () => limiter.decide(permits),
          peek: () => limiter.peek(),
          charge: () => limiter.charge(permits),
          pause: () => limiter.pause(pick),
          reset: () => limiter.reset(),
          abort: () => {
            abort.abort("enough");
            abort = new AbortController();
          },
          tick: () => timers.tickAsync(pick),
        }[verb];
        const end = track(`${i}: ${verb}`, act);
        if (verb === "tick") await end;
        else ends.push(end);
        if (pick % 3 === 0) await turn();
      }
      for (const limiter of remote) ends.push(track("close", () => limiter.close()));
      for (let i = 0; i < 30; i++) {
        await timers.tickAsync(500);
        await turn();
      }
      assert.equal([...pending], []);
      await Promise.all(ends);
      for (const { stats } of remote) assert.is(stats.waiting, 0);
      assert.is(timers.countTimers(), 0);
    } finally {
      timers.uninstall();
    }
  });
  await fc.assert(property, { numRuns: runs(300, 20) });
});

const numbers = fc.record({ limit: fc.constantFrom(3, 5), windowMs: fc.constantFrom(100, 500) });
const windows = fc.oneof(
  numbers.map(fixedWindow),
  numbers.map((some) => slidingWindow({ ...some, buckets: 5 })),
  numbers.map(slidingLog),
);
const deed = fc.record({
  verb: fc.constantFrom("acquire", "acquire", "timed", "pause", "abort", "tick", "tick"),
  on: fc.nat(2),
  permits: fc.constantFrom(1, 1, 1, 2, 3),
  count: fc.constantFrom(1, 4, 20),
  ms: fc.oneof(fc.nat(20), fc.nat(600)),
});

test("windows keep their bound while processes pause, time out and abort; then every caller goes", async () => {
  const property = fc.asyncProperty(
    windows,
    fc.array(deed, { maxLength: 40 }),
    async (policy, deeds) => {
      const clock = new FakeClock();
      const store = memoryStore({ clock });
      const limiters = [0, 1, 2].map(() => StoreLimiter.create(store, "api", policy, { clock }));
      const granted: { readonly at: number; readonly permits: number }[] = [];
      const ends: Promise<void>[] = [];
      let abort = new AbortController();
      for (const { verb, on, permits, count, ms } of deeds) {
        const limiter = limiters[on] as StoreLimiter;
        const { signal } = abort;
        const call = async (wait: () => Promise<number | boolean>) => {
          const outcome = await wait().catch(() => false);
          if (outcome !== false) granted.push({ at: clock.now(), permits });
        };
        for (let i = 0; i < count; i++) {
          if (verb === "acquire") ends.push(call(() => limiter.acquire(permits, { signal })));
          if (verb === "timed") ends.push(call(() => limiter.tryAcquire(permits, ms)));
        }
        if (verb === "pause") await limiter.pause(ms);
        if (verb === "abort") abort.abort();
        if (abort.signal.aborted) abort = new AbortController();
        await clock.advance(verb === "tick" ? ms : 0);
      }
      await clock.advance(10_000_000);
      await Promise.all(ends);
      for (const [i, first] of granted.entries()) {
        let sum = 0;
        for (const { at, permits } of granted.slice(i)) {
          sum += permits;
          const most = policy.algorithm.bound(policy, (at - first.at) * 1000, 3);
          assert.ok(sum <= most, `${sum} from ${first.at} to ${at}, at most ${most}`);
        }
      }
    },
  );
  await fc.assert(property, { numRuns: runs(1000, 20) });
});

test.run();
