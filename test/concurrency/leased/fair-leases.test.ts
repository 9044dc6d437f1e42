/** Fair concurrency limiters on a store: what waits here, and what is asked of the store. */
import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import type { ShareOptions } from "../../../src/api/limiter-api.ts";
import type { CallOrder } from "../../../src/api/options.ts";
import { RemoteConcurrency } from "../../../src/concurrency/leased/remote-concurrency.ts";
import type { RemoteLease } from "../../../src/concurrency/leased/store-lease.ts";
import { diagnostics, type WaitMessage } from "../../../src/ground/diagnostics.ts";
import { LimiterClosedError, QueueFullError } from "../../../src/ground/errors.ts";
import { allOf, ConcurrencyLimiter, fairShares, RateLimiter } from "../../../src/index.ts";
import { FIFO } from "../../../src/queue/order.ts";
import { HandLeaseStore, settled } from "../../support/limiter/lease-store.ts";
import { failure } from "../../support/limiter/watch.ts";
import { runs, suite } from "../../support/suite.ts";

const test = suite("fair concurrency limiters on a store");
let clock: FakeTimers.Clock;

test.before.each(() => {
  clock = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

test.after.each(() => {
  clock.uninstall();
});

interface Opened {
  readonly processes?: number;
  readonly maxWaiting?: number;
  readonly by?: CallOrder;
}

/** Several processes with one limiter. */
function open(
  limit: number,
  { processes = 1, maxWaiting = Infinity, by = fairShares() }: Opened = {},
) {
  const store = new HandLeaseStore();
  const whenUnavailable = "throw" as const;
  const all = { name: "pages", leaseMs: 900, maxWaiting, timeoutMs: 100, whenUnavailable };
  const limiters = Array.from(
    { length: processes },
    () => new RemoteConcurrency(store, "key", limit, all, by),
  );
  const order: string[] = [];
  const held: RemoteLease[] = [];
  const limiter = limiters[0] as RemoteConcurrency;
  const ask = (share: string, options: ShareOptions = {}, of = limiter) => {
    of.acquire(1, { share, ...options }).then(
      (lease) => {
        order.push(share);
        held.push(lease);
      },
      (error) => order.push(`${share}: ${error.code}`),
    );
  };
  /** Releases the leases one by one, in the order in which they were granted. */
  const drain = async () => {
    for (let lease = held.shift(); lease !== undefined; lease = held.shift()) {
      await lease.release();
      await settled();
    }
  };
  return { store, limiters, limiter, order, held, ask, drain };
}

/** The same, with all leases held. */
async function full(limit: number, options?: Opened) {
  const opened = open(limit, options);
  for (let i = 0; i < limit; i++) opened.ask("holder");
  await settled();
  opened.order.length = 0;
  opened.store.batches.length = 0;
  return opened;
}

test("shares get leases in turn, by weight, and a new share waits for one ticket only", async () => {
  const { store, limiter, order, ask, drain } = await full(1);
  for (let i = 0; i < 6; i++) ask("a");
  await settled();
  assert.equal([store.tickets.size, limiter.waiting], [1, 6]);
  for (let i = 0; i < 4; i++) ask("b", { weight: 2 });
  await settled();
  assert.is((await limiter.peek()).waiting, 10);
  await drain();
  assert.is(order.join(" "), "a b a b b a b a a a");
  assert.equal([limiter.active, limiter.waiting], [0, 0]);
});

test("priorities are above shares, and aging protects the lower ones", async () => {
  for (const agingMs of [undefined, 100]) {
    const options = { priorities: ["high", "low"], agingMs };
    const { order, ask, held } = await full(1, { by: fairShares(options) });
    for (let i = 0; i < 3; i++) ask("low", { priority: "low" });
    for (let i = 0; i < 5; i++) ask("high", { priority: "high" });
    await settled();
    for (let lease = held.shift(); lease !== undefined; lease = held.shift()) {
      await clock.tickAsync(60);
      await lease.release();
      await settled();
    }
    const expected =
      agingMs === undefined
        ? "low high high high high high low low"
        : "low high high high low high high low";
    assert.is(order.join(" "), expected);
  }
});

test("a caller that leaves gives its ticket to the next one of its share, without a request", async () => {
  const { store, limiter, order, held, ask } = await full(1);
  const leaving = ["abort", "time-out", "abort"].map((how) => {
    const controller = new AbortController();
    const options = { share: "a", signal: controller.signal };
    const timeoutMs = how === "abort" ? Infinity : 50;
    return { controller, lease: limiter.tryAcquire({ ...options, timeoutMs }).catch(() => "gone") };
  });
  await settled();
  ask("b");
  ask("a");
  ask("b");
  ask("a");
  await clock.tickAsync(0);
  assert.equal([store.tickets.size, limiter.waiting], [1, 7]);
  store.batches.length = 0;
  leaving[0]?.controller.abort();
  await clock.tickAsync(50);
  leaving[2]?.controller.abort();
  assert.equal(await Promise.all(leaving.map(({ lease }) => lease)), ["gone", undefined, "gone"]);
  assert.equal([store.batches, store.tickets.size, limiter.waiting], [[], 1, 4]);
  // its renewal comes when the ticket has been handed over once more
  await clock.tickAsync(900);
  for (let lease = held.shift(); lease !== undefined; lease = held.shift()) {
    await lease.release();
    await settled();
  }
  assert.is(order.join(" "), "a b a b");
  assert.equal([store.tickets.size, store.leases.size, limiter.waiting], [0, 0, 0]);
});

test("a reply about a ticket that was handed over is for the caller that has it now", async () => {
  const { store, order, held, limiter, ask } = await full(1);
  const controller = new AbortController();
  const gone = limiter.acquire(1, { share: "a", signal: controller.signal }).catch(() => "gone");
  await clock.tickAsync(0);
  store.deaf = true;
  await held.shift()?.release();
  await settled();
  ask("a");
  await clock.tickAsync(290);
  store.held = true;
  await clock.tickAsync(20);
  assert.is(store.batches.at(-1), "keep 2");
  controller.abort();
  await store.deliver();
  assert.equal([await gone, order.join(""), limiter.active], ["gone", "a", 1]);
});

test("a caller with another weight takes no ticket", async () => {
  const { store, order, limiter, ask, drain } = await full(1);
  const controller = new AbortController();
  const gone = limiter.acquire(1, { share: "a", signal: controller.signal }).catch(() => "gone");
  await settled();
  ask("b");
  ask("a", { weight: 3 });
  await settled();
  store.batches.length = 0;
  controller.abort();
  await settled();
  assert.equal([await gone, store.batches], ["gone", ["release 2", "acquire 4"]]);
  await drain();
  assert.is(order.join(""), "ab");
});

test("callers of a share that leave all at once leave nothing behind", async () => {
  const { store, order, limiter, ask, drain } = await full(1);
  const controller = new AbortController();
  const options = { share: "a", signal: controller.signal };
  const gone = Array.from({ length: 1000 }, () => limiter.acquire(1, options).catch(() => "gone"));
  ask("b");
  await settled();
  store.batches.length = 0;
  controller.abort();
  await settled();
  assert.ok((await Promise.all(gone)).every((outcome) => outcome === "gone"));
  assert.equal([store.batches, limiter.waiting], [["release 2", "acquire 1002"], 1]);
  await drain();
  assert.is(order.join(""), "b");
});

test("close rejects every caller once, and gives their ticket back", async () => {
  const { store, limiter } = await full(1);
  const refused = Array.from({ length: 5 }, () =>
    failure(() => limiter.acquire(1, { share: "a" })),
  );
  await settled();
  await limiter.close();
  const errors = await Promise.all(refused);
  assert.ok(errors.every((error) => error instanceof LimiterClosedError));
  assert.equal([store.tickets.size, limiter.waiting, limiter.stats.waiting], [0, 0, 0]);
});

test("processes get leases in turn, however many callers and shares each has", async () => {
  const { store, limiters, order, ask, drain } = await full(2, { processes: 3 });
  for (let i = 0; i < 60; i++) ask(`0 ${i % 7}`, {}, limiters[0]);
  for (let i = 0; i < 9; i++) ask(`1 ${i}`, {}, limiters[1]);
  for (let i = 0; i < 9; i++) ask("2", {}, limiters[2]);
  await settled();
  assert.is(store.tickets.size, 3);
  await drain();
  const firsts = order.slice(0, 18).map((share) => share[0]);
  for (const process of ["0", "1", "2"]) {
    const count = firsts.filter((one) => one === process).length;
    assert.ok(count >= 4 && count <= 8, firsts.join(""));
  }
  assert.is(order.length, 78);
});

test("a new caller of another process waits for at most 1 + free + released callers", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 6 }),
      fc.integer({ min: 2, max: 4 }),
      fc.integer({ min: 1, max: 6 }),
      async (limit, processes, atOnce) => {
        const { limiters, order, held, ask, drain } = open(limit, { processes });
        const [own, ...others] = limiters;
        for (const other of others) for (let i = 0; i < 40; i++) ask("busy", {}, other);
        await settled();
        const release = async () => {
          for (const lease of held.splice(0, atOnce)) void lease.release();
          await settled();
        };
        for (let i = 0; i < 5; i++) await release();
        const before = order.length;
        ask("new", {}, own);
        await settled();
        while (!order.includes("new")) await release();
        const ahead = order.indexOf("new") - before;
        assert.ok(ahead <= (processes - 1) * (1 + limit + Math.min(limit, atOnce)), `${ahead}`);
        await drain();
      },
    ),
    { numRuns: runs(60) },
  );
});

