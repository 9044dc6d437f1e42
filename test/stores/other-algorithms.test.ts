/** Versions of the code that declare other algorithms under one name, on every store. */
import fc from "fast-check";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { algorithms, readPolicies, writePolicies } from "../../src/algorithms/index.ts";
import {
  diagnostics,
  fixedWindow,
  gcra,
  type OtherAlgorithmsMessage,
  slidingLog,
  slidingWindow,
} from "../../src/index.ts";
import { RedisLimiter } from "../../src/redis/index.ts";
import { casStore, StoreLimiter } from "../../src/store.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import type { Store, StoreRequest } from "../../src/stores/store.ts";
import { TransitionStore } from "../../src/stores/transition-store.ts";
import { memoryStore } from "../../src/testing/index.ts";
import { LARGEST_REQUEST, pacedSamples, samplesOf } from "../support/algorithms/samples.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { twinsOf } from "../support/stores/twins-of.ts";
import { runs, suite } from "../support/suite.ts";

const HOUR_MS = 3_600_000;
const HOUR = HOUR_MS * 1000;
/** The start of an hour. */
const START = 500_000 * HOUR;
/** More than any of the policies grants at once. */
const TRIES = 12;

let redis: Redis;

/** Each store, for code that declares these numbers. */
const stores: Readonly<Record<string, () => (declared: string) => Store>> = {
  memoryStore() {
    const store = memoryStore();
    return () => store;
  },
  casStore() {
    const backend = new MapBackend();
    return () => casStore(backend);
  },
  Redis: () => (declared) => {
    const names = readPolicies(declared).map(({ algorithm }) => algorithm.name);
    return new RedisStore(scriptRunner(redis), "", twinsOf(names));
  },
};

const test = suite("other algorithms under one name", { timeoutMs: 120_000 });

test.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

test.after(() => {
  redis.disconnect();
});

const one: StoreRequest & { verb: "reserve" } = {
  verb: "reserve",
  amount: 1,
  longest: 0,
  late: 0,
  count: 1,
};
let keys = 0;

/** How many of so many calls at one instant are granted, by versions of the code that take turns. */
async function granted(storeFor: (declared: string) => Store, versions: readonly string[]) {
  const key = `${keys++}`;
  let count = 0;
  for (let i = 0; i < TRIES; i++) {
    const declared = versions[i % versions.length] as string;
    const request: StoreRequest = { ...one, amount: declared.split("\n").map(() => 1) };
    const reply = await storeFor(declared).run(key, declared, [request], START + HOUR / 2);
    if (reply.answers[0]?.wait === 0) count += 1;
  }
  assert.ok(count < TRIES);
  return count;
}

/** A policy of each algorithm: a few permits, which take hours to come back. */
const slow = algorithms.map(({ name }) => {
  const [, paced] = pacedSamples.find(([, { at }]) => at(1).algorithm.name === name) ?? [];
  if (paced === undefined) throw new Error(`no paced sample of ${name}`);
  return paced.at(1 / 3600);
});
const versions = [...slow.map((policy) => [policy]), slow.slice(0, 2), slow.slice(2, 5)];

for (const [store, open] of Object.entries(stores)) {
  test(`${store}: any two algorithms that take turns grant at once what the larger does`, async () => {
    const declared = versions.map((policies) => writePolicies(policies));
    const storeFor = open();
    const alone = new Map<string, number>();
    for (const here of declared) alone.set(here, await granted(storeFor, [here]));
    for (const here of declared) {
      for (const there of declared) {
        if (here === there) continue;
        const each = [here, there].map((one) => alone.get(one) ?? 0);
        const together = await granted(storeFor, [here, there]);
        const facts = `${here}, then ${there}: ${together} instead of ${each}`;
        assert.ok(together >= 1 && together <= Math.max(...each), facts);
      }
    }
  });
}

const everyday = algorithms.map(
  ({ name }) =>
    fc.oneof(
      ...Object.values(samplesOf(name).everyday).map(({ policies }) => policies),
    ) as fc.Arbitrary<Policy>,
);
const histories = fc.record({
  // a limiter with one policy, or two
  versions: fc.array(
    fc
      .shuffledSubarray(everyday, { minLength: 1, maxLength: 2 })
      .chain((kinds) => fc.tuple(...kinds)),
    { minLength: 2, maxLength: 3 },
  ),
  calls: fc.array(
    fc.record({
      version: fc.nat({ max: 2 }),
      step: fc.oneof(
        fc.constantFrom(0, 1, 1000, 100_000, 1_000_000, 2 ** 32),
        fc.integer({ min: 0, max: 3_000_000 }),
      ),
      amount: fc.constantFrom(1, 1, 1, 2, 3, 0.5, LARGEST_REQUEST),
      longest: fc.constantFrom(0, 0, Infinity, 1_000_000),
    }),
    { minLength: 1, maxLength: 60, size: "max" },
  ),
});

