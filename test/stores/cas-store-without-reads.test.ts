/** `casStore` on a backend with `compareAndSetWithin`: writes without a read. */
import fc from "fast-check";
import * as assert from "uvu/assert";
import { fixedWindow } from "../../src/index.ts";
import { type CasBackend, casStore, StoreLimiter, StoreRateLimiter } from "../../src/store.ts";
import type { StoreRequest } from "../../src/stores/store.ts";
import { failure } from "../support/limiter/watch.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { runs, suite } from "../support/suite.ts";

const DAY_MS = 86_400_000;
const START_MS = 1_800_000_000_000;
const TEN = `f10 ${DAY_MS}`;
const ten = fixedWindow({ limit: 10, windowMs: DAY_MS });

/** Counts its calls, and has a clock that moves with this process' clock. */
class Backend extends MapBackend {
  reads = 0;
  misses = 0;
  /** Writes that succeeded without a read. */
  hits = 0;
  fault: "lost reply" | "says no" | "fails" | undefined;
  aheadMs = 0;
  rate = 1;
  /** The earliest time of each write without a read, and the store's time when it arrived. */
  readonly times: [number, number][] = [];
  readonly #startMs = performance.now();

  get ms(): number {
    return START_MS + this.aheadMs + this.rate * (performance.now() - this.#startMs);
  }

  async now(): Promise<number> {
    return this.ms;
  }

  override async get(key: string): Promise<Uint8Array | undefined> {
    this.reads += 1;
    return super.get(key);
  }

  async compareAndSetWithin(
    ...[key, before, after, lifeMs, fromMs, untilMs]: Parameters<
      NonNullable<CasBackend["compareAndSetWithin"]>
    >
  ): Promise<boolean> {
    const { ms, fault } = this;
    this.fault = undefined;
    if (fault === "fails") throw new Error("boom");
    this.times.push([fromMs, ms]);
    const isSet =
      fromMs <= ms && ms <= untilMs && (await super.compareAndSet(key, before, after, lifeMs));
    if (isSet) this.hits += 1;
    else this.misses += 1;
    if (fault === "lost reply") throw new Error("boom");
    return isSet && fault !== "says no";
  }
}

const limiterOn = (backend: Backend) => StoreLimiter.create(casStore(backend), "a", ten);

/** A limiter that has taken two permits, so that the next write needs no read. */
async function known(backend: Backend): Promise<StoreLimiter> {
  const limiter = limiterOn(backend);
  for (let i = 0; i < 2; i++) assert.ok(await limiter.tryAcquire());
  backend.reads = 0;
  return limiter;
}

const test = suite("casStore, writes without a read");

test("a key that only one process writes takes one call", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  for (let i = 0; i < 5; i++) assert.ok(await limiter.tryAcquire());
  assert.equal([backend.reads, backend.hits, backend.misses], [0, 5, 0]);
  for (const [from, ms] of backend.times) assert.ok(from <= ms, "a time that has not come");
  await limiter.close();
});

test("processes that take turns lose no more writes than with reads", async () => {
  const backend = new Backend();
  const limiters = [limiterOn(backend), limiterOn(backend)];
  let granted = 0;
  for (let i = 0; i < 20; i++) if (await limiters[i % 2]?.tryAcquire()) granted += 1;
  assert.equal([granted, backend.hits, backend.misses], [10, 0, 0]);
});

test("a process that comes in between costs one write, and its permits count", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  const other = limiterOn(backend);
  for (let i = 0; i < 3; i++) assert.ok(await other.tryAcquire());
  assert.is((await limiter.decide()).remaining, 4);
  assert.equal([backend.hits, backend.misses], [1, 1]);
});

test("a rejection is computed on the state that is in the store", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  assert.ok(await limiter.tryAcquire(8));
  const other = limiterOn(backend);
  await other.refund(1);
  assert.ok(await limiter.tryAcquire(), "granted by the refund of another process");
  assert.not(await limiter.tryAcquire());
  const { reads } = backend;
  assert.not(await limiter.tryAcquire());
  assert.is(backend.reads, reads + 1);
});

test("a pause, a reset and new numbers of another process take effect at once", async () => {
  const changes: [(limiter: StoreLimiter) => Promise<unknown>, number][] = [
    [(limiter) => limiter.pause(60_000), 0],
    [(limiter) => limiter.reset(), 9],
    [(limiter) => limiter.update(fixedWindow({ limit: 20, windowMs: DAY_MS })), 17],
  ];
  for (const [change, remaining] of changes) {
    const backend = new Backend();
    const limiter = await known(backend);
    await change(limiterOn(backend));
    assert.is((await limiter.decide()).remaining, remaining);
  }
});

test("a state that the store has lost or removed is new", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  backend.values.clear();
  assert.is((await limiter.decide()).remaining, 9);
});

test("a write whose reply is lost is charged once, and its answer counts", async () => {
  for (const fault of ["lost reply", "says no"] as const) {
    const backend = new Backend();
    const limiter = await known(backend);
    backend.fault = fault;
    assert.is((await limiter.decide(3)).remaining, 5, fault);
    assert.is((await limiter.peek()).remaining, 5, fault);
  }
});