test("free places are taken in two batches, however many callers come", async () => {
  const { store, limiter, order, ask } = open(50);
  for (let i = 0; i < 60; i++) ask(i % 2 === 0 ? "a" : "b");
  await settled();
  assert.equal([order.length, limiter.active, store.tickets.size], [50, 50, 1]);
  assert.is(store.batches.length, 2);
  assert.is(store.batches[0], "acquire 1");
});

test("the next request travels with the release", async () => {
  const { store, ask, held, order } = await full(3);
  for (let i = 0; i < 5; i++) ask("a");
  await settled();
  store.batches.length = 0;
  for (const lease of held.splice(0)) {
    void lease.release();
    void lease.release();
  }
  await settled();
  assert.is(order.length, 3);
  const [first] = store.batches;
  assert.is(first, "release 1, acquire 5, release 2, acquire 6, release 3, acquire 7");
  for (const lease of held) await lease[Symbol.asyncDispose]();
});

test("maxWaiting refuses no caller for which a place is free", async () => {
  const { limiter, order, ask } = open(20, { maxWaiting: 3 });
  for (let i = 0; i < 10; i++) ask(i < 6 ? "a" : "b");
  const tried = limiter.tryAcquire({ timeoutMs: 50, share: "c" });
  await settled();
  assert.equal(order.slice().sort().join(""), "aaaaaabbbb");
  assert.ok(await tried);
  assert.equal([limiter.active, limiter.waiting, limiter.stats.refused], [11, 0, 0]);
});

