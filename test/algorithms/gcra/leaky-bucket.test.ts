import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { type GcraPolicy, gcraAlgorithm } from "../../../src/algorithms/gcra/gcra.ts";
import { leakyBucket } from "../../../src/algorithms/gcra/leaky-bucket.ts";
import { readPolicies, writePolicies } from "../../../src/algorithms/index.ts";
import {
  gcra,
  Limiter,
  type LocalLimiter,
  PermitsExceedCapacityError,
  QueueFullError,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";
import { aRate, aSize, bucketSuite, play, type Row, SECOND } from "../bucket.suite.ts";

const uber = (slack = 10) => leakyBucket({ permitsPerSecond: 100, capacity: Infinity, slack });

const nginx = suite("leaky bucket: nginx's patterns");

/** The waits of callers that ask one after the other at one instant, s; `null`: refused. */
function waits(limiter: LocalLimiter, count: number): (number | null)[] {
  return Array.from({ length: count }, () => {
    try {
      return limiter.reserve().waitMs / 1000;
    } catch (error) {
      assert.instance(error, QueueFullError);
      return null;
    }
  });
}

const no = null;
const patterns: Record<
  string,
  [nodelay: number | boolean | undefined, now: unknown, then: unknown]
> = {
  "delay, which is the default": [undefined, [0, 1, 2, 3, 4, 5, no, no], [5, no]],
  "no nodelay is delay": [false, [0, 1, 2, 3, 4, 5, no, no], [5, no]],
  "delay=2": [2, [0, 0, 0, 1, 2, 3, no, no], [3, no]],
  "nodelay: requests are granted or refused, and never wait": [
    true,
    [0, 0, 0, 0, 0, 0, no, no],
    [0, no],
  ],
  "delay=5 is nodelay": [5, [0, 0, 0, 0, 0, 0, no, no], [0, no]],
};

for (const [name, [nodelay, now, then]] of Object.entries(patterns)) {
  nginx(`rate=1r/s burst=5, ${name}`, async () => {
    const clock = new FakeClock();
    const numbers = { permitsPerSecond: 1, capacity: 5 };
    const policy = leakyBucket(nodelay === undefined ? numbers : { ...numbers, nodelay });
    const limiter = Limiter.create(policy, { clock });
    assert.equal(waits(limiter, 8), now);
    // a second later there is room for one more
    await clock.advance(999.999);
    assert.equal(waits(limiter, 1), [null]);
    await clock.advance(0.001);
    assert.equal(waits(limiter, 2), then);
  });
}

nginx("a refusal is an error with numbers from acquire, and false from tryAcquire", async () => {
  const clock = new FakeClock();
  const policy = leakyBucket({ permitsPerSecond: 1, capacity: 2 });
  const limiter = Limiter.create(policy, { clock, name: "door" });
  const waiting = [1, 2, 3].map(() => watch(clock, limiter.acquire()));
  await clock.advance(0);
  const error = await failure(() => limiter.acquire());
  assert.instance(error, QueueFullError);
  const facts = { limiter: "door", permits: 1, waiting: 2, maxWaiting: 2 };
  assert.equal((error as QueueFullError).facts, facts);
  assert.is(await limiter.tryAcquire(1, 1e9), false);
  assert.is(limiter.tryAcquire(), false);
  await clock.advance(2000);
  assert.equal(
    waiting.map(({ at }) => at),
    [0, 1000, 2000],
  );
});

nginx("a bucket with nodelay never makes a caller wait", async () => {
  const clock = new FakeClock();
  const policy = leakyBucket({ permitsPerSecond: 10, capacity: 1, nodelay: true });
  const limiter = Limiter.create(policy, { clock });
  assert.is(limiter.tryAcquire(2), true);
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  assert.is(await limiter.tryAcquire(1, 1000), false);
  const { allowed, waitMs, remaining } = limiter.decide();
  assert.equal([allowed, waitMs, remaining], [false, Infinity, 0]);
  await clock.advance(100);
  assert.is(await limiter.acquire(), 0);
});

nginx("capacity 0: one at a time, without waiting", () => {
  const limiter = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 0 }), {
    clock: new FakeClock(),
  });
  assert.equal(waits(limiter, 3), [0, null, null]);
});

nginx("a large request goes when its immediate part is free, and the next ones pay", () => {
  const policy = leakyBucket({ permitsPerSecond: 1, capacity: 5, nodelay: 1 });
  play(policy, [
    [0, 4, 0],
    [0, 1, 3],
    [9, 6, 0],
    [9, 1, 5],
    [99, 6, 0],
    [99, 6, 6],
    [999, 6.001, Infinity],
  ]);
  const limiter = Limiter.create(policy, { clock: new FakeClock() });
  assert.throws(
    () => limiter.reserve(7),
    (e: Error) => e instanceof PermitsExceedCapacityError,
  );
});

nginx.run();

const slack = suite("leaky bucket: like uber's ratelimit");

