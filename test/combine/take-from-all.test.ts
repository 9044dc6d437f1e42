import {
  allOf,
  ConcurrencyLimiter,
  diagnostics,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  leakyBucket,
  type PermitsExceedCapacityError,
  takeFromAll,
} from "smooth-limiter";
import { StoreLimiter, StoreUnavailableError } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { failure } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const HOUR = 3_600_000;
const test = suite("takeFromAll");

function hourly(limit: number, clock = new FakeClock(), name = "hourly") {
  return Limiter.create(fixedWindow({ limit, windowMs: HOUR }), { clock, name });
}

test("each limiter grants its own permits", () => {
  const [requests, bytes] = [hourly(5), hourly(1000)];
  const { allowed, results } = takeFromAll([
    { limiter: requests },
    { limiter: bytes, permits: 300 },
  ]);
  assert.is(allowed, true);
  assert.equal(
    results.map((result) => [result?.allowed, result?.decision.remaining, result?.reservation]),
    [
      [true, 4, undefined],
      [true, 700, undefined],
    ],
  );
});

test("a refusal takes from none, and each limiter's result shows whether it refused", () => {
  const [one, two] = [hourly(5), hourly(1)];
  const refused: string[] = [];
  const listener = ({ limiter }: { limiter: string }) => void refused.push(limiter);
  diagnostics.refused.subscribe(listener);
  const small = hourly(1, new FakeClock(), "small");
  small.tryAcquire();
  const { allowed, results } = takeFromAll([{ limiter: one }, { limiter: small }]);
  diagnostics.refused.unsubscribe(listener);
  assert.equal([allowed, results.map((result) => result?.allowed)], [false, [true, false]]);
  assert.equal([one.peek().remaining, two.peek().remaining], [5, 1]);
  assert.equal(refused, ["small"]);
});

test("an optional limiter is charged if it grants the request, and refuses no request", () => {
  const [must, may] = [hourly(5), hourly(1)];
  const ask = () => takeFromAll([{ limiter: must }, { limiter: may, optional: true }]);
  assert.equal(
    [ask(), ask()].map(({ allowed, results }) => [allowed, results[1]?.allowed]),
    [
      [true, true],
      [true, false],
    ],
  );
  assert.equal([must.peek().remaining, may.peek().remaining], [3, 0]);
});

test("with a time-out the permits are reserved, and undo gives all of them back", async () => {
  const clock = new FakeClock();
  const line = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 5 }), { clock });
  const common = hourly(5, clock);
  const ask = (timeoutMs: number) =>
    takeFromAll([{ limiter: line, timeoutMs }, { limiter: common }]);
  assert.is(ask(Infinity).results[0]?.reservation?.waitMs, 0);
  assert.is(ask(999).allowed, false);
  const second = ask(1000);
  const [result] = second.results;
  assert.equal([second.allowed, result?.reservation?.waitMs], [true, 1000]);
  assert.is(common.peek().remaining, 3);
  void second.undo();
  assert.equal([line.peek().waitMs, common.peek().remaining], [1000, 4]);

  const third = ask(Infinity);
  const waited = third.results[0]?.reservation?.ready();
  await clock.advance(1000);
  assert.is(await waited, 1000);
});

test("limiters of a store answer with a promise; an optional one that cannot be asked has no result", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const policy = fixedWindow({ limit: 5, windowMs: HOUR });
  const shared = StoreLimiter.create(store, "shared", policy, { clock });
  const local = hourly(5, clock);
  const ask = (optional: boolean) =>
    takeFromAll([{ limiter: local }, { limiter: shared, permits: 2, optional }]);
  const taken = await ask(false);
  assert.equal([taken.allowed, taken.results[1]?.decision.remaining], [true, 3]);
  await taken.undo();
  assert.equal([(await shared.peek()).remaining, local.peek().remaining], [5, 5]);

  await shared.close();
  const { allowed, results, undo } = await ask(true);
  assert.equal([allowed, results.map((result) => result?.allowed)], [true, [true, undefined]]);
  assert.is(local.peek().remaining, 4);
  await undo();
  assert.is(local.peek().remaining, 5, "there is nothing to undo in the other one");
});

test("a store that cannot be asked fails the call if any limiter on it is not optional", async () => {
  const store = memoryStore();
  const policy = fixedWindow({ limit: 5, windowMs: HOUR });
  const [one, two] = ["one", "two"].map((name) => StoreLimiter.create(store, name, policy)) as [
    StoreLimiter,
    StoreLimiter,
  ];
  store.fail();
  const requests = [{ limiter: one, optional: true }, { limiter: two }];
  assert.instance(await failure(() => takeFromAll(requests)), StoreUnavailableError);
  await Promise.all([one.close(), two.close()]);
});

test("any number of limiters", () => {
  const requests = Array.from({ length: 20 }, () => ({ limiter: hourly(5) }));
  assert.is(takeFromAll(requests).allowed, true);
  const limiter = hourly(5);
  const rows: [wrong: object, error: RegExp][] = [
    [{}, /requests\[20\]\.limiter must be a rate limiter/],
    [{ limiter, timeoutMs: -1 }, /requests\[20\]\.timeoutMs must be .* got -1/],
    [{ limiter, optional: 1 }, /requests\[20\]\.optional must be true or false/],
  ];
  for (const [wrong, error] of rows) {
    assert.throws(() => takeFromAll([...requests, wrong as { limiter: Limiter }]), error);
  }
});

test("combinations and tables of keys are limiters too", () => {
  const users = KeyedLimiter.create(gcra({ limit: 2, periodMs: HOUR }), {
    maxKeys: 1,
    whenFull: "refuse",
  });
  const both = allOf(hourly(3), hourly(2));
  assert.is(takeFromAll([{ limiter: both }, { limiter: users.for("ann") }]).allowed, true);
  const { allowed, results } = takeFromAll([{ limiter: both }, { limiter: users.for("bob") }]);
  assert.equal([allowed, results[1]?.allowed], [false, false]);
  assert.is(both.peek().remaining, 1);
});

test("bad arguments throw before anything changes", () => {
  const limiter = hourly(5);
  const places = ConcurrencyLimiter.create(1);
  const wrong: [requests: unknown, error: RegExp | typeof PermitsExceedCapacityError][] = [
    [[], /requests must be an array with a request/],
    [{ limiter }, /requests must be an array with a request, got an object/],
    [[limiter], /requests\[0\]\.limiter must be a rate limiter, got undefined/],
    [[{ limiter }, {}], /requests\[1\]\.limiter must be a rate limiter, got undefined/],
    [[{ limiter: places }], /requests\[0\]\.limiter must be a rate limiter, got an object/],
    [[{ limiter, timeoutMs: -1 }], /requests\[0\]\.timeoutMs must be .* got -1/],
    [[{ limiter, optional: 1 }], /requests\[0\]\.optional must be true or false, got 1/],
    [[{ limiter, permit: 1 }], /requests\[0\] has no "permit"/],
    [[{ limiter }, { limiter, permits: 6 }], /6 permits can never pass/],
    [[{ limiter, permits: Number.NaN }], /permits/],
  ];
  for (const [requests, error] of wrong) {
    assert.throws(() => takeFromAll(requests as []), error);
  }
  assert.is(limiter.peek().remaining, 5);
});

test.run();
