import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import { RemoteConcurrency } from "../../src/concurrency/leased/remote-concurrency.ts";
import {
  allOf,
  ConcurrencyLimiter,
  fairShares,
  PermitsExceedCapacityError,
  QueueFullError,
  RateLimiter,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { HandLeaseStore, settled } from "../support/limiter/lease-store.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

type Order = "first in, first out" | "fair";
type AnyLimiter = ConcurrencyLimiter | RemoteConcurrency;

const orderOf = (order: Order) => (order === "fair" ? fairShares() : undefined);

/** The same promises for limits of this process and for those on a store. */
const places: Record<string, (limit: number, order: Order, maxWaiting?: number) => AnyLimiter> = {
  "in this process": (limit, order, maxWaiting = Infinity) =>
    ConcurrencyLimiter.create(limit, { order: orderOf(order), maxWaiting }),
  "on a store": (limit, order, maxWaiting = Infinity) => {
    const options = { name: "limiter", leaseMs: 60_000, timeoutMs: 1000, maxWaiting };
    const all = { ...options, whenUnavailable: "throw" as const };
    return new RemoteConcurrency(new HandLeaseStore(), "key", limit, all, orderOf(order));
  },
};

for (const [place, create] of Object.entries(places)) {
  for (const order of ["first in, first out", "fair"] as const) {
    const test = suite(`slots ${place}, ${order}`);
    let clock: FakeTimers.Clock;
    test.before.each(() => {
      clock = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    });
    test.after.each(() => {
      clock.uninstall();
    });

    test("a call holds as many slots as it asks for", async () => {
      const limiter = create(5, order);
      const three = await limiter.acquire(3);
      assert.is(limiter.active, 3);
      assert.is(await limiter.tryAcquire(3), undefined);
      const two = await limiter.tryAcquire(2);
      assert.is(limiter.active, 5);
      await three.release();
      assert.is(limiter.active, 2);
      const held = await limiter.run(() => limiter.active, { slots: 3 });
      assert.is(held, 5);
      await two?.release();
      await settled();
      assert.is(limiter.active, 0);
    });

    test("a call for many slots is not starved by calls for few", async () => {
      const limiter = create(3, order);
      const leases = [await limiter.acquire(), await limiter.acquire()];
      const went: string[] = [];
      const large = limiter.acquire(3).then((lease) => {
        went.push("large");
        return lease;
      });
      await settled();
      assert.is(await limiter.tryAcquire(), undefined, "one slot is free, and another call waits");
      const small = limiter.acquire(1).then(() => went.push("small"));
      for (const lease of leases) {
        await lease.release();
        await settled();
      }
      assert.equal(went, ["large"]);
      await (await large).release();
      await small;
      assert.equal(went, ["large", "small"]);
    });

    test("when a large call leaves, the small ones behind it go", async () => {
      const limiter = create(3, order);
      const held = await limiter.acquire();
      const controller = new AbortController();
      const large = limiter.acquire(3, { signal: controller.signal });
      const small = limiter.acquire(2);
      await settled();
      controller.abort("enough");
      assert.is(await failure(() => large), "enough");
      await small;
      assert.is(limiter.active, 3);
      await held.release();
    });

    test("more slots than there are can never be had: an error, before anything has changed", async () => {
      const limiter = create(3, order);
      const error = await failure(() => limiter.acquire(4));
      assert.instance(error, PermitsExceedCapacityError);
      assert.equal((error as PermitsExceedCapacityError).facts.capacity, 3);
      assert.instance(await failure(async () => limiter.tryAcquire(4)), PermitsExceedCapacityError);
      for (const bad of [0, -1, 1.5, Number.NaN, "1", null]) {
        assert.match(`${await failure(() => limiter.acquire(bad as number))}`, "slots must be");
        assert.match(
          `${await failure(() => limiter.run(() => {}, { slots: bad as number }))}`,
          "slots",
        );
      }
      assert.equal([limiter.active, limiter.waiting], [0, 0]);
    });

    test("maxWaiting counts slots", async () => {
      const limiter = create(3, order, 4);
      await limiter.acquire(3);
      void limiter.acquire(3);
      await settled();
      const error = await failure(() => limiter.acquire(2));
      assert.instance(error, QueueFullError);
      const { permits, waiting, maxWaiting } = (error as QueueFullError).facts;
      assert.equal([permits, waiting, maxWaiting], [2, 3, 4]);
      assert.is(await limiter.tryAcquire(2, 1000), undefined);
      void limiter.acquire(1);
      await settled();
      assert.is(limiter.waiting, 2);
    });

    test("a time-out of a call that waits behind a large one", async () => {
      const limiter = create(2, order);
      const held = await limiter.acquire();
      const large = limiter.acquire(2);
      const short = limiter.tryAcquire(1, 50);
      const long = limiter.tryAcquire({ timeoutMs: 500 });
      await clock.tickAsync(50);
      assert.is(await short, undefined);
      await held.release();
      await (await large).release();
      assert.ok(await long);
    });

    test("random histories: never more slots than the limit, and all are free in the end", async () => {
      const step = fc.record({
        action: fc.constantFrom("acquire", "try", "abort", "release"),
        slots: fc.integer({ min: 1, max: 4 }),
        pick: fc.nat(1000),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
          const limiter = create(4, order);
          const leases: { readonly slots: number; release(): unknown }[] = [];
          const controllers = new Set<AbortController>();
          const hold = (slots: number, lease: { release(): unknown } | undefined) => {
            if (lease) leases.push({ slots, release: () => lease.release() });
          };
          for (const { action, slots, pick } of steps) {
            if (action === "acquire") {
              const controller = new AbortController();
              controllers.add(controller);
              limiter
                .acquire(slots, { signal: controller.signal })
                .then((lease) => hold(slots, lease))
                .catch(() => {})
                .finally(() => controllers.delete(controller));
            } else if (action === "try") {
              hold(slots, await limiter.tryAcquire(slots));
            } else if (action === "abort") {
              [...controllers][pick % Math.max(1, controllers.size)]?.abort();
            } else {
              await leases.splice(pick % Math.max(1, leases.length), 1)[0]?.release();
            }
            await settled();
            assert.is(
              limiter.active,
              leases.reduce((sum, { slots: held }) => sum + held, 0),
            );
            assert.ok(limiter.active <= 4);
          }
          while (leases.length > 0 || limiter.waiting > 0) {
            assert.ok(leases.length > 0, "callers wait although all slots are free");
            await leases.pop()?.release();
            await settled();
          }
          assert.equal([limiter.active, limiter.waiting], [0, 0]);
          assert.ok(await limiter.tryAcquire(4));
        }),
        { numRuns: runs(100) },
      );
    });

    test.run();
  }
}

