/** What a fair limiter promises for any arrivals, sizes, weights, cancels and rate changes. */
import fc from "fast-check";
import * as assert from "uvu/assert";
import { fairShares, RateLimiter } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { watch } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("fair limiter, properties");

const SHARES = ["a", "b", "c", "d"];

type Op =
  | { op: "acquire"; share: number; permits: number; count: number }
  | { op: "advance"; ms: number }
  | { op: "cancel"; which: number }
  | { op: "rate"; rate: number }
  | { op: "pause"; ms: number };

const share = fc.nat({ max: SHARES.length - 1 });
const acquire = (permits: fc.Arbitrary<number>) =>
  fc.record({
    op: fc.constant("acquire" as const),
    share,
    permits,
    count: fc.constantFrom(1, 1, 2, 10),
  });
const advance = fc.record({
  op: fc.constant("advance" as const),
  ms: fc.constantFrom(1, 10, 50, 100, 333, 1000),
});
const cancel = fc.record({ op: fc.constant("cancel" as const), which: fc.nat({ max: 50 }) });
const rate = fc.record({ op: fc.constant("rate" as const), rate: fc.constantFrom(3, 10, 100) });
const pause = fc.record({ op: fc.constant("pause" as const), ms: fc.constantFrom(10, 200) });
const anySize = fc.constantFrom(1, 1, 2, 5, 20, 0.5, 1 / 3);

const ops = (...kinds: fc.Arbitrary<Op>[]) =>
  fc.array(fc.oneof(...kinds), { minLength: 5, maxLength: 40, size: "max" });
const anyOps = ops(acquire(anySize), acquire(anySize), advance, advance, cancel, rate, pause);

const weights = fc.array(fc.constantFrom(1, 1, 2, 5, 0.1), {
  minLength: SHARES.length,
  maxLength: SHARES.length,
});

interface Call {
  readonly share: number;
  readonly permits: number;
  readonly controller: AbortController;
  readonly asked: number;
  at: number | undefined;
  cancelled: boolean;
}

/** Plays a history on a limiter and records which calls were released, in order. */
async function play(
  history: readonly Op[],
  sharesWeights: readonly number[],
  fair: boolean,
  on: { burstSeconds?: number; waits?(call: Call): void; left?(call: Call): void } = {},
) {
  const clock = new FakeClock();
  const { burstSeconds = 0.5 } = on;
  const limiter = RateLimiter.create(10, {
    clock,
    burstSeconds,
    order: fair ? fairShares() : undefined,
  });
  const calls: Call[] = [];
  const one = async (index: number, permits: number) => {
    const controller = new AbortController();
    const asked = clock.now();
    const call: Call = {
      ...{ share: index, permits, controller, asked },
      ...{ at: undefined, cancelled: false },
    };
    calls.push(call);
    const { waiting } = limiter.stats;
    const options = fair
      ? { share: SHARES[index] as string, weight: sharesWeights[index] as number }
      : {};
    const done = limiter.acquire(permits, { signal: controller.signal, ...options });
    const waits = limiter.stats.waiting > waiting;
    if (waits) on.waits?.(call);
    try {
      await done;
      call.at = clock.now();
    } catch {
      call.cancelled = true;
    }
    if (waits) on.left?.(call);
  };
  for (const step of history) {
    if (step.op === "acquire") {
      for (let i = 0; i < step.count; i++) void one(step.share, step.permits);
    } else if (step.op === "advance") await clock.advance(step.ms);
    else if (step.op === "rate") limiter.setRate(step.rate);
    else if (step.op === "pause") limiter.pause(step.ms);
    else {
      const pending = calls.filter((call) => call.at === undefined && !call.cancelled);
      pending[step.which % Math.max(1, pending.length)]?.controller.abort();
      await clock.advance(0);
    }
  }
  await clock.advance(10_000_000);
  return { calls };
}

/** The second request of share 0 waits behind one that is cancelled. */
const CANCELLED_HEAD: [Op[], number[]] = [
  [
    { op: "acquire", share: 1, permits: 2, count: 2 },
    { op: "acquire", share: 0, permits: 1, count: 1 },
    { op: "acquire", share: 2, permits: 1 / 3, count: 10 },
    { op: "advance", ms: 333 },
    { op: "acquire", share: 0, permits: 1, count: 1 },
    { op: "cancel", which: 0 },
  ],
  [1, 2, 1, 1],
];

test("the work of two shares with waiters differs from the ratio of their weights by at most the bound", async () => {
  await fc.assert(
    fc.asyncProperty(anyOps, weights, async (history, w) => {
      const largest = SHARES.map((_, i) =>
        Math.max(
          0,
          ...history.map((step) => (step.op === "acquire" && step.share === i ? step.permits : 0)),
        ),
      );
      const waiting = SHARES.map(() => 0);
      const work = SHARES.map(() => 0);
      const violations: string[] = [];
      /** For each pair with waiters: the least and the most of W_i / w_i − W_j / w_j. */
      const ranges = new Map<string, [number, number]>();
      const update = () => {
        for (let i = 0; i < SHARES.length; i++) {
          for (let j = 0; j < i; j++) {
            const key = `${i} ${j}`;
            const difference =
              (work[i] as number) / (w[i] as number) - (work[j] as number) / (w[j] as number);
            const bound =
              (largest[i] as number) / (w[i] as number) + (largest[j] as number) / (w[j] as number);
            const [least, most] = ranges.get(key) ?? [difference, difference];
            const range: [number, number] = [
              Math.min(least, difference),
              Math.max(most, difference),
            ];
            if (ranges.has(key)) {
              const reached = range[1] - range[0];
              if (reached > bound * (1 + 1e-9)) violations.push(`${key}: ${reached} > ${bound}`);
            }
            if ((waiting[i] as number) > 0 && (waiting[j] as number) > 0) ranges.set(key, range);
            else ranges.delete(key);
          }
        }
      };
      await play(history, w, true, {
        waits({ share: index }) {
          waiting[index] = (waiting[index] as number) + 1;
          update();
        },
        left({ share: index, permits, cancelled }) {
          waiting[index] = (waiting[index] as number) - 1;
          if (!cancelled) work[index] = (work[index] as number) + permits;
          update();
        },
      });
      assert.equal(violations, []);
    }),
    { numRuns: runs(150), examples: [CANCELLED_HEAD] },
  );
});

