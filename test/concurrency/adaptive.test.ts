import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  adaptive,
  aimd,
  allOf,
  ConcurrencyLimiter,
  type ConcurrencyStrategy,
  diagnostics,
  type EndedCall,
  fairShares,
  gradient,
  type Lease,
  type LocalCombinedLease,
  PermitsExceedCapacityError,
  RateLimiter,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("adaptive concurrency");

/** A strategy that records the calls, and answers what the test sets. */
function recorded(answer: number) {
  const calls: EndedCall[] = [];
  const state = { answer };
  const strategy: ConcurrencyStrategy = () => (call) => {
    calls.push(call);
    return state.answer;
  };
  return { calls, state, strategy };
}

function learning(answer: number, bounds = { min: 1, max: 8, start: 2 }) {
  const clock = new FakeClock();
  const { calls, state, strategy } = recorded(answer);
  const limiter = ConcurrencyLimiter.create(adaptive({ ...bounds, strategy }), { clock });
  return { clock, calls, state, limiter };
}

test("a call that ends is a sample: when it ran, and whether the limit was in use", async () => {
  const { clock, calls, limiter } = learning(2);
  const [a, b] = [limiter.tryAcquire(), limiter.tryAcquire()];
  await clock.advance(30);
  a?.release();
  await clock.advance(12.5);
  b?.overloaded();
  assert.equal(calls, [
    { startedMs: 0, endedMs: 30, active: 1, isLimited: false, isOverload: false },
    { startedMs: 0, endedMs: 42.5, active: 2, isLimited: true, isOverload: true },
  ]);
});

test("a caller that waited is measured from its grant on", async () => {
  const { clock, calls, limiter } = learning(1, { min: 1, max: 1, start: 1 });
  const first = limiter.tryAcquire();
  const second = limiter.acquire();
  await clock.advance(100);
  first?.release();
  const lease = await second;
  await clock.advance(7);
  lease.release();
  assert.is((calls[1] as EndedCall).endedMs - (calls[1] as EndedCall).startedMs, 7);
});

test("ignore teaches nothing; a lease ends once", () => {
  const { calls, limiter } = learning(2);
  const lease = limiter.tryAcquire() as Lease;
  lease.ignore();
  lease.release();
  lease.overloaded();
  assert.equal(calls, []);
  assert.is(limiter.active, 0);
});

test("run: what it returns is a sample, a time-out an overload, another error nothing", async () => {
  const { calls, limiter } = learning(2);
  assert.is(await limiter.run(() => 7), 7);
  const timeout = new DOMException("too slow", "TimeoutError");
  await failure(() => limiter.run(() => Promise.reject(timeout)));
  await failure(() => limiter.run(() => Promise.reject(new Error("no route"))));
  assert.equal(
    calls.map(({ isOverload }) => isOverload),
    [false, true],
  );
  const isOverload = (error: unknown) => (error as { status?: number }).status === 429;
  await failure(() =>
    limiter.run(() => Promise.reject(Object.assign(new Error("refused"), { status: 429 })), {
      isOverload,
    }),
  );
  await failure(() => limiter.run(() => Promise.reject(timeout), { isOverload }));
  assert.equal(
    calls.map(({ isOverload }) => isOverload),
    [false, true, true],
  );
  assert.is(limiter.active, 0);
});

test("an isOverload that throws leaks no slot", async () => {
  const { limiter } = learning(2);
  const isOverload = () => {
    throw new Error("in isOverload");
  };
  const error = await failure(() =>
    limiter.run(() => Promise.reject(new Error("of fn")), { isOverload }),
  );
  assert.match(String(error), "in isOverload");
  assert.is(limiter.active, 0);
});

test("a limit that rises lets waiting callers go at once", async () => {
  const { state, limiter } = learning(2);
  const leases = [limiter.tryAcquire(), limiter.tryAcquire()];
  const waiting = [limiter.acquire(), limiter.acquire(), limiter.acquire()];
  state.answer = 4;
  leases[0]?.release();
  await Promise.all(waiting);
  assert.equal([limiter.limit, limiter.active], [4, 4]);
});

test("a limit that falls interrupts nobody, and nobody starts until enough have ended", async () => {
  const { state, limiter } = learning(4, { min: 1, max: 8, start: 4 });
  const leases = [1, 2, 3, 4].map(() => limiter.tryAcquire());
  const waiting = limiter.acquire();
  state.answer = 2;
  leases[0]?.release();
  leases[1]?.release();
  await turn();
  assert.equal([limiter.limit, limiter.active, limiter.waiting], [2, 2, 1]);
  leases[2]?.release();
  await waiting;
  assert.is(limiter.active, 2);
});

test("whatever a strategy answers, the limit is a whole number within the bounds", () => {
  const { state, limiter } = learning(2);
  for (const [answer, limit] of [
    [3.4, 3],
    [1e9, 8],
    [-5, 1],
    [Number.NaN, 1],
    [Infinity, 8],
  ] as const) {
    state.answer = answer;
    limiter.tryAcquire()?.release();
    assert.is(limiter.limit, limit);
  }
});