test("maxWaiting: callers beyond it are refused, without a request once it is known that all wait", async () => {
  const { limiter, store, order, ask } = await full(1, { maxWaiting: 3 });
  for (const share of ["a", "a", "b", "b"]) ask(share);
  const tried = limiter.tryAcquire({ timeoutMs: 50, share: "c" });
  await settled();
  assert.equal(order, ["b: QUEUE_FULL"]);
  assert.is(await tried, undefined);
  store.batches.length = 0;
  const error = (await failure(() => limiter.acquire(1, { share: "b" }))) as QueueFullError;
  assert.instance(error, QueueFullError);
  assert.equal(error.facts, { limiter: "pages", permits: 1, waiting: 3, maxWaiting: 3 });
  assert.is(await limiter.tryAcquire({ timeoutMs: 50 }), undefined);
  assert.equal(store.batches, []);
  assert.equal([limiter.stats.refused, limiter.stats.waiting], [4, 3]);
});

test("maxWaiting: once a reply shows that all are held, the latest callers beyond it are refused", async () => {
  const { limiter, store, order, ask, drain } = open(5, { maxWaiting: 3 });
  for (const share of ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]) ask(share);
  await settled();
  assert.equal(order, ["a", "b", "c", "d", "e", "j: QUEUE_FULL", "i: QUEUE_FULL"]);
  assert.equal([limiter.waiting, store.tickets.size, store.batches.length], [3, 1, 2]);
  await drain();
  assert.is(order.slice(7).join(""), "fgh");
});

