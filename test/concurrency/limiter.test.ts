import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  ConcurrencyLimiter,
  type Lease,
  LimiterError,
  QueueFullError,
  type TryOptions,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("concurrency");

/** Takes all free places at once. */
function takeAll(limiter: ConcurrencyLimiter): Lease[] {
  const leases: Lease[] = [];
  for (let lease = limiter.tryAcquire(); lease; lease = limiter.tryAcquire()) leases.push(lease);
  return leases;
}

/**
 * A limiter whose places are all taken, and the list of callers that got a lease since, in order.
 */
function full(limit: number, options: { maxWaiting?: number; name?: string } = {}) {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(limit, { ...options, clock });
  const leases = takeAll(limiter);
  const went: string[] = [];
  const failed: unknown[] = [];
  const ask = (who: string, signal?: AbortSignal) => {
    limiter.acquire(1, { signal }).then(
      (lease) => {
        went.push(who);
        leases.push(lease);
      },
      (error) => failed.push(error),
    );
  };
  const releaseFirst = async () => {
    leases.shift()?.release();
    await turn();
  };
  return { clock, limiter, leases, went, failed, ask, releaseFirst };
}

test("as many leases as the limit at once, and no more", async () => {
  const { limiter, leases } = full(3);
  assert.is(leases.length, 3);
  assert.equal([limiter.limit, limiter.active, limiter.waiting], [3, 3, 0]);
  leases[1]?.release();
  assert.is(limiter.active, 2);
  const lease = await limiter.acquire();
  assert.is(limiter.tryAcquire(), undefined);
  lease.release();
  assert.ok(limiter.tryAcquire());
});

test("releasing twice frees one place", () => {
  const { limiter, leases } = full(2);
  leases[0]?.release();
  leases[0]?.release();
  assert.is(limiter.active, 1);
  assert.is(takeAll(limiter).length, 1);
});

test("first in, first out; a newcomer does not overtake", async () => {
  const { limiter, went, ask, leases, releaseFirst } = full(2);
  for (const who of ["a", "b", "c"]) ask(who);
  assert.is(limiter.waiting, 3);
  leases[0]?.release();
  // the place is handed over already, though the waiter's promise has not resolved yet
  assert.is(limiter.tryAcquire(), undefined);
  ask("d");
  await turn();
  assert.equal(went, ["a"]);
  leases.shift();
  for (let i = 0; i < 3; i++) await releaseFirst();
  assert.equal(went, ["a", "b", "c", "d"]);
  assert.equal([limiter.active, limiter.waiting], [2, 0]);
});

test("leave a block with `using` or `await using`: the lease is released", async () => {
  const limiter = ConcurrencyLimiter.create(1);
  {
    using _lease = await limiter.acquire();
    assert.is(limiter.active, 1);
  }
  assert.is(limiter.active, 0);
  {
    await using _lease = limiter.tryAcquire();
    assert.is(limiter.active, 1);
  }
  assert.is(limiter.active, 0);
});

test("run returns the function's result or error, and always releases", async () => {
  const limiter = ConcurrencyLimiter.create(1);
  const error = new Error("no");
  assert.is(await limiter.run(() => limiter.active), 1);
  assert.is(await limiter.run(async () => "later"), "later");
  const thrown = limiter.run(() => {
    throw error;
  });
  const rejected = limiter.run(() => Promise.reject(error));
  const last = limiter.run((lease) => {
    lease.release();
    return limiter.active;
  });
  assert.equal([limiter.active, limiter.waiting], [1, 2]);
  assert.is(await failure(() => thrown), error);
  assert.is(await failure(() => rejected), error);
  assert.is(await last, 0);
  assert.is(limiter.active, 0);
});

test("run does not call a function whose wait was aborted", async () => {
  const { limiter } = full(1);
  const controller = new AbortController();
  const run = limiter.run(() => assert.unreachable(), { signal: controller.signal });
  controller.abort("enough");
  assert.is(await failure(() => run), "enough");
  assert.match(`${await failure(() => limiter.run(5 as never))}`, "fn must be a function");
  assert.equal([limiter.active, limiter.waiting], [1, 0]);
});

