import fc from "fast-check";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import {
  allOf,
  fixedWindow,
  type Limiter,
  Limiter as LocalLimiter,
  type Policy,
} from "../../src/index.ts";
import { RedisLimiter } from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { samplePolicies } from "../support/algorithms/samples.ts";
import { SlowLimiter } from "../support/limiter/slow-limiter.ts";
import { freshUrl } from "../support/redis/server.ts";
import { type Ask, type Asker, type Numbers, type Op, type Spec, Story } from "../support/story.ts";
import { runs, suite } from "../support/suite.ts";

function numbersOf(...rates: number[]): fc.Arbitrary<Numbers> {
  const rate = fc.constantFrom(...rates);
  const bursty = fc.record({
    rate,
    burstSeconds: fc.constantFrom(0, 0.001, 0.5, 1, 3),
    prefilled: fc.boolean(),
  });
  const warmingUp = fc.record({
    rate,
    warmup: fc.constantFrom(0.5, 1, 5, 12.3),
    coldFactor: fc.constantFrom(1, 1.5, 3, 10),
  });
  return fc.oneof(bursty, warmingUp);
}

const slowRates = [1, 3, 7, 10, 0.5, 1000 / 3];
const numbers = numbersOf(...slowRates, 12_345.678, 80_000, 3_000_000);
const single: fc.Arbitrary<Spec> = numbers.map((one) => [one]);
/**
 * Two policies of about the same rate, so that sometimes the first binds and sometimes the second.
 */
const joint: fc.Arbitrary<Spec> = fc
  .tuple(numbers, numbers, fc.constantFrom(0.3, 1, 1.7))
  .map(([a, b, share]) => [a, { ...b, rate: a.rate * share }]);
const anyLimiter = fc.oneof(single, joint);

const amount = fc.constantFrom(1, 1, 1, 2, 5, 0.5, 1 / 3, 20);
const alike: fc.Arbitrary<Ask> = amount.map((n) => [n, n]);
const ask: fc.Arbitrary<Ask> = fc.oneof(
  { weight: 3, arbitrary: alike },
  { weight: 1, arbitrary: fc.tuple(amount, amount) },
  { weight: 1, arbitrary: amount.map((n): Ask => [n, 0]) },
  { weight: 1, arbitrary: amount.map((n): Ask => [0, n]) },
);
const time = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(0, 0.5, 1, 2, 10) },
  { weight: 5, arbitrary: fc.integer({ min: 0, max: 4000 }).map((n) => n / 1000) },
  // hours, for slow policies
  { weight: 1, arbitrary: fc.constant(5000) },
);
const which = fc.nat({ max: 20 });
const factor = fc.constantFrom(0.1, 0.5, 0.9, 1, 1.5, 2, 10);

/**
 * Without advances of hours. After hours a limiter counts its time from another origin as soon as
 * no caller waits. Whether that happens before or after a sum changes the sum's last bit.
 */
function shortened<T extends Op>(ops: fc.Arbitrary<T[]>): fc.Arbitrary<T[]> {
  return ops.map((all) =>
    all.map((one) => ("time" in one && one.time > 10 ? { ...one, time: 10 } : one)),
  );
}

function opsOf<T>(...kinds: fc.Arbitrary<T>[]) {
  return fc.array(fc.oneof(...kinds), { minLength: 1, maxLength: 30, size: "max" });
}

const op = {
  advance: fc.record({ op: fc.constant("advance"), time }),
  stepBack: fc.record({ op: fc.constant("stepBack"), time }),
  pause: fc.record({ op: fc.constant("pause"), time }),
  acquire: fc.record({ op: fc.constant("acquire"), ask }),
  acquireAlike: fc.record({ op: fc.constant("acquire"), ask: alike }),
  timed: fc.record({ op: fc.constant("timed"), ask, time }),
  now: fc.record({ op: fc.constantFrom("try", "decide", "peek"), ask }),
  debt: fc.record({ op: fc.constantFrom("charge", "refund"), ask }),
  reserve: fc.record({ op: fc.constant("reserve"), ask, awaited: fc.boolean() }),
  reserveAlike: fc.record({ op: fc.constant("reserve"), ask: alike, awaited: fc.boolean() }),
  ready: fc.record({ op: fc.constant("ready"), which }),
  leave: fc.record({ op: fc.constant("leave"), which }),
  rate: fc.record({ op: fc.constant("rate"), factor }),
  settle: fc.record({ op: fc.constant("settle"), which, ask }),
} satisfies Record<string, fc.Arbitrary<Op>>;

