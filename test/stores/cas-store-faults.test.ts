/**
 * Several clients of one backend that loses replies, fails and is slow, in random interleavings.
 */
import fc from "fast-check";
import * as assert from "uvu/assert";
import { fixedWindow } from "../../src/index.ts";
import { casStore, StoreLimiter, StoreUnavailableError } from "../../src/store.ts";
import { BatchCounter } from "../../src/stores/batch-id.ts";
import { decodeState } from "../../src/stores/state/bytes.ts";
import type { StoreRequest } from "../../src/stores/store.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { turn } from "../support/limiter/watch.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { runs, suite } from "../support/suite.ts";

const DAY_MS = 86_400_000;
const LIMIT = 12;
const START = 1_800_000_000_000_000;
const RUNS = runs(300);

const fault = fc.record({
  /** For a read: it fails. For a write: the kind of failure. */
  read: fc.constantFrom(false, false, false, false, true),
  write: fc.constantFrom("", "", "", "no", "fails", "lost", "says no"),
  /** The number of event-loop turns until the call arrives, and until its reply does. */
  there: fc.nat({ max: 3 }),
  back: fc.nat({ max: 3 }),
});
type Fault = typeof fault extends fc.Arbitrary<infer T> ? T : never;

class FaultyBackend extends MapBackend {
  /** The batch of each write that took place, and how many permits were used by then. */
  readonly written: string[] = [];
  readonly #faults: readonly Fault[];
  #calls = 0;

  constructor(faults: readonly Fault[]) {
    super();
    this.#faults = faults;
  }

  get #next(): Fault {
    return this.#faults[this.#calls++ % this.#faults.length] as Fault;
  }

  override async get(key: string): Promise<Uint8Array | undefined> {
    const { read, there, back } = this.#next;
    await turns(there);
    const bytes = await super.get(key);
    await turns(back);
    if (read) throw new Error("the read failed");
    return bytes;
  }

  override async compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean> {
    const { write, there, back } = this.#next;
    await turns(there);
    if (write === "no") return false;
    if (write === "fails") throw new Error("the write failed");
    const isSet = await super.compareAndSet(key, before, after, lifeMs);
    if (isSet) this.written.push(JSON.stringify(decodeState(after).batchIds.at(-1)));
    await turns(back);
    if (write === "lost") throw new Error("the reply was lost");
    return isSet && write !== "says no";
  }

  /** The permits that are used, according to the state. */
  get used(): number {
    const bytes = this.values.get("key") ?? this.values.get("l:key");
    return bytes === undefined ? 0 : Number(decodeState(bytes).doubles[1]);
  }
}

/** Allows writes without a read, which fail in the same ways. */
class GuessingBackend extends FaultyBackend {
  compareAndSetWithin(...[key, before, after, lifeMs]: Parameters<FaultyBackend["compareAndSet"]>) {
    return this.compareAndSet(key, before, after, lifeMs);
  }
}

const backends = fc.constantFrom(FaultyBackend, GuessingBackend);

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await turn();
}

const clients = fc.array(fc.array(fc.constantFrom(1, 1, 2, 3), { minLength: 1, maxLength: 5 }), {
  minLength: 2,
  maxLength: 4,
});
const faults = fc.array(fault, { minLength: 20, maxLength: 60 });

const test = suite("casStore, random interleavings with faults");

test("each batch is charged at most once, and every grant is charged", async () => {
  let lost = 0;
  const property = fc.asyncProperty(backends, clients, faults, async (Backend, amounts, faults) => {
    const backend = new Backend(faults);
    const granted = new Map<string, number>();
    const asked = new Map<string, number>();
    await Promise.all(
      amounts.map(async (own) => {
        const store = casStore(backend);
        const counter = new BatchCounter();
        for (const amount of own) {
          const batchId = counter.next();
          asked.set(JSON.stringify(batchId), amount);
          const verb: StoreRequest = { verb: "reserve", amount, longest: 0, late: 0, count: 1 };
          try {
            const args = ["key", `f${LIMIT} ${DAY_MS}`, [verb], START] as const;
            const { answers } = await store.run(...args, batchId);
            if (answers[0]?.wait === 0) granted.set(JSON.stringify(batchId), amount);
          } catch (error) {
            lost += 1;
            assert.match(String(error), /^Error: the (read failed|write failed|reply was lost)/);
          }
        }
      }),
    );
    assert.is(new Set(backend.written).size, backend.written.length, "a batch was written twice");
    for (const batchId of granted.keys())
      assert.ok(backend.written.includes(batchId), "not charged");
    const charged = backend.written.reduce((sum, batchId) => sum + Number(asked.get(batchId)), 0);
    assert.is(backend.used, charged);
    assert.ok(charged <= LIMIT);
  });
  await fc.assert(property, { numRuns: RUNS });
  assert.ok(lost > 0);
});

test("limiters never grant more than the limit, and charge every grant", async () => {
  const property = fc.asyncProperty(backends, clients, faults, async (Backend, amounts, faults) => {
    const backend = new Backend(faults);
    const policy = fixedWindow({ limit: LIMIT, windowMs: DAY_MS });
    let granted = 0;
    let unknown = 0;
    await Promise.all(
      amounts.map(async (own) => {
        const options = { clock: new FakeClock(START / 1000), timeoutMs: 30_000 };
        const limiter = StoreLimiter.create(casStore(backend), "key", policy, options);
        const calls = own.map(async (amount) => {
          try {
            if (await limiter.tryAcquire(amount)) granted += amount;
          } catch (error) {
            assert.instance(error, StoreUnavailableError);
            unknown += amount;
          }
        });
        await Promise.all(calls);
      }),
    );
    assert.is(new Set(backend.written).size, backend.written.length, "a batch was written twice");
    assert.ok(granted <= backend.used && backend.used <= granted + unknown);
    assert.ok(backend.used <= LIMIT);
  });
  await fc.assert(property, { numRuns: RUNS });
});

test.run();