test("a strategy that throws leaks no slot and changes no limit, which a warning says once", async () => {
  const strategy: ConcurrencyStrategy = () => () => {
    throw new Error("in the strategy");
  };
  const limiters = [1, 2].map(() => ConcurrencyLimiter.create(adaptive({ max: 4, strategy })));
  const warnings: string[] = [];
  const note = ({ message }: Error) => void warnings.push(message);
  process.on("warning", note);
  for (let i = 0; i < 3; i++) (await allOf(...limiters).acquire()).release();
  await turn();
  process.off("warning", note);
  assert.equal(
    limiters.map(({ active, limit }) => [active, limit]),
    [
      [0, 4],
      [0, 4],
    ],
  );
  assert.equal(
    warnings,
    Array.from(
      limiters,
      () => "adaptive: the strategy failed, so the limit stays 4: in the strategy",
    ),
  );
});

test("a call that weighs more than the limit now waits, and runs alone; above max it is an error", async () => {
  const { limiter } = learning(2);
  const one = limiter.tryAcquire();
  const heavy = limiter.acquire(5);
  await turn();
  assert.is(limiter.active, 1);
  one?.release();
  (await heavy).release();
  assert.is(limiter.active, 0);
  assert.instance(await failure(() => limiter.acquire(9)), PermitsExceedCapacityError);
});

test("setLimit starts to learn anew from there, within the bounds", () => {
  const clock = new FakeClock();
  const starts: number[] = [];
  const strategy: ConcurrencyStrategy = ({ start }) => {
    starts.push(start);
    return () => start;
  };
  const limiter = ConcurrencyLimiter.create(adaptive({ max: 8, start: 2, strategy }), { clock });
  limiter.setLimit(5);
  limiter.tryAcquire()?.release();
  assert.equal([limiter.limit, starts], [5, [2, 5]]);
  assert.throws(() => limiter.setLimit(9), /limit must be a whole number from 1 to 8, got 9/);
  assert.is(limiter.limit, 5);
});

test("two limiters of one adaptive limit learn separately", () => {
  const limit = adaptive({ max: 100, strategy: aimd() });
  const [a, b] = [ConcurrencyLimiter.create(limit), ConcurrencyLimiter.create(limit)];
  a.tryAcquire()?.overloaded();
  assert.equal([a.limit, b.limit], [7, 10]);
});

test("on a fixed limit overloaded and ignore only give the slot back", () => {
  const limiter = ConcurrencyLimiter.create(2);
  limiter.tryAcquire()?.overloaded();
  limiter.tryAcquire()?.ignore();
  assert.equal([limiter.limit, limiter.active], [2, 0]);
});

test("in fair order tenants take turns on what the limit grants", async () => {
  const limit = adaptive({ max: 1 });
  const limiter = ConcurrencyLimiter.create(limit, { order: fairShares() });
  const went: string[] = [];
  const call = (share: string) => limiter.run(() => void went.push(share), { share });
  const first = limiter.tryAcquire();
  const all = ["a", "a", "a", "b"].map(call);
  first?.release();
  await Promise.all(all);
  assert.ok(went.indexOf("b") < 3, went.join(" "));
});

test("in a combination the call is measured from when all limiters let it go", async () => {
  const { clock, calls, limiter } = learning(2);
  const rate = RateLimiter.create(1, { clock });
  const both = allOf(limiter, rate);
  rate.tryAcquire();
  const pending = both.acquire();
  await clock.advance(1000);
  const lease = (await pending) as LocalCombinedLease;
  await clock.advance(20);
  lease.overloaded();
  const [{ startedMs, endedMs, isOverload }] = calls as [EndedCall];
  assert.equal([endedMs - startedMs, isOverload, calls.length], [20, true, 1]);
  await clock.advance(1000);
  both.tryAcquire()?.ignore();
  assert.equal([limiter.active, calls.length], [0, 1]);
});

test("a combination that gives its slots back while it waits teaches nothing", async () => {
  const { clock, calls, limiter } = learning(2);
  const rate = RateLimiter.create(1, { clock });
  rate.tryAcquire();
  assert.is(allOf(limiter, rate).tryAcquire(), undefined);
  const lease = allOf(limiter, rate).acquire(1, { signal: AbortSignal.abort() });
  await failure(() => lease);
  assert.equal(calls, []);
  const held = limiter.tryAcquire(2);
  const controller = new AbortController();
  const waiting = allOf(limiter, rate).acquire(1, { signal: controller.signal });
  await clock.advance(0);
  rate.charge(5);
  held?.ignore();
  await clock.advance(0);
  assert.equal([limiter.active, limiter.waiting], [0, 0]);
  controller.abort();
  await failure(() => waiting);
  assert.equal(calls, []);
});

test("it counts and publishes as a fixed limit does", async () => {
  const { limiter } = learning(1, { min: 1, max: 1, start: 1 });
  const refused: unknown[] = [];
  const subscriber = (message: unknown) => refused.push(message);
  diagnostics.refused.subscribe(subscriber);
  limiter.tryAcquire();
  limiter.tryAcquire();
  diagnostics.refused.unsubscribe(subscriber);
  assert.equal(limiter.stats, { granted: 1, refused: 1, cancelled: 0, waiting: 0 });
  assert.is(refused.length, 1);
});