const asks = [op.acquire, op.timed, op.now, op.reserve];
const shapers = [op.pause, op.rate, op.leave, op.ready, op.debt];
const known = [op.advance, op.advance, ...asks, ...shapers];
const withSteps = opsOf<Op>(...known, op.stepBack);
const withSettling = shortened(opsOf<Op>(...known, op.settle));
const anyOps = opsOf<Op>(...known, op.stepBack, op.settle);

const evenly: Spec = [{ rate: 1, burstSeconds: 0, prefilled: false }];
const quickly: Spec = [{ rate: 1000, burstSeconds: 0, prefilled: false }];
const slowAndFast: Spec = [...evenly, { rate: 10, burstSeconds: 0, prefilled: false }];
const storing: Spec = [{ rate: 10, burstSeconds: 1, prefilled: true }];
const unseen: Op = { op: "reserve", ask: [1, 1], awaited: false };
const one: Op = { op: "acquire", ask: [1, 1] };
const tried: Op = { op: "try", ask: [1, 1] };
const charged: Op = { op: "charge", ask: [1, 1] };

/** Histories that once failed. */
const regressions = {
  envelope: [
    // a caller behind a reservation that was not awaited was credited with its lateness
    [quickly, [charged, unseen, { op: "advance", time: 5 }, tried, tried, tried]],
  ] as [Spec, Op[]][],
  honest: [
    // waiters behind an expired time-out were promised instants that had passed
    [
      slowAndFast,
      [
        { op: "try", ask: [1, 1] },
        { op: "timed", ask: [1, 0], time: 1.5 },
        ...[{ op: "acquire", ask: [0, 1] } as const, { op: "acquire", ask: [0, 1] } as const],
        ...[{ op: "advance", time: 0.5 } as const, { op: "charge", ask: [10, 0] } as const],
      ],
      [0, 1],
      0,
    ],
    // the only waiter was cancelled, and its instant was promised again
    [
      [{ rate: 1, burstSeconds: 0, prefilled: false }],
      [
        { op: "charge", ask: [2, 2] },
        { op: "timed", ask: [1, 1], time: 2 },
        { op: "charge", ask: [1, 1] },
        { op: "advance", time: 10 },
        ...[{ op: "try", ask: [1, 1] } as const, unseen],
      ],
      [0, 1],
      0,
    ],
  ] as [Spec, Op[], Ask, number][],
  looks: [
    [
      evenly,
      [charged, unseen, { op: "advance", time: 1 }, { op: "advance", time: 4 }, one, one],
      [[1, 1]],
    ],
    // a reservation that was settled after its instant, and seen only then, was charged twice
    [
      evenly,
      [charged, unseen, { op: "advance", time: 1.5 }, { op: "settle", which: 0, ask: [5, 5] }, one],
      [[1, 1]],
    ],
  ] as [Spec, Op[], Ask[]][],
  neutral: [
    // a charge behind a reservation with a fixed instant had the old rate
    [
      evenly,
      [
        charged,
        { ...unseen, leaving: 9 },
        { op: "rate", factor: 0.1 },
        charged,
        { op: "advance", time: 0.1 },
        one,
      ],
    ],
  ] as [Spec, (Op & { leaving?: number })[]][],
  simulated: [
    // a refund released waiters as if it had been made when they asked
    [
      { rate: 1, burstSeconds: 0, prefilled: false },
      [
        ...[{ op: "charge", ask: [10, 10] } as const, one, one, one, one],
        ...[{ op: "advance", time: 5 } as const, { op: "refund", ask: [10, 10] } as const],
      ],
    ],
  ] as [Numbers, Op[]][],
  order: [
    // the promises of tryAcquire and ready took a few turns more
    [
      storing,
      [
        { op: "pause", time: 10 },
        { op: "timed", ask: [1, 1], time: 20 },
        ...[one, { ...unseen, awaited: true }, one],
      ],
    ],
    // when a reservation left, a change moved up and broke a time-out that was not checked
    [
      evenly,
      [
        ...[charged, one, unseen, { op: "timed", ask: [1, 1], time: 3 }],
        ...[
          { op: "rate", factor: 0.1 },
          { op: "leave", which: 1 },
        ],
      ],
    ],
  ] as [Spec, Op[]][],
};