test("maxWaiting: a caller that leaves before its reply does not cause the refusal of others", async () => {
  const { limiter, store, order, ask } = open(1, { maxWaiting: 0 });
  const controller = new AbortController();
  const left = failure(() => limiter.acquire(1, { signal: controller.signal }));
  ask("a");
  controller.abort("enough");
  await settled();
  assert.equal([await left, store.leases.size], ["enough", 1]);
  assert.equal(order, ["a"]);
});

test("waits count from the call", async () => {
  const waits: number[] = [];
  const seen = (message: unknown) => void waits.push((message as WaitMessage).waitMs);
  diagnostics.wait.subscribe(seen);
  const { ask, drain } = await full(1);
  for (const share of ["a", "a", "b"]) ask(share);
  await clock.tickAsync(40);
  await drain();
  diagnostics.wait.unsubscribe(seen);
  assert.equal(waits, [40, 40, 40]);
});

test("maxWaiting 0: no caller waits, and free places are granted", async () => {
  const { limiter, order, ask } = open(2, { maxWaiting: 0 });
  for (const share of ["a", "b", "c"]) ask(share);
  await settled();
  assert.equal(order, ["a", "b", "c: QUEUE_FULL"]);
  assert.is(limiter.waiting, 0);
});

test("tryAcquire without a wait is refused while a caller of another share would go first", async () => {
  const { limiter, store, ask, drain, order } = await full(1);
  for (const share of ["a", "a", "b"]) ask(share);
  await settled();
  store.batches.length = 0;
  assert.is(await limiter.tryAcquire({ timeoutMs: 0, share: "c" }), undefined);
  assert.equal(store.batches, []);
  await drain();
  assert.is(order.join(""), "aab");
  const lease = await limiter.tryAcquire({ timeoutMs: 0, share: "c" });
  assert.is(limiter.active, 1);
  await lease?.release();
  assert.equal([limiter.stats.granted, limiter.stats.refused], [5, 1]);
});

test("a caller that waits here leaves with its time or its signal", async () => {
  const { limiter, store, order, ask, drain } = await full(1);
  ask("a");
  await settled();
  const controller = new AbortController();
  const { signal } = controller;
  const timed = limiter.tryAcquire({ timeoutMs: 40, share: "b" });
  const waiting = failure(() => limiter.acquire(1, { signal, share: "b" }));
  ask("b");
  await clock.tickAsync(40);
  assert.is(await timed, undefined);
  controller.abort("enough");
  assert.is(await waiting, "enough");
  assert.equal([limiter.waiting, store.tickets.size], [2, 1]);
  await drain();
  assert.is(order.join(""), "ab");
  assert.equal([limiter.stats.cancelled, limiter.stats.refused, limiter.stats.waiting], [1, 1, 0]);
  await clock.tickAsync(2000);
  assert.is(clock.countTimers(), 0);
});

test("callers that give up while they wait here gain their share nothing", async () => {
  const { order, ask, limiter, drain } = await full(1);
  ask("a");
  await settled();
  const controller = new AbortController();
  const { signal } = controller;
  const leaving = [1, 2, 3].map(() => failure(() => limiter.acquire(1, { signal, share: "b" })));
  for (const share of ["b", "b", "b", "c", "c", "c"]) ask(share);
  controller.abort("enough");
  await Promise.all(leaving);
  await drain();
  assert.is(order.join(""), "abcbcbc");
});

test("a caller with the store that gives up is not charged, and the next one is sent", async () => {
  const { limiter, store, order, ask, drain } = await full(1);
  const timed = limiter.tryAcquire({ timeoutMs: 40, share: "a" });
  await settled();
  for (const share of ["a", "b"]) ask(share);
  await clock.tickAsync(50);
  assert.is(await timed, undefined);
  assert.is(store.tickets.size, 1);
  await drain();
  assert.is(order.join(""), "ab");
});