test("a write that failed reports its error, and charges nothing", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  backend.fault = "fails";
  assert.match(String(((await failure(() => limiter.decide(3))) as Error).cause), /boom/);
  assert.is((await limiter.peek()).remaining, 8);
});

test("a store's clock that is set costs a read; nothing is granted before its time", async () => {
  for (const aheadMs of [-3_600_000, -500, 3_600_000]) {
    const backend = new Backend();
    const limiter = StoreRateLimiter.create(casStore(backend), "a", 1000, { burstSeconds: 0 });
    for (let i = 0; i < 3; i++) await limiter.reserve(1000);
    assert.is(backend.hits, 1);
    backend.aheadMs = aheadMs;
    await limiter.reserve(1000);
    assert.equal([backend.hits, backend.misses], [1, 1]);
    for (const [from, ms] of backend.times.slice(0, 1)) assert.ok(from <= ms);
    const { waitMs } = await limiter.peek();
    // a clock that is set back continues from the last write
    const least = aheadMs > 0 ? 0 : 3000;
    assert.ok(waitMs >= least && waitMs <= 4001, `${aheadMs}: ${waitMs}`);
  }
});

test("with a store's clock that is slow, no write is at a time that has not come", async () => {
  const backend = new Backend();
  backend.rate = 0.5;
  const limiter = await known(backend);
  for (let i = 0; i < 7; i++) {
    const end = performance.now() + 1;
    while (performance.now() < end);
    assert.ok(await limiter.tryAcquire());
  }
  assert.ok(backend.misses > 0);
});

test("limits that are kept elsewhere are read at each call", async () => {
  const backend = new Backend();
  backend.values.set("limit", new TextEncoder().encode("5"));
  const limiter = StoreLimiter.create(casStore(backend), "a", ten, { limitKey: "limit" });
  for (let i = 0; i < 4; i++) assert.ok(await limiter.tryAcquire());
  backend.values.set("limit", new TextEncoder().encode("4"));
  assert.not(await limiter.tryAcquire());
  assert.is(backend.hits, 0);
});

test("large states, and the least used of many keys, are read", async () => {
  const backend = new Backend();
  const store = casStore(backend);
  const take = (key: string, numbers: string) => {
    const request: StoreRequest = { verb: "charge", amount: 1 };
    return store.run(key, numbers, [request], undefined);
  };
  for (let i = 0; i < 50; i++) await take("log", `l100 ${DAY_MS}`);
  const { reads, hits } = backend;
  for (let i = 0; i < 5; i++) await take("log", `l100 ${DAY_MS}`);
  assert.equal([backend.reads - reads, backend.hits - hits], [5, 0]);
  for (let i = 0; i < 2; i++) await take("old", TEN);
  for (let i = 0; i < 10_000; i++) await take(`key ${i}`, TEN);
  const before = backend.hits;
  await take("old", TEN);
  await take("key 9999", TEN);
  assert.is(backend.hits, before);
  await take("key 9999", TEN);
  assert.is(backend.hits, before + 1);
});

test("the replies and the bytes are those of a store that reads each time", async () => {
  const step = fc.record({
    process: fc.nat({ max: 2 }),
    amount: fc.nat({ max: 4 }),
    micros: fc.nat({ max: 400_000 }),
    verb: fc.constantFrom("reserve", "reserve", "reserve", "decide", "peek", "refund", "reset"),
  });
  const requestOf = ({ verb, amount }: { verb: string; amount: number }): StoreRequest => {
    if (verb === "refund") return { verb, amount };
    if (verb === "reset") return { verb };
    if (verb !== "reserve") return { verb: verb as "peek", amount, late: 0 };
    return { verb, amount, longest: 1_000_000, late: 0, count: 1 };
  };
  let hits = 0;
  const property = fc.asyncProperty(
    fc.array(step, { minLength: 5, maxLength: 40 }),
    fc.constantFrom("f5 1000", "t5 1 1000", "l5 1000"),
    async (steps, declared) => {
      const [guessing, reading] = [new Backend(), new MapBackend()];
      const stores = [guessing, reading].map((backend) => [0, 1, 2].map(() => casStore(backend)));
      let now = START_MS * 1000;
      for (const [i, one] of steps.entries()) {
        now += one.micros;
        const batchId = { caller: `caller-${one.process}`, number: i + 1 };
        const [reply, expected] = await Promise.all(
          stores.map((all) => all[one.process]?.run("a", declared, [requestOf(one)], now, batchId)),
        );
        assert.equal(reply, expected);
        assert.equal(guessing.values.get("a"), reading.values.get("a"));
      }
      hits += guessing.hits;
    },
  );
  await fc.assert(property, { numRuns: runs(200) });
  // some writes went without a read
  assert.ok(hits > 0);
});

test("a backend that answers something else is named", async () => {
  const backend = new Backend();
  const limiter = await known(backend);
  backend.compareAndSetWithin = async () => 1 as unknown as boolean;
  assert.match(
    String(await failure(() => limiter.tryAcquire())),
    /compareAndSetWithin\("l:a", …\) of the backend must answer true or false, got 1/,
  );
  assert.throws(
    () => casStore({ ...backend, compareAndSetWithin: 1 } as never),
    /backend.get must be a function/,
  );
});

test.run();