/** Histories of each property. */
const RUNS = runs(200);

const promises = suite("promises");

/** The granted requests, with their amounts for one policy, in the order of their instants. */
function grants(story: Story, policy: number) {
  return story.askers
    .flatMap(({ asked, at, ask }) => {
      const permits = ask[policy] || (policy === 0 && story.isSingle ? ask[1] : 0);
      return at === undefined || !permits ? [] : [{ asked, at, permits }];
    })
    .sort((a, b) => a.at - b.at);
}

/**
 * Every interval holds at most `max`, what is refilled in it, and one request more: the largest of
 * those at its end. Permits given back while callers waited come on top. Promised instants are
 * whole microseconds, so an interval may be one longer than it looks.
 */
function checkEnvelope(
  story: Story,
  policy: number,
  { max, fastest, worth }: { max: number; fastest: number; worth: number },
) {
  const granted = grants(story, policy);
  for (let first = 0; first < granted.length; first++) {
    let sum = 0;
    let lent = 0;
    const from = granted[first]?.at ?? 0;
    let since = from;
    for (let last = first; last < granted.length; last++) {
      const { asked = 0, at = 0, permits = 0 } = granted[last] ?? {};
      since = Math.min(since, asked);
      sum += permits;
      lent = at === granted[last - 1]?.at ? Math.max(lent, permits) : permits;
      const back = story.refunds
        .filter((refund) => refund.at >= since && refund.at <= at)
        .reduce((all, { ask }) => all + (ask[policy] || ask[0] || ask[1]), 0);
      const bound = max + (fastest * (at - from + 1)) / 1e6 + back * worth + lent;
      const facts = `${sum} in ${at - from} us from ${from}, at most ${bound}`;
      assert.ok(sum <= bound * (1 + 1e-9) + 1e-6, facts);
    }
  }
}

promises("1, envelope: no interval holds more than the bound, in any history", async () => {
  const property = fc.asyncProperty(anyLimiter, withSteps, async (spec, ops) => {
    const story = await new Story(spec).play(ops);
    await story.end();
    const factors = ops.flatMap((one) => (one.op === "rate" ? [one.factor] : []));
    const highest = Math.max(1, ...factors);
    // a permit that was bought at the fastest rate is given back at the current rate
    const worth = highest / Math.min(1, ...factors);
    spec.forEach((numbers, policy) => {
      const fastest = numbers.rate * highest;
      const max = "burstSeconds" in numbers ? fastest * numbers.burstSeconds : 0;
      checkEnvelope(story, policy, { max, fastest, worth });
    });
  });
  await fc.assert(property, { numRuns: RUNS, examples: regressions.envelope });
});

promises("1, envelope: late timers add no more than their lateness, or 10 ms", async () => {
  const ops = opsOf<Op>(
    ...[op.advance, op.advance, op.acquire, op.acquire, op.timed, op.now],
    ...[fc.record({ op: fc.constant("reserve"), ask, awaited: fc.constant(true) })],
    ...[op.pause, op.leave],
  );
  const late = fc.array(fc.constantFrom(0, 100, 900, 5000, 25_000), { minLength: 1, maxLength: 4 });
  const property = fc.asyncProperty(anyLimiter, ops, late, async (spec, ops, late) => {
    const story = await (await new Story(spec, late).play(ops)).end();
    spec.forEach((numbers, policy) => {
      const stored = "burstSeconds" in numbers ? numbers.rate * numbers.burstSeconds : 0;
      const max = stored + (numbers.rate * Math.max(...late)) / 1e6;
      checkEnvelope(story, policy, { max, fastest: numbers.rate, worth: 1 });
    });
    checkOrder(story);
  });
  await fc.assert(property, { numRuns: RUNS });
});