test("arguments are checked", () => {
  for (const [options, words] of [
    [{}, /max must be a whole number from 1/],
    [{ max: 0 }, /max must be a whole number from 1/],
    [{ min: 5, max: 4 }, /max must be a whole number from 5/],
    [{ max: 4, start: 5 }, /start must be a whole number from 1 to 4, got 5/],
    [{ max: 4, strategy: "aimd" }, /strategy must be a function/],
    [{ max: 4, most: 3 }, /adaptive has no "most"/],
  ] as const) {
    assert.throws(() => adaptive(options as never), words);
  }
  assert.throws(() => aimd({ decrease: 1 }), /decrease must be a number above 0 and below 1/);
  assert.throws(() => aimd({ increase: 0 }), /increase/);
  assert.throws(() => ConcurrencyLimiter.create({} as never), /limit must be/);
  assert.equal(
    [adaptive({ max: 4 }), adaptive({ max: 50 }), adaptive({ min: 20, max: 50 })].map(
      ({ start }) => start,
    ),
    [4, 10, 20],
  );
});

test("aimd: calls that were in flight at a decrease lower the limit once, and do not raise it", () => {
  const next = aimd()({ min: 1, max: 100, start: 10 });
  const call = { active: 10, isLimited: true };
  assert.is(next({ ...call, startedMs: 0, endedMs: 10, isOverload: true }), 7);
  assert.is(next({ ...call, startedMs: 5, endedMs: 11, isOverload: true }), 7);
  assert.is(next({ ...call, startedMs: 5, endedMs: 12, isOverload: false }), 7);
  assert.is(next({ ...call, startedMs: 10, endedMs: 20, isOverload: true }), 4.8999999999999995);
  assert.is(
    next({ ...call, startedMs: 21, endedMs: 22, isLimited: false, isOverload: false }),
    4.8999999999999995,
  );
});

test("gradient: one slow call, or rare calls, do not change the limit; time-outs do not become the baseline", () => {
  const next = gradient()({ min: 1, max: 100, start: 10 });
  let now = 0;
  let limit = 10;
  const calls = (count: number, heldMs: number, facts: Partial<EndedCall> = {}) => {
    for (let i = 0; i < count; i++) {
      now += heldMs;
      const call = { startedMs: now - heldMs, endedMs: now, active: 1 };
      limit = next({ ...call, isLimited: false, isOverload: false, ...facts });
    }
  };
  calls(1000, 10);
  assert.is(limit, 10, "calls that come one by one");
  calls(1, 60_000);
  calls(1000, 10);
  assert.is(limit, 10, "one slow call");
  calls(20, 5000, { isOverload: true, isLimited: true });
  assert.is(limit, 1, "a server that only times out");
});

/** What may happen to a limiter. */
const events = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant("start" as const), slots: fc.integer({ min: 1, max: 3 }) }),
    fc.record({ kind: fc.constant("wait" as const) }),
    fc.record({ kind: fc.constant("lose" as const) }),
    fc.record({
      kind: fc.constantFrom("release" as const, "overloaded" as const, "ignore" as const),
      which: fc.nat(50),
    }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.integer({ min: 0, max: 5000 }) }),
  ),
  { maxLength: 200 },
);

for (const [name, strategy] of Object.entries({ gradient, aimd: () => aimd() })) {
  test(`${name}: within its bounds, no slot leaks, idling changes nothing`, async () => {
    const bounds = fc.tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 0, max: 20 }));
    await fc.assert(
      fc.asyncProperty(bounds, events, async ([min, more], history) => {
        const clock = new FakeClock();
        const max = min + more;
        const limit = adaptive({ min, max, strategy: strategy() });
        const limiter = ConcurrencyLimiter.create(limit, { clock });
        const held: { lease: Lease; slots: number }[] = [];
        let lost = 0;
        for (const event of history) {
          if (event.kind === "start") {
            const slots = Math.min(event.slots, max);
            const lease = limiter.tryAcquire(slots);
            if (lease) held.push({ lease, slots });
          } else if (event.kind === "wait") {
            void limiter.acquire().then((lease) => held.push({ lease, slots: 1 }));
          } else if (event.kind === "lose") {
            lost += held.pop()?.slots ?? 0;
          } else if (event.kind === "pass") {
            const before = limiter.limit;
            await clock.advance(event.ms);
            assert.is(limiter.limit, before, "time alone changes nothing");
          } else {
            held.splice(event.which % (held.length || 1), 1)[0]?.lease[event.kind]();
          }
          await turn();
          assert.ok(limiter.limit >= min && limiter.limit <= max, `limit ${limiter.limit}`);
          const slots = held.reduce((sum, one) => sum + one.slots, lost);
          assert.is(limiter.active, slots, "what is held is counted");
          assert.ok(slots <= max, `${slots} held`);
        }
      }),
      { numRuns: runs(60) },
    );
  });
}

test.run();