test("an abort leaves no gap and rejects with the signal's own reason", async () => {
  const { limiter, went, failed, ask, releaseFirst } = full(1);
  const controller = new AbortController();
  const reason = { why: "enough" };
  ask("a", controller.signal);
  ask("b");
  ask("c", controller.signal);
  controller.abort(reason);
  assert.is(limiter.waiting, 1);
  await releaseFirst();
  assert.equal(went, ["b"]);
  assert.is(failed.length, 2);
  assert.ok(failed.every((error) => error === reason));
});

test("an abort before the call, and one after the lease was granted", async () => {
  const { limiter, leases } = full(1);
  const reason = new Error("enough");
  const signal = AbortSignal.abort(reason);
  assert.is(await failure(() => limiter.acquire(1, { signal })), reason);
  assert.is(await failure(() => limiter.tryAcquire({ signal })), reason);
  const controller = new AbortController();
  const granted = limiter.acquire(1, { signal: controller.signal });
  leases[0]?.release();
  // the place would be free again if the lease had been refused, but the grant came first
  controller.abort(reason);
  (await granted).release();
  assert.equal([limiter.active, limiter.waiting], [0, 0]);
  assert.is(await failure(() => limiter.acquire(1, { signal })), reason);
  assert.is(limiter.active, 0);
});

test("tryAcquire with a time-out waits for that long at most", async () => {
  const { clock, limiter, leases } = full(1);
  const table: [wait: number | TryOptions, at: number | undefined][] = [
    [0, 0],
    [-5, 0],
    [{ timeoutMs: 0 }, 0],
    [20, 20],
    [{ timeoutMs: 10 }, 10],
    [{ timeoutMs: Infinity }, undefined],
    [{}, undefined],
  ];
  const watched = table.map(([wait]) => watch(clock, limiter.tryAcquire(1, wait)));
  assert.is(limiter.waiting, 4);
  await clock.advance(15);
  assert.is(limiter.waiting, 3);
  await clock.advance(15);
  table.forEach(([, at], i) => {
    assert.is(watched[i]?.at, at, `row ${i}`);
    assert.is(watched[i]?.value, undefined);
  });
  leases[0]?.release();
  await clock.advance(0);
  assert.ok(watched[5]?.value);
  assert.is(limiter.waiting, 1);
});

test("an expired waiter does not take the next one's place", async () => {
  const { clock, limiter, leases, went, ask } = full(1);
  const tried = watch(clock, limiter.tryAcquire(1, 10));
  const granted = watch(clock, limiter.tryAcquire({ timeoutMs: 30 }));
  ask("c");
  await clock.advance(20);
  leases[0]?.release();
  await clock.advance(20);
  assert.equal([tried.at, tried.value], [10, undefined]);
  assert.is(granted.at, 20);
  assert.equal(went, []);
  granted.value?.release();
  await turn();
  assert.equal(went, ["c"]);
  assert.is((await limiter.tryAcquire(1, 0)) === undefined, true);
});

test("no timer outlives its waiter", async () => {
  const clock = new FakeClock();
  const timers = new Set<() => void>();
  const limiter = ConcurrencyLimiter.create(1, {
    clock: {
      now: () => clock.now(),
      wakeAt: (_, wake) => {
        timers.add(wake);
        return { cancel: () => timers.delete(wake) };
      },
    },
  });
  const lease = limiter.tryAcquire();
  const controller = new AbortController();
  const granted = limiter.tryAcquire(1, 10);
  const aborted = limiter.tryAcquire({ timeoutMs: 10, signal: controller.signal });
  assert.is(timers.size, 1);
  lease?.release();
  assert.ok(await granted);
  controller.abort("enough");
  assert.is(await failure(() => aborted), "enough");
  assert.is(timers.size, 0);
});

test("tryAcquire with a time-out takes a free place at once; its signal ends the wait", async () => {
  const limiter = ConcurrencyLimiter.create(1);
  const lease = await limiter.tryAcquire(1, 0);
  assert.ok(lease);
  const controller = new AbortController();
  const tried = limiter.tryAcquire({ timeoutMs: 1000, signal: controller.signal });
  controller.abort("enough");
  assert.is(await failure(() => tried), "enough");
  assert.is(limiter.waiting, 0);
});