promises("2, honest waits: refused before the promised instant, granted exactly then", async () => {
  const property = fc.asyncProperty(
    ...[anyLimiter, anyOps, ask, fc.double({ min: 0, max: 1, noNaN: true })],
    async (spec, ops, last, share) => {
      const play = async () => {
        const story = await new Story(spec).play(ops);
        const permits = story.permits(last);
        // so that a step back is seen before time goes on
        story.limiter.peek(permits);
        return { ...story, permits, limiter: story.limiter, clock: story.clock };
      };
      const { limiter, permits } = await play();
      const peeked = limiter.peek(permits);
      const { allowed, waitMs } = limiter.decide(permits);
      assert.equal([peeked.allowed, peeked.waitMs], [allowed, waitMs]);
      assert.is(allowed, waitMs === 0);
      if (allowed) {
        assert.is((await play()).limiter.tryAcquire(permits), true);
        return;
      }
      const wait = Math.round(waitMs * 1000);
      for (const early of new Set([Math.floor(share * wait), wait - 1])) {
        if (early >= wait) continue;
        const { limiter, clock, permits } = await play();
        await clock.advance(early);
        const { allowed, waitMs } = limiter.decide(permits);
        assert.equal([allowed, Math.round(waitMs * 1000)], [false, wait - early]);
        assert.is(limiter.tryAcquire(permits), false);
      }
      const punctual = await play();
      await punctual.clock.advance(wait);
      assert.is(punctual.limiter.tryAcquire(permits), true);
      const story = await play();
      assert.is(story.limiter.reserve(permits).waitMs, waitMs);
    },
  );
  await fc.assert(property, { numRuns: RUNS, examples: regressions.honest });
});

promises("3, a refusal and a peek change nothing", async () => {
  const property = fc.asyncProperty(
    anyLimiter,
    withSettling,
    fc.array(ask),
    async (spec, ops, looks) => {
      const plain = await (await new Story(spec).play(ops)).end();
      const looked = new Story(spec);
      const { limiter } = looked;
      const tries: Promise<boolean>[] = [];
      await looked.play(ops, () => {
        for (const permits of looks.map((look) => looked.permits(look))) {
          const { allowed, waitMs } = limiter.peek(permits);
          if (allowed) continue;
          assert.is(limiter.decide(permits).waitMs, waitMs);
          assert.is(limiter.tryAcquire(permits), false);
          tries.push(limiter.tryAcquire(permits, 0), limiter.tryAcquire(permits, waitMs - 0.001));
        }
      });
      await looked.end();
      assert.ok((await Promise.all(tries)).every((got) => !got));
      assert.equal(looked.answers, plain.answers);
      assert.equal(looked.askers.map(fate), plain.askers.map(fate));
    },
  );
  await fc.assert(property, { numRuns: RUNS, examples: regressions.looks });
});

function fate({ asked, at, order, gone, left }: Asker) {
  return { asked, at, order, gone, left };
}

/**
 * Plays a history with the callers that will leave, and again without them, and compares the
 * results of the other callers.
 *
 * One effect cannot be undone: a caller may overtake a reservation that is not awaited, at the
 * price on which the reservation's instant was based. When the reservation is cancelled, that
 * price has been paid. So such a reservation leaves before time moves on.
 */