test("each version stays within its own bound, in any pattern: together they have the sum", () => {
  const property = fc.property(histories, ({ versions, calls }) => {
    const transitions = new TransitionStore();
    const grants = versions.map((): { at: number; amount: number }[] => []);
    let now = START;
    for (const { step, amount, longest, ...call } of calls) {
      now += step;
      const version = call.version % versions.length;
      const request: StoreRequest = { ...one, amount, longest };
      const declared = writePolicies(versions[version] as readonly Policy[]);
      const [answer] = transitions.runBatch("", declared, [request], now).answers;
      const wait = answer?.wait ?? -1;
      if (wait >= 0 && wait < Infinity) grants[version]?.push({ at: now + wait, amount });
    }
    for (const [i, own] of grants.entries()) {
      // versions with the same algorithms use one state
      const codes = (version: number) => versions[version]?.map(({ algorithm }) => algorithm.code);
      const isAlone = versions.every((_, j) => j === i || `${codes(j)}` !== `${codes(i)}`);
      if (isAlone) for (const policy of versions[i] ?? []) within(policy, own);
    }
  });
  fc.assert(property, { seed: 1, numRuns: runs(2000) });
});

function within(policy: Policy, grants: readonly { at: number; amount: number }[]): void {
  const sorted = grants.toSorted((a, b) => a.at - b.at);
  for (const [i, first] of sorted.entries()) {
    let used = 0;
    for (const { at, amount } of sorted.slice(i)) {
      used += amount;
      const most = policy.algorithm.bound(policy, at - first.at, LARGEST_REQUEST);
      assert.ok(used <= most * (1 + 1e-9) + 1e-9, `${used} in ${at - first.at}, ${most} allowed`);
    }
  }
}

// -- one history --

const WINDOW = "f2 3600000";
const LOG = "l2 3600000";

/** A store in this process, and what it remembers of other versions. */
function stored() {
  const transitions = new TransitionStore(() => 0);
  const run = (declared: string, now: number, ...requests: StoreRequest[]) =>
    transitions.runBatch("", declared, requests, now);
  const take = (declared: string, now: number) => run(declared, now, one).answers[0]?.wait === 0;
  return { run, take, others: () => transitions.saved("")?.state.others };
}

test("a version that is new starts with what the last one has used", () => {
  const { take } = stored();
  assert.ok(take(WINDOW, START));
  assert.ok(take(LOG, START + 1));
  assert.not(take(LOG, START + 2));
  assert.not(take(WINDOW, START + 3));
});

test("what another version takes leaves no debt", () => {
  const { run, take } = stored();
  run("f1000 3600000", START, { ...one, amount: 1000 });
  assert.not(take("g2 1000", START + 1));
  assert.ok(take("g2 1000", START + 1_000_000), "its own permits have come back");
});

test("another version is forgotten once its own grants are, however busy this one is", () => {
  const { run, take, others } = stored();
  take("f2 1000", START);
  for (let at = START; at < START + 900_000; at += 100_000) {
    run("l100 3600000", at, one);
    assert.equal(others(), ["f2 1000"]);
  }
  run("l100 3600000", START + 1_000_000, one);
  assert.equal(others(), []);
});

test("a pause and a reset are for all versions", () => {
  const { run, take, others } = stored();
  take(WINDOW, START);
  take(LOG, START);
  run(WINDOW, START, { verb: "pause", micros: 5 });
  run(WINDOW, START, { verb: "refund", amount: 2 });
  run(LOG, START, { verb: "refund", amount: 2 });
  assert.not(take(LOG, START + 4));
  assert.ok(take(LOG, START + 5));
  run(WINDOW, START + 5, { verb: "reset" });
  assert.equal(others(), []);
  assert.ok(take(LOG, START + 5));
  assert.ok(take(LOG, START + 5));
});

test("numbers that a version changes are its own", () => {
  const { take } = stored();
  take(WINDOW, START);
  take(LOG, START);
  assert.ok(take("f5 3600000", START + 1), "3 more than before");
  assert.not(take(LOG, START + 1));
});

test("a clock that steps back creates no permits", () => {
  const { take } = stored();
  for (const declared of [WINDOW, LOG, WINDOW, LOG]) take(declared, START);
  for (const at of [START - HOUR, START - HOUR + 1, START - 1]) {
    assert.not(take(WINDOW, at));
    assert.not(take(LOG, at));
  }
});

// -- the message --

test("a message says so once for each limiter, whatever the number of its keys", async () => {
  const messages: OtherAlgorithmsMessage[] = [];
  const note = (message: OtherAlgorithmsMessage) => void messages.push(message);
  diagnostics.otherAlgorithms.subscribe(note);
  const policies = [
    gcra({ limit: 1, periodMs: HOUR_MS }),
    fixedWindow({ limit: 1, windowMs: HOUR_MS }),
    {
      log: slidingLog({ limit: 1, windowMs: HOUR_MS }),
      window: slidingWindow({ limit: 1, windowMs: HOUR_MS }),
    },
  ];
  try {
    const store = memoryStore();
    const limiters = [
      ...policies.map((each) => StoreLimiter.create(store, "memory", each, PATIENT)),
      ...policies.map((each) => RedisLimiter.create(redis, "Redis", each, PATIENT)),
    ];
    for (let i = 0; i < 2; i++) {
      for (const limiter of limiters) {
        await limiter.tryAcquire();
        await limiter.for("a").tryAcquire();
      }
    }
    await Promise.all(limiters.map((limiter) => limiter.close()));
  } finally {
    diagnostics.otherAlgorithms.unsubscribe(note);
  }
  // a refusal changes nothing: only the first version has a state
  const expected = ["memory", "Redis"].flatMap((limiter) =>
    [1, 2].map(() => ({ limiter, others: ["gcra"] })),
  );
  assert.equal(messages, expected);
});

test.run();