test("maxWaiting: one acquire more is an error, one tryAcquire more resolves to undefined", async () => {
  const { clock, limiter, ask, releaseFirst } = full(2, { maxWaiting: 1, name: "pages" });
  ask("a");
  const error = (await failure(() => limiter.acquire())) as QueueFullError;
  assert.instance(error, QueueFullError);
  assert.instance(error, LimiterError);
  assert.match(error.message, /"pages".*maxWaiting is 1/);
  assert.equal(error.facts, { limiter: "pages", permits: 1, waiting: 1, maxWaiting: 1 });
  assert.is(watch(clock, limiter.tryAcquire(1, 1000)).at, undefined);
  assert.is(await limiter.tryAcquire(1, 1000), undefined);
  await releaseFirst();
  const waits = limiter.tryAcquire(1, 1000);
  assert.is(limiter.waiting, 1);
  await clock.advance(1000);
  assert.is(await waits, undefined);
});

test("maxWaiting 0: no caller waits, and free places are granted", async () => {
  const limiter = ConcurrencyLimiter.create(1, { maxWaiting: 0 });
  const lease = await limiter.acquire();
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  lease.release();
  await limiter.acquire();
});

test("a higher limit releases waiters at once, in order", async () => {
  const { limiter, went, ask } = full(1);
  for (const who of ["a", "b", "c"]) ask(who);
  limiter.setLimit(3);
  assert.equal([limiter.limit, limiter.active, limiter.waiting], [3, 3, 1]);
  await turn();
  assert.equal(went, ["a", "b"]);
});

test("a lower limit ends no lease, and grants none before enough were released", async () => {
  const { limiter, went, ask, releaseFirst } = full(3);
  ask("a");
  limiter.setLimit(1);
  assert.equal([limiter.limit, limiter.active], [1, 3]);
  await releaseFirst();
  await releaseFirst();
  assert.equal(went, []);
  assert.is(limiter.tryAcquire(), undefined);
  await releaseFirst();
  assert.equal(went, ["a"]);
});

test("error messages name bad arguments, and nothing changes", async () => {
  const { limiter, leases } = full(1);
  for (const bad of [0, -1, 1.5, Number.NaN, Infinity, "1", null, undefined] as number[]) {
    assert.throws(() => ConcurrencyLimiter.create(bad), /limit must be a whole number, 1 or more/);
    assert.throws(() => limiter.setLimit(bad), /limit must be a whole number/);
  }
  for (const [options, words] of [
    [{ maxWaiting: -1 }, /maxWaiting/],
    [{ maxwaiting: 1 }, /maxwaiting/],
    [{ name: 5 }, /name/],
    [{ clock: {} }, /clock/],
    [null, /options/],
  ] as const) {
    assert.throws(() => ConcurrencyLimiter.create(1, options as never), words);
  }
  for (const [action, words] of [
    [() => limiter.acquire(1, 1 as never), "options"],
    [() => limiter.acquire({} as never), "slots"],
    [() => limiter.acquire(1, { timeoutMs: 1 } as never), "timeoutMs"],
    [() => limiter.acquire(1, { signal: 5 } as never), "signal"],
    [() => limiter.tryAcquire("1" as never), "slots"],
    [() => limiter.tryAcquire(1, "1" as never), "wait"],
    [() => limiter.tryAcquire(1, Number.NaN), "timeoutMs"],
    [() => limiter.tryAcquire({ wait: 5 } as never), "wait"],
  ] as const) {
    assert.match(`${await failure(action)}`, words);
  }
  assert.equal([limiter.limit, limiter.active, limiter.waiting], [1, 1, 0]);
  leases[0]?.release();
  assert.is(limiter.active, 0);
});