async function checkNeutral(spec: Spec, ops: readonly (Op & { leaving?: number })[]) {
  const all = new Story(spec);
  const leaving: { asker: Asker; at: number; soon: boolean }[] = [];
  const askers: (Asker | undefined)[] = [];
  for (const [index, one] of ops.entries()) {
    if (one.op === "advance") {
      for (const { asker, soon, at } of leaving) if (soon || at <= index) asker.leave();
    }
    const before = all.askers.length;
    await all.do(one);
    const asker = all.askers[before];
    askers[index] = asker;
    if (asker && one.leaving) leaving.push({ asker, at: index + one.leaving, soon: false });
    if (["rate", "charge"].includes(one.op)) {
      for (const other of leaving) {
        const ahead = all.askers.slice(0, all.askers.indexOf(other.asker));
        const waits = ahead.some(({ at, gone, awaited }) => at === undefined && !gone && awaited);
        if (!other.asker.awaited && waits) other.soon = true;
      }
    }
  }
  for (const { asker } of leaving) asker.leave();
  await all.end();

  const without = new Story(spec);
  const kept: Asker[] = [];
  for (const [index, one] of ops.entries()) {
    const asker = askers[index];
    if (asker?.left) continue;
    await without.do(one);
    if (asker) kept.push(asker);
  }
  await without.end();
  assert.equal(
    kept.map(({ at }) => at),
    without.askers.map(({ at }) => at),
  );
  assert.equal(all.limiter.peek(), without.limiter.peek());
}

const leaving = fc.nat({ max: 8 });
function mayLeave<T extends Op>(asked: fc.Arbitrary<T>) {
  return fc.tuple(asked, leaving).map(([one, leaving]) => ({ ...one, leaving }));
}
const askers = [mayLeave(op.acquireAlike), mayLeave(op.acquireAlike), mayLeave(op.reserveAlike)];
const rest = [op.advance, op.advance, op.rate, op.pause];
const neutralOps = shortened(opsOf<Op & { leaving?: number }>(...askers, ...rest));
const charge = fc.record({ op: fc.constant("charge"), ask: alike });
const withCharges = shortened(opsOf<Op & { leaving?: number }>(...askers, ...rest, charge));

promises("4, cancel is neutral: as if the cancelled callers had never come", async () => {
  const property = fc.asyncProperty(anyLimiter, neutralOps, checkNeutral);
  await fc.assert(property, { numRuns: RUNS });
});

promises("4, cancel is neutral with charges, too", async () => {
  const property = fc.asyncProperty(anyLimiter, withCharges, checkNeutral);
  await fc.assert(property, { numRuns: RUNS, examples: regressions.neutral });
});

/** The instants and the answers are in the order of the calls, and every call is answered. */
function checkOrder(story: Story, answers = true) {
  const released = story.askers.filter(({ at }) => at !== undefined);
  const instants = released.map(({ at = 0 }) => at);
  const order = answers ? released.flatMap(({ order }) => order ?? []) : [];
  for (const list of [instants, order]) {
    assert.equal(
      list,
      list.toSorted((a, b) => a - b),
    );
  }
  for (const { at, gone } of story.askers) assert.is(at === undefined, gone);
}

promises("6, first in, first out, and no caller is granted after its time-out", async () => {
  const property = fc.asyncProperty(anyLimiter, anyOps, async (spec, ops) => {
    const story = await (await new Story(spec).play(ops)).end();
    for (const { at = 0, deadline } of story.askers) assert.ok(at <= deadline);
    // a reservation that is awaited late is answered late
    checkOrder(story, !ops.some((one) => one.op === "ready"));
  });
  await fc.assert(property, { numRuns: RUNS, examples: regressions.order });
});