const rows: Record<string, readonly [GcraPolicy, ...Row[]]> = {
  "100 a second: 10 ms apart": [
    uber(),
    ...Array.from({ length: 20 }, (_, i): Row => [0, 1, i / 100]),
  ],
  "after a pause the missed requests go at once": [
    uber(),
    [0, 1, 0],
    ...Array.from({ length: 4 }, (): Row => [0.04, 1, 0]),
    [0.04, 1, 0.01],
  ],
  "after a long pause eleven go at once, and no more": [
    uber(),
    ...Array.from({ length: 11 }, (): Row => [9, 1, 0]),
    [9, 1, 0.01],
    [9, 1, 0.02],
  ],
  "without slack, idle time is lost": [uber(0), [9, 1, 0], [9, 1, 0.01], [99, 1, 0], [99, 1, 0.01]],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  slack(name, () => play(policy, table));
}

slack("unused slack keeps the key alive: a lapsed key would begin without it", () => {
  const policy = uber();
  const state = gcraAlgorithm.start(policy, 0);
  assert.is(state.level, 1);
  assert.is(gcraAlgorithm.lifetime(policy, state, 0), 0.1 * SECOND + 3600 * SECOND);
  assert.is(gcraAlgorithm.lifetime(policy, state, SECOND), 3600 * SECOND);
});

slack.run();

const numbers = suite("leaky bucket: policies");

numbers("bad numbers are refused", () => {
  const good = { permitsPerSecond: 1, capacity: 5 };
  const cases: [object, RegExp][] = [
    ...[0, -1, Infinity, Number.NaN, "1", null].map((permitsPerSecond): [object, RegExp] => [
      { permitsPerSecond },
      /^permitsPerSecond must be a finite number above 0, got/,
    ]),
    ...[-1, Number.NaN, "1", null, undefined].map((capacity): [object, RegExp] => [
      { capacity },
      /^capacity must be a number, 0 or more, Infinity included, got/,
    ]),
    ...[-1, 5.001, Number.NaN, Infinity, "1", null].map((nodelay): [object, RegExp] => [
      { nodelay },
      /^nodelay must be true, false or a finite number from 0 to capacity \(5\), got/,
    ]),
    [
      { capacity: Infinity, nodelay: true },
      /^nodelay must be false or a finite number from 0 up, since capacity is Infinity, got true/,
    ],
    ...[-1, Infinity, "1", null].map((slack): [object, RegExp] => [{ slack }, /^slack must be/]),
    [{ burst: 1 }, /no "burst"; expected one of permitsPerSecond, capacity, nodelay, slack/],
  ];
  for (const [bad, words] of cases) {
    assert.throws(() => leakyBucket({ ...good, ...bad }), words);
  }
  assert.throws(() => leakyBucket(null as never), /^leakyBucket takes \{ .*, got null/);
});

numbers("a policy can be serialized and restored", () => {
  for (const policy of [uber(), leakyBucket({ permitsPerSecond: 1, capacity: 5, nodelay: 2 })]) {
    const { limitAt, ...written } = policy;
    assert.equal(readPolicies(writePolicies([policy])), [written]);
  }
  assert.is(uber().maxWaiting, Infinity);
});

numbers("the pace is the limit", () => {
  assert.equal(leakyBucket({ permitsPerSecond: 1, capacity: 5 }).limitAt, [1]);
});

numbers("sums beyond the doubles", () => {
  const policy = leakyBucket({
    permitsPerSecond: 1,
    capacity: 1.7e308,
    nodelay: true,
    slack: 1e308,
  });
  const state = gcraAlgorithm.start(policy, 0);
  assert.is(gcraAlgorithm.earliest(policy, state, 0, 1), 0);
  assert.is(gcraAlgorithm.quota(policy, state, 0).limit, Number.MAX_VALUE);
});

numbers("beside another policy the bucket still bounds the waiters", async () => {
  const bucket = leakyBucket({ permitsPerSecond: 1, capacity: 2 });
  const limiter = Limiter.create(
    { bucket, policyStates: gcra({ limit: 100, periodMs: 1000 }) },
    { clock: new FakeClock() },
  );
  for (let i = 0; i < 3; i++) limiter.acquire().catch(() => {});
  const error = await failure(() => limiter.acquire());
  assert.ok(error instanceof QueueFullError);
  assert.is(error.facts.maxWaiting, 2);
  assert.not(await limiter.tryAcquire(1, 60_000));
  limiter.acquire({ policyStates: 1 }).catch(() => {});
});

numbers.run();

bucketSuite("leaky bucket", {
  policies: fc
    .record({
      permitsPerSecond: aRate,
      capacity: aSize,
      share: fc.constantFrom(0, 0, 0.25, 1),
      slack: fc.oneof(fc.constant(0), aSize),
    })
    .map(({ share, ...one }) => leakyBucket({ ...one, nodelay: one.capacity * share })),
  largest: ({ largest }) => largest,
});