test("thousands of waiters: all cancelled by one signal, all cancelled by their own signals, and all granted", async () => {
  const count = runs(20_000, 5000);
  for (const makeSignals of [
    () => Array(count).fill(new AbortController()),
    () => Array.from({ length: count }, () => new AbortController()),
  ] as (() => AbortController[])[]) {
    const { limiter, went, failed, ask, releaseFirst } = full(1);
    ask("first");
    const controllers = makeSignals();
    for (const { signal } of controllers) ask("given up", signal);
    ask("last");
    for (const controller of new Set(controllers)) controller.abort("enough");
    await turn();
    assert.is(failed.length, count);
    assert.is(limiter.waiting, 2);
    await releaseFirst();
    await releaseFirst();
    assert.equal(went, ["first", "last"]);
  }
  const { went, ask, leases } = full(1);
  for (let i = 0; i < count; i++) ask(`${i}`);
  while (went.length < count) {
    leases.pop()?.release();
    await Promise.resolve();
  }
  assert.equal(went.slice(-2), [`${count - 2}`, `${count - 1}`]);
});

/** One step of a history; `pick` selects one of the waiters or leases that it could concern. */
const step = fc.record({
  action: fc.constantFrom("acquire", "try", "tryWait", "abort", "release", "setLimit", "advance"),
  pick: fc.nat(1000),
});

test("random histories agree with a model: the limit holds, the order is kept, no place leaks", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 4 }), fc.array(step), async (first, steps) => {
      const clock = new FakeClock();
      const limiter = ConcurrencyLimiter.create(first, { clock, maxWaiting: 6 });
      const leases: Lease[] = [];
      const log: string[] = [];
      const controllers = new Map<number, AbortController>();
      // the model: which callers wait, until when, and how many leases are held
      const line: { id: number; until: number }[] = [];
      const expected: string[] = [];
      let limit = first;
      let active = 0;
      const grant = () => {
        while (active < limit) {
          const head = line.shift();
          if (head === undefined) return;
          active += 1;
          expected.push(`${head.id} went`);
        }
      };
      for (const [id, { action, pick }] of steps.entries()) {
        const enters = (lease: Lease | undefined) => {
          if (lease) leases.push(lease);
          log.push(`${id} ${lease ? "went" : "gave up"}`);
        };
        if (action === "try") {
          const lease = limiter.tryAcquire();
          assert.is(lease !== undefined, active < limit);
          if (lease) leases.push(lease);
          if (lease) active += 1;
        } else if (action === "acquire" || action === "tryWait") {
          const controller = new AbortController();
          const { signal } = controller;
          const timeoutMs = pick % 30;
          const entered: Promise<Lease | undefined> =
            action === "acquire"
              ? limiter.acquire(1, { signal })
              : limiter.tryAcquire({ timeoutMs, signal });
          entered.then(enters, () => log.push(`${id} failed`));
          if (active < limit) {
            active += 1;
            expected.push(`${id} went`);
          } else if (action === "tryWait" && timeoutMs === 0) {
            expected.push(`${id} gave up`);
          } else if (line.length >= 6) {
            expected.push(`${id} ${action === "acquire" ? "failed" : "gave up"}`);
          } else {
            line.push({ id, until: action === "acquire" ? Infinity : clock.now() + timeoutMs });
            controllers.set(id, controller);
          }
        } else if (action === "abort" && line.length > 0) {
          const [left] = line.splice(pick % line.length, 1);
          controllers.get(left?.id ?? -1)?.abort();
          expected.push(`${left?.id} failed`);
        } else if (action === "release" && leases.length > 0) {
          leases.splice(pick % leases.length, 1)[0]?.release();
          active -= 1;
          grant();
        } else if (action === "setLimit") {
          limit = 1 + (pick % 4);
          limiter.setLimit(limit);
          grant();
        } else if (action === "advance") {
          await clock.advance(pick % 20);
          const over = line.filter(({ until }) => until <= clock.now());
          for (const late of over.sort((a, b) => a.until - b.until)) {
            line.splice(line.indexOf(late), 1);
            expected.push(`${late.id} gave up`);
          }
        }
        await turn();
        assert.equal(log, expected);
        assert.equal([limiter.active, limiter.waiting], [active, line.length]);
        assert.is(leases.length, active);
      }
      while (leases.length > 0) {
        leases.pop()?.release();
        await turn();
      }
      assert.equal([limiter.active, limiter.waiting], [0, 0]);
      assert.is(takeAll(limiter).length, limit);
    }),
    { numRuns: runs(200) },
  );
});

test.run();