promises("every caller is granted at the instant of a simple simulation", async () => {
  const modelled = opsOf<Op>(
    ...[op.advance, op.advance, op.acquireAlike, op.acquireAlike],
    ...[op.timed, op.pause, op.rate, op.leave, op.debt],
    fc.record({ op: fc.constant("reserve"), ask: alike, awaited: fc.constant(true) }),
  );
  const property = fc.asyncProperty(numbersOf(...slowRates), modelled, async (one, ops) => {
    const story = new Story([one]);
    const slow = new SlowLimiter(one);
    for (const each of ops) {
      const before = story.askers.length;
      await story.do(each);
      const amount = "ask" in each ? each.ask[0] || each.ask[1] : 0;
      if (story.askers.length > before) {
        slow.ask(before, amount, each.op === "timed" ? story.micros(each.time) : Infinity);
      } else if (each.op === "leave") slow.leave(each.which % story.askers.length);
      else if (each.op === "charge") slow.charge(amount);
      else if (each.op === "refund") slow.refund(amount);
      else if (each.op === "pause") slow.pause(story.micros(each.time));
      else if (each.op === "rate") slow.setFactor(each.factor);
      else if (each.op === "advance") slow.advance(story.micros(each.time));
    }
    await story.end();
    slow.advance(1e13);
    fc.pre(!slow.doubtful);
    story.askers.forEach(({ at, left }, id) => {
      const expected = slow.released.get(id);
      if (left || expected === undefined) assert.is(at, undefined, `${id} left or timed out`);
      else {
        // the limiter rounds to whole microseconds and makes up for what that adds to a wait, the
        // simulation does not
        const off = Math.abs((at ?? Infinity) - expected);
        assert.ok(off <= 1 + story.askers.length, `${id}: ${at}, not ${expected}`);
      }
    });
  });
  await fc.assert(property, { numRuns: RUNS, examples: regressions.simulated });
});

/**
 * Requests to combinations of these limiters, mixed with requests that one more limiter refuses.
 */
const combined = fc.record({
  policies: fc.array(
    fc.constantFrom(...samplePolicies).chain((kind) => fc.constantFrom(...kind)),
    { minLength: 1, maxLength: 3 },
  ),
  asks: fc.array(
    fc.record({
      verb: fc.constantFrom("tryAcquire", "decide"),
      micros: fc.constantFrom(0, 0, 1000, 30_000, 1_000_000),
      flood: fc.array(fc.constantFrom("tryAcquire", "decide", "peek", "timed"), { maxLength: 3 }),
      of: fc.subarray([0, 1, 2], { minLength: 1 }),
    }),
    { minLength: 1, maxLength: 12 },
  ),
});
type Combined = typeof combined extends fc.Arbitrary<infer T> ? T : never;

/** The answers to the permitted requests, with or without the refused ones in between. */
async function answersOf(
  { policies, asks }: Combined,
  hasFlood: boolean,
  open: (policy: Policy, clock: FakeClock) => Limiter,
): Promise<unknown[]> {
  const clock = new FakeClock(1000);
  const limiters = policies.map((policy) => open(policy, clock));
  const usedUp = open(fixedWindow({ limit: 1, windowMs: 1e9 }), clock);
  await usedUp.tryAcquire();
  const answers: unknown[] = [];
  for (const { verb, micros, flood, of } of asks) {
    await clock.advance(micros / 1000);
    if (hasFlood) {
      const refused = allOf(...limiters, usedUp);
      await Promise.all(
        flood.map(async (one) => {
          if (one === "timed") assert.not(await refused.tryAcquire(1, 50));
          else if (one === "tryAcquire") assert.not(await refused.tryAcquire());
          else assert.not((await refused[one as "decide" | "peek"]()).allowed);
        }),
      );
    }
    const members = limiters.filter((_, i) => of.includes(i));
    if (members.length > 0)
      answers.push(await allOf(...members)[verb as "tryAcquire" | "decide"]());
  }
  return answers;
}

promises("refused traffic never delays or starves permitted traffic, in one process", async () => {
  const open = (policy: Policy, clock: FakeClock) => LocalLimiter.create(policy, { clock });
  const property = fc.asyncProperty(combined, async (one) => {
    assert.equal(await answersOf(one, true, open), await answersOf(one, false, open));
  });
  await fc.assert(property, { numRuns: RUNS });
});

promises("refused traffic never delays or starves permitted traffic, on Redis", async () => {
  const redis = new Redis(await freshUrl());
  let names = 0;
  const open = (policy: Policy, clock: FakeClock) =>
    RedisLimiter.create(redis, `limiter ${names++}`, policy, { clock, timeoutMs: 30_000 });
  const property = fc.asyncProperty(combined, async (one) => {
    assert.equal(await answersOf(one, true, open), await answersOf(one, false, open));
  });
  await fc.assert(property, { numRuns: runs(100) });
  redis.disconnect();
});

promises.run();