const hours = suite("slots over hours");

hours("a limiter that was idle for hours keeps its leases and its time-outs", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock });
  const lease = await limiter.acquire();
  await clock.advance(5 * 3_600_000);
  assert.is(limiter.tryAcquire(), undefined);
  const tried = watch(clock, limiter.tryAcquire(1, 50));
  const waits = watch(clock, limiter.acquire());
  await clock.advance(100);
  assert.is(tried.value, undefined);
  assert.is(tried.at, clock.now() - 50);
  lease.release();
  await clock.advance(0);
  assert.is(waits.at, clock.now());
});

hours.run();

const combined = suite("slots in a combination");

combined(
  "a call takes its slots of each concurrency limiter and one permit of each rate limiter",
  async () => {
    const clock = new FakeClock();
    const running = ConcurrencyLimiter.create(4, { clock });
    const pace = RateLimiter.create(10, { clock, burstSeconds: 0 });
    const limiter = allOf(running, pace);
    const lease = await limiter.acquire(3);
    assert.is(running.active, 3);
    const next = watch(clock, limiter.acquire());
    await clock.advance(200);
    assert.is(next.at, 100, "one permit was used");
    assert.is(limiter.tryAcquire(1), undefined);
    lease.release();
    const timed = watch(clock, limiter.tryAcquire(3, 1000));
    await clock.advance(1000);
    assert.is(timed.at, 200);
    assert.is(running.active, 4);
    assert.match(`${await failure(() => limiter.acquire(0))}`, "slots must be");
    assert.instance(await failure(() => limiter.acquire(5)), PermitsExceedCapacityError);
  },
);

combined(
  "a limit that was lowered below the slots of a waiting call lets it in alone",
  async () => {
    const limiter = ConcurrencyLimiter.create(3);
    const lease = await limiter.acquire(2);
    const large = limiter.acquire(3);
    limiter.setLimit(1);
    lease.release();
    await large;
    assert.is(limiter.active, 3);
    assert.is(limiter.tryAcquire(), undefined);
  },
);

combined.run();