test("with equal requests callers are released at exactly the instants of one queue", async () => {
  const equal = ops(acquire(fc.constant(1)), acquire(fc.constant(1)), advance, rate, pause);
  await fc.assert(
    fc.asyncProperty(equal, weights, async (history, w) => {
      const instants = async (fair: boolean) =>
        (await play(history, w, fair)).calls.map(({ at = -1 }) => at).sort((x, y) => x - y);
      assert.equal(await instants(true), await instants(false));
    }),
    { numRuns: runs(60) },
  );
});

test("with any requests the limiter never idles while a caller waits, and grants none too early", async () => {
  const any = ops(acquire(anySize), acquire(anySize), advance);
  await fc.assert(
    fc.asyncProperty(any, weights, async (history, w) => {
      const { calls } = await play(history, w, true, { burstSeconds: 0 });
      const released = calls.filter((call) => call.at !== undefined);
      released.sort((x, y) => (x.at ?? 0) - (y.at ?? 0));
      for (const [i, { at = 0, asked }] of released.entries()) {
        const previous = released[i - 1];
        if (previous === undefined) continue;
        const free = (previous.at ?? 0) + previous.permits * 100;
        assert.ok(Math.abs(at - Math.max(free, asked)) < 0.002, `${at}: ${free}, ${asked}`);
      }
    }),
    { numRuns: runs(60) },
  );
});

test("a caller that was cancelled changes nothing for the others", async () => {
  const known = ops(acquire(anySize), acquire(anySize), advance, pause);
  await fc.assert(
    fc.asyncProperty(known, weights, fc.nat({ max: 30 }), async (history, w, at) => {
      const index = at % history.length;
      const extra: Op = { op: "acquire", share: 1, permits: 5, count: 1 };
      const withExtra = [...history.slice(0, index), extra, ...history.slice(index)];
      const before = withExtra
        .slice(0, index)
        .reduce((sum, step) => sum + (step.op === "acquire" ? step.count : 0), 0);
      const cancelled = await playCancelled(withExtra, w, before);
      const without = await play(history, w, true);
      assert.equal(
        cancelled,
        without.calls.map((call) => call.at),
      );
    }),
    { numRuns: runs(60) },
  );
});

/** The instants of all calls but one, which is cancelled as late as possible: before the next advance. */
async function playCancelled(history: readonly Op[], w: readonly number[], index: number) {
  let seen = 0;
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0.5, order: fairShares() });
  const controller = new AbortController();
  const calls: { readonly at: number | undefined }[] = [];
  for (const step of history) {
    if (step.op === "acquire") {
      for (let i = 0; i < step.count; i++) {
        const options = { share: SHARES[step.share] as string, weight: w[step.share] as number };
        if (seen++ === index) {
          // on a limiter that would grant it at once there is nothing to cancel
          if (limiter.peek(step.permits, options).waitMs === 0) continue;
          limiter.acquire(step.permits, { ...options, signal: controller.signal }).catch(() => {});
        } else {
          calls.push(watch(clock, limiter.acquire(step.permits, options)));
        }
      }
    } else if (step.op === "advance") {
      controller.abort();
      await clock.advance(step.ms);
    } else if (step.op === "pause") limiter.pause(step.ms);
  }
  controller.abort();
  await clock.advance(10_000_000);
  return calls.map(({ at }) => at);
}

test("no share starves, although new shares come without end at the full rate", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0, order: fairShares() });
  limiter.tryAcquire();
  const old = Array.from({ length: 5 }, () => watch(clock, limiter.acquire(1, { share: "old" })));
  for (let i = 0; i < 5; i++) void limiter.acquire(1, { share: `first ${i}` });
  for (let i = 0; i < 300; i++) {
    void limiter.acquire(1, { share: `new ${i}` });
    await clock.advance(100);
  }
  assert.is(
    old.every(({ at }) => at !== undefined),
    true,
    `released: ${old.map(({ at }) => at).join(", ")}`,
  );
  await clock.advance(10_000);
});

test("50 equal tenants with loads from 1 to 1000 get the same: Jain's index is above 0.999", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(500, { clock, order: fairShares() });
  const served = Array.from({ length: 50 }, () => 0);
  let open = true;
  for (let tenant = 0; tenant < 50; tenant++) {
    const load = Math.round(1000 ** (tenant / 49));
    const call = async () => {
      await limiter.acquire(1, { share: `tenant ${tenant}` });
      if (!open) return;
      served[tenant] = (served[tenant] as number) + 1;
      void call();
    };
    for (let i = 0; i < load; i++) void call();
  }
  await clock.advance(10_000);
  const sum = served.reduce((a, b) => a + b, 0);
  const squares = served.reduce((a, b) => a + b * b, 0);
  open = false;
  assert.ok(sum ** 2 / (50 * squares) >= 0.999, `${sum ** 2 / (50 * squares)}: ${served}`);
  limiter.setRate(Infinity);
  await clock.advance(0);
});

test.run();