test("an outage is noticed while all callers wait: they fail within the time-out", async () => {
  const { store, limiter, order, ask } = await full(1);
  ask("a");
  await settled();
  store.away = new Error("away");
  ask("b");
  ask("b");
  await settled();
  assert.equal(order, ["b: STORE_UNAVAILABLE", "b: STORE_UNAVAILABLE"]);
  assert.equal([limiter.waiting, limiter.stats.failed], [1, 2]);
  await clock.tickAsync(2000);
  assert.is(order.at(-1), "a: STORE_UNAVAILABLE");
  assert.match(`${await failure(() => limiter.tryAcquire())}`, "unavailable");
  ask("c");
  ask("c");
  await settled();
  assert.equal(order.slice(-2), ["c: STORE_UNAVAILABLE", "c: STORE_UNAVAILABLE"]);
});

test("a caller that was tried beside the line fails with the store's error", async () => {
  const { store, order, ask } = open(1, { maxWaiting: 2 });
  store.away = new Error("away");
  for (const share of ["a", "b", "c"]) ask(share);
  await settled();
  assert.equal(
    order.sort(),
    ["a", "b", "c"].map((share) => `${share}: STORE_UNAVAILABLE`),
  );
});

test("close rejects the callers that wait here, and later ones", async () => {
  const { limiter, order, ask } = await full(1);
  for (const share of ["a", "b", "b"]) ask(share);
  await settled();
  await limiter.close();
  await settled();
  assert.equal(
    order.sort(),
    ["a", "b", "b"].map((share) => `${share}: LIMITER_CLOSED`),
  );
  assert.instance(await failure(() => limiter.acquire(1, { share: "a" })), LimiterClosedError);
  assert.equal([limiter.waiting, limiter.stats.cancelled], [0, 3]);
});

test("a higher limit is used at once", async () => {
  const { limiter, order, ask } = await full(1);
  for (let i = 0; i < 6; i++) ask("a");
  await settled();
  await limiter.setLimit(5);
  await settled();
  assert.equal([order.length, limiter.active, limiter.limit], [4, 5, 5]);
});

test("a combination waits for a place in fair order, and takes none out of turn", async () => {
  const { limiter, store, order, ask, held, drain } = await full(1);
  const both = allOf(limiter, RateLimiter.create(1e6));
  for (let i = 0; i < 4; i++) ask("a");
  await settled();
  assert.is(await both.tryAcquire(), undefined);
  const combined = (share: string) =>
    both.acquire(1, { share }).then((lease) => {
      order.push(share);
      held.push(lease as RemoteLease);
    });
  const calls = [combined("b"), combined("b")];
  const timed = both.tryAcquire({ timeoutMs: 5, share: "c" });
  await clock.tickAsync(10);
  assert.is(await timed, undefined);
  await drain();
  await Promise.all(calls);
  assert.ok(order.indexOf("b") <= 2 && order.lastIndexOf("b") <= 4, order.join(""));
  assert.equal([store.leases.size, store.tickets.size], [0, 0]);
  const local = ConcurrencyLimiter.create(1);
  const lease = await allOf(both, local).tryAcquire();
  assert.equal([limiter.active, local.active], [1, 1]);
  const released = lease?.release();
  assert.instance(released, Promise);
  await released;
  assert.equal([store.leases.size, local.active], [0, 0]);
});

test("the arguments of a share are checked; a limiter that is not fair has none", async () => {
  const { limiter } = open(1);
  assert.match(`${await failure(() => limiter.acquire(1, { share: 7 as never }))}`, "share");
  assert.match(`${await failure(() => limiter.acquire(1, { weight: 0 }))}`, "weight");
  assert.match(`${await failure(() => limiter.tryAcquire({ priority: "x" }))}`, "priorities");
  const plain = open(1, { by: FIFO }).limiter;
  for (const call of [
    () => plain.acquire(1, { share: "a" }),
    () => plain.tryAcquire({ share: "a" }),
    () => plain.run(async () => {}, { weight: 2 }),
  ]) {
    assert.match(`${await failure(call)}`, "created with { order: fairShares() }");
  }
});

test.run();
