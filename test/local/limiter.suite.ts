import * as assert from "uvu/assert";
import {
  type Decision,
  type Limiter,
  type LimiterOptions,
  type LocalLimiter,
  type Policies,
  type PolicyStatus,
  QueueFullError,
  ReservationCancelledError,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, watch } from "../support/limiter/watch.ts";
import { type Sample, suite } from "../support/suite.ts";

/** A fresh limiter on that clock, which shares nothing with earlier ones. */
export type MakeLimiter<L extends Limiter = Limiter> = (
  clock: FakeClock,
  options?: Pick<LimiterOptions, "maxWaiting" | "name">,
) => L | Promise<L>;

/** What the suite needs to know about the limiters that it is given. */
export interface Kind {
  /**
   * Their policies. Single permits, taken one after the other at one instant, are refused sooner
   * or later.
   */
  readonly policies: Policies;
  /** For `update`: the same policies with higher and with lower rates. */
  readonly faster: Policies;
  readonly slower: Policies;
  /**
   * The clock for `makeLimiter`; its `advance` waits for requests in flight where verbs answer
   * later.
   */
  readonly makeClock?: () => FakeClock;
  /** How many permits come back at one instant, after they were drained at one; default 1. */
  readonly together?: number;
  /** For kinds that differ in their policies only: each of them runs some of the tests. */
  readonly sample?: Sample;
}

const MICRO = 0.001;
const FAR = 1e9;

function last(instants: readonly number[]): number {
  return instants.at(-1) ?? Number.NaN;
}

function namesOf(policies: Policies): string[] {
  return "algorithm" in policies ? ["default"] : Object.keys(policies);
}

/**
 * Takes single permits until one is refused. Returns the number of grants and how long the next
 * permit would wait, ms.
 */
async function drain(limiter: Limiter): Promise<{ taken: number; waitMs: number }> {
  for (let taken = 0; taken < 1000; taken++) {
    const { allowed, waitMs } = await limiter.decide();
    if (!allowed) return { taken, waitMs };
  }
  throw new Error("1000 permits were granted at one instant");
}

/**
 * What every limiter must do, wherever its state lives. The verbs are awaited, since some answer
 * later.
 */
export function limiterSuite(name: string, makeLimiter: MakeLimiter, kind: Kind): void {
  const test = suite(`limiter, ${name}`, { sample: kind.sample });
  const names = namesOf(kind.policies);
  const { together = 1 } = kind;

  async function make(options?: Parameters<MakeLimiter>[1]) {
    const clock = kind.makeClock?.() ?? new FakeClock();
    const limiter = await makeLimiter(clock, options);
    return { clock, limiter };
  }

  async function makeDrained(options?: Parameters<MakeLimiter>[1]) {
    const made = await make(options);
    return { ...made, ...(await drain(made.limiter)) };
  }

  /**
   * How long each of `count` single permits has to wait, by reservation, after `change` was done
   * to a drained limiter.
   */
  async function waits(count: number, action?: (limiter: Limiter) => unknown): Promise<number[]> {
    const { limiter } = await makeDrained();
    await action?.(limiter);
    const due: number[] = [];
    for (let i = 0; i < count; i++) due.push((await limiter.reserve()).waitMs);
    return due;
  }

  test("acquire resolves to how long it waited, exactly at the instant that peek shows", async () => {
    const { clock, limiter } = await make();
    assert.is(await limiter.acquire(), 0);
    await drain(limiter);
    const { waitMs } = await limiter.peek();
    assert.ok(waitMs > 0);
    const waited = watch(clock, limiter.acquire());
    await clock.advance(waitMs - MICRO);
    assert.is(waited.at, undefined);
    await clock.advance(MICRO);
    assert.equal(waited, { at: waitMs, value: waitMs, error: undefined });
  });

  test("waiters are released in order, at the instants that reservations show", async () => {
    const due = await waits(6);
    assert.ok(due.every((waitMs, i) => waitMs >= (due[i - 1] ?? 0)));
    const { clock, limiter } = await makeDrained();
    const order: number[] = [];
    const waiting = due.map((_, i) => {
      const promise = i % 2 === 0 ? limiter.acquire() : limiter.tryAcquire(1, FAR);
      return watch<unknown>(
        clock,
        Promise.resolve<unknown>(promise).finally(() => order.push(i)),
      );
    });
    await clock.advance(Math.max(...due));
    assert.equal(instants(waiting), due);
    assert.equal(order, [0, 1, 2, 3, 4, 5]);
  });

  test("tryAcquire never waits, and takes nothing when it refuses", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    for (let i = 0; i < 5; i++) assert.is(await limiter.tryAcquire(), false);
    await clock.advance(waitMs - MICRO);
    assert.is(await limiter.tryAcquire(), false);
    await clock.advance(MICRO);
    assert.is(await limiter.tryAcquire(), true);
  });

  test("tryAcquire with a time-out answers false at once where it is too short, else true in time", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    for (const wait of [-Infinity, -FAR, 0, waitMs - MICRO, { timeoutMs: waitMs - MICRO }]) {
      assert.is(await limiter.tryAcquire(1, wait), false);
    }
    const just = watch(clock, limiter.tryAcquire(1, waitMs));
    const patient = watch(clock, limiter.tryAcquire(1, { timeoutMs: FAR }));
    const endless = watch(clock, limiter.tryAcquire(1, {}));
    await clock.advance(waitMs - MICRO);
    assert.is(just.at, undefined);
    await clock.advance(MICRO);
    assert.equal(just, { at: waitMs, value: true, error: undefined });
    await clock.advance(FAR);
    assert.equal([patient.value, endless.value], [true, true]);
    assert.is(await limiter.tryAcquire(1, 0), true);
  });

  test("tryAcquire with options alone requests one permit", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    const { signal } = new AbortController();
    assert.is(await limiter.tryAcquire({ timeoutMs: waitMs - MICRO }), false);
    assert.is(await limiter.tryAcquire({ timeoutMs: -1, signal }), false);
    const just = watch(clock, limiter.tryAcquire({ timeoutMs: waitMs, signal }));
    const endless = watch(clock, limiter.tryAcquire({ signal }));
    await clock.advance(waitMs - MICRO);
    assert.is(just.at, undefined);
    await clock.advance(MICRO);
    assert.equal(just, { at: waitMs, value: true, error: undefined });
    await clock.advance(FAR);
    assert.is(endless.value, true);
    assert.is(await limiter.tryAcquire({ timeoutMs: 0 }), true);
    const reason = new Error("enough");
    const aborted = AbortSignal.abort(reason);
    assert.is(await failure(() => limiter.tryAcquire({ signal: aborted })), reason);
  });

  test("error messages show where misplaced options and a bare signal belong", async () => {
    const { limiter } = await make();
    const before = await limiter.peek();
    const { signal } = new AbortController();
    const wrong: readonly [RegExp, () => unknown][] = [
      [/options .*\{ signal \}.*AbortSignal/, () => limiter.acquire(1, signal as never)],
      [/wait .*\{.*signal \}.*AbortSignal/, () => limiter.tryAcquire(1, signal as never)],
      [
        /has no "signal": use acquire\(1, \{ signal \}\)/,
        () => limiter.acquire({ signal } as never),
      ],
      [
        /has no "timeoutMs": use tryAcquire\(1, \{ timeoutMs \}\)/,
        () => limiter.reserve({ timeoutMs: 5 }),
      ],
      [/timeoutMs/, () => limiter.tryAcquire({ timeoutMs: "5" } as never)],
      [/no "tokens"/, () => limiter.tryAcquire({ timeoutMs: 5, tokens: 1 } as never)],
      [/wait must be ms, a number, .* got "5"/, () => limiter.tryAcquire(1, "5" as never)],
    ];
    for (const [words, action] of wrong) {
      const error = await failure(action);
      assert.instance(error, TypeError);
      assert.match((error as TypeError).message, words);
    }
    assert.equal(await limiter.peek(), before);
  });

  test("reserve shows the wait, and ready() keeps it", async () => {
    const { clock, limiter } = await make();
    const first = await limiter.reserve();
    assert.equal([first.permits, first.waitMs, await first.ready()], [1, 0, 0]);
    const { waitMs } = await drain(limiter);
    const second = await limiter.reserve(1);
    assert.is(second.waitMs, waitMs);
    const ready = watch(clock, second.ready());
    await clock.advance(waitMs - MICRO);
    assert.is(ready.at, undefined);
    await clock.advance(MICRO);
    assert.equal(ready, { at: waitMs, value: waitMs, error: undefined });
    assert.is(await second.ready(), waitMs);
  });

  test("a cancelled reservation is over, and a due one cannot be cancelled", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    const kept = await limiter.reserve();
    const dropped = await limiter.reserve();
    const ready = watch(clock, dropped.ready());
    assert.is(await dropped.cancel(), true);
    assert.is(await dropped.cancel(), false);
    await clock.advance(0);
    assert.instance(ready.error, ReservationCancelledError);
    assert.instance(await failure(() => dropped.ready()), ReservationCancelledError);
    await clock.advance(waitMs);
    assert.is(await kept.cancel(), false);
    assert.is(await kept.ready(), waitMs);
  });

  test("undo cancels a reservation that waits, and settles a due one at 0", async () => {
    for (const isLate of [false, true]) {
      const [one, twin] = [await makeDrained(), await makeDrained()];
      const undone = await one.limiter.reserve();
      const other = await twin.limiter.reserve();
      if (isLate) for (const { clock, waitMs } of [one, twin]) await clock.advance(waitMs);
      await undone.undo();
      await undone.undo();
      await (isLate ? other.settle(0) : other.cancel());
      assert.equal(await one.limiter.peek(), await twin.limiter.peek(), `late: ${isLate}`);
    }
  });

  test("settle: more permits count as a charge, fewer as a refund", async () => {
    for (const actual of [0, 1, 3]) {
      const { limiter } = await make();
      const reservation = await limiter.reserve(1);
      await drain(limiter);
      await reservation.settle(actual);
      const twin = await make();
      await twin.limiter.reserve(1);
      await drain(twin.limiter);
      if (actual > 1) await twin.limiter.charge(actual - 1);
      if (actual < 1) await twin.limiter.refund(1 - actual);
      assert.equal(await limiter.peek(), await twin.limiter.peek(), `settled as ${actual}`);
    }
  });

  test("decide takes what it allows, and shows the wait of what it refuses", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    const refused = await limiter.decide();
    assert.equal([refused.allowed, refused.waitMs], [false, waitMs]);
    await clock.advance(waitMs - MICRO);
    assert.equal((await limiter.decide()).waitMs, MICRO);
    await clock.advance(MICRO);
    const allowed = await limiter.decide();
    assert.equal([allowed.allowed, allowed.waitMs], [true, 0]);
    assert.is((await drain(limiter)).taken, together - 1);
  });

  test("a decision is complete, and its numbers are those of the binding policy", async () => {
    const { limiter } = await make();
    const decisions: Decision[] = [await limiter.peek()];
    for (let decision = await limiter.decide(); ; decision = await limiter.decide()) {
      decisions.push(decision);
      if (!decision.allowed) break;
    }
    for (const decision of decisions) {
      const { limit, remaining, resetMs, policy, policies, waitMs, allowed } = decision;
      assert.equal(Object.keys(policies), names);
      const binding = policies[policy];
      const windowMs = binding?.windowMs ?? 0;
      assert.equal(binding, { allowed, limit, remaining, resetMs, windowMs });
      assert.is(allowed, waitMs === 0);
      assert.is(
        allowed,
        Object.values(policies).every((each) => each.allowed),
      );
      assert.ok(limit > 0 && remaining >= 0 && remaining <= limit && resetMs >= 0 && windowMs > 0);
    }
    assert.is(decisions.at(-1)?.remaining, 0);
  });

  test("peek shows decide's answer and takes nothing", async () => {
    const { limiter } = await make();
    const { taken } = await makeDrained();
    for (let i = 0; i < 3 * taken; i++) {
      assert.equal([(await limiter.peek()).allowed, (await limiter.peek()).waitMs], [true, 0]);
    }
    await drain(limiter);
    const refused = await limiter.peek();
    assert.equal(await limiter.decide(), refused);
    assert.equal(await limiter.peek(), refused);
  });

  test("charge takes permits in any state, as if they had been granted", async () => {
    const { taken, waitMs } = await makeDrained();
    const { clock, limiter } = await make();
    for (let i = 0; i < taken; i++) await limiter.charge(1);
    assert.equal(await drain(limiter), { taken: 0, waitMs });
    await limiter.charge(1);
    await clock.advance(waitMs - MICRO);
    assert.is(await limiter.tryAcquire(), false);
  });

  test("refund shortens the wait, and never exceeds the capacity", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    await limiter.refund(1);
    assert.ok((await limiter.peek()).waitMs < waitMs);
    await clock.advance(FAR);
    const { taken } = await drain(limiter);
    await clock.advance(FAR);
    await limiter.refund(1);
    await limiter.refund(1);
    assert.is((await drain(limiter)).taken, taken);
  });

  test("no caller is released before a pause ends, and a shorter pause does not end it", async () => {
    const { clock, limiter } = await make();
    await limiter.pause(1000);
    await limiter.pause(10);
    const { allowed, waitMs, remaining } = await limiter.peek();
    assert.equal([allowed, waitMs, remaining], [false, 1000, 0]);
    const waited = watch(clock, limiter.acquire());
    assert.is(await limiter.tryAcquire(), false);
    await clock.advance(999.999);
    assert.is(waited.at, undefined);
    assert.is((await limiter.decide()).allowed, false);
    await clock.advance(MICRO);
    assert.is(waited.value, 1000);
  });

  test("reset makes the limiter as new, with the policies in force, whatever was used, charged or paused", async () => {
    const { taken } = await makeDrained();
    const { clock, limiter } = await makeDrained();
    await limiter.charge(2);
    await limiter.pause(1000);
    await limiter.reset();
    const fresh = await make();
    assert.equal(await limiter.peek(), await fresh.limiter.peek());
    assert.is((await drain(limiter)).taken, taken);
    await clock.advance(FAR);
    await limiter.update(kind.slower);
    await drain(limiter);
    await limiter.reset();
    await fresh.limiter.reset();
    await fresh.limiter.update(kind.slower);
    const { limit, windowMs } = statusOf(await limiter.peek());
    const due = statusOf(await fresh.limiter.peek());
    assert.equal([limit, windowMs], [due.limit, due.windowMs]);
  });

  test("after a reset waiters are released as on a new limiter, in their order", async () => {
    const fresh = await make();
    const due: number[] = [];
    for (let i = 0; i < 6; i++) due.push((await fresh.limiter.reserve()).waitMs);
    const { clock, limiter } = await makeDrained();
    await limiter.charge(2);
    const order: number[] = [];
    const waiting = due.map((_, i) =>
      watch(
        clock,
        limiter.acquire().finally(() => order.push(i)),
      ),
    );
    await clock.advance(0);
    await limiter.reset();
    await clock.advance(FAR);
    assert.equal(instants(waiting), due);
    assert.equal(order, [0, 1, 2, 3, 4, 5]);
  });

  test("a reset ends a pause for callers that waited in it and for those that come later", async () => {
    const due = await waits(3);
    const { clock, limiter } = await makeDrained();
    await limiter.pause(FAR);
    const inPause = watch(clock, limiter.acquire());
    await clock.advance(0);
    await limiter.reset();
    await clock.advance(0);
    assert.is(inPause.value, 0);
    await drain(limiter);
    const reservation = await limiter.reserve();
    const later = [
      watch(clock, reservation.ready()),
      watch<unknown>(clock, limiter.acquire()),
      watch<unknown>(clock, Promise.resolve(limiter.tryAcquire(1, last(due)))),
    ];
    await clock.advance(last(due));
    assert.equal(instants(later), due);
    assert.is(later[2]?.value, true);
  });

  test("update applies new numbers without a fresh burst, and equal numbers change nothing", async () => {
    const before = await waits(12);
    assert.equal(await waits(12, (limiter) => limiter.update(kind.policies)), before);
    assert.ok(last(await waits(12, (limiter) => limiter.update(kind.faster))) < last(before));
    assert.ok(last(await waits(12, (limiter) => limiter.update(kind.slower))) > last(before));
    const { limiter } = await makeDrained();
    await limiter.update(kind.slower);
    assert.is(await limiter.tryAcquire(), false);
  });

  test("update refuses arguments that are not the same policies with other numbers", async () => {
    const { limiter } = await makeDrained();
    const before = await limiter.peek();
    const other = smoothBursty({ permitsPerSecond: 1 });
    const strange: Policies[] = [{ strange: other }, { ...namedBy(names, other), strange: other }];
    for (const policies of [...strange, {}, null, 5] as Policies[]) {
      const error = await failure(() => limiter.update(policies));
      assert.ok(error instanceof TypeError || error instanceof RangeError, String(error));
    }
    assert.equal(await limiter.peek(), before);
  });

  test("an aborted signal rejects with its own reason, before anything is taken", async () => {
    const reason = { why: "no longer needed" };
    const signal = AbortSignal.abort(reason);
    const { limiter } = await make();
    const before = await limiter.peek();
    assert.is(await failure(() => limiter.acquire(1, { signal })), reason);
    assert.is(await failure(() => limiter.tryAcquire(1, { signal })), reason);
    assert.is(await failure(() => limiter.tryAcquire(1, { signal, timeoutMs: 5 })), reason);
    assert.equal(await limiter.peek(), before);
    await drain(limiter);
    assert.is(await failure(() => limiter.acquire(1, { signal })), reason);
    const reservation = await limiter.reserve();
    assert.is(await failure(() => reservation.ready({ signal })), reason);
    assert.is(await reservation.cancel(), false);
  });

  test("a signal ends the wait at once, with its own reason", async () => {
    const { clock, limiter } = await makeDrained();
    const controller = new AbortController();
    const { signal } = controller;
    const reservation = await limiter.reserve();
    const waiting = [
      watch(clock, limiter.acquire(1, { signal })),
      watch(clock, limiter.tryAcquire(1, { signal })),
      watch(clock, reservation.ready({ signal })),
    ];
    await clock.advance(MICRO);
    const reason = new Error("enough");
    controller.abort(reason);
    await clock.advance(0);
    for (const { at, error } of waiting) assert.equal([at, error === reason], [MICRO, true]);
    assert.instance(await failure(() => reservation.ready()), ReservationCancelledError);
    await clock.advance(FAR);
    assert.is(await limiter.tryAcquire(), true);
  });

  test("maxWaiting bounds the permits that are waited for", async () => {
    const { clock, limiter } = await makeDrained({ maxWaiting: 2, name: "narrow" });
    const first = watch(clock, limiter.acquire());
    const second = await limiter.reserve();
    await clock.advance(0);
    for (const verb of [() => limiter.acquire(), () => limiter.reserve(1)]) {
      const error = await failure(verb);
      assert.instance(error, QueueFullError);
      const { code, facts, message } = error as QueueFullError;
      assert.is(code, "QUEUE_FULL");
      assert.equal(facts, { limiter: "narrow", permits: 1, waiting: 2, maxWaiting: 2 });
      assert.match(message, "narrow");
    }
    assert.is(await limiter.tryAcquire(1, FAR), false);
    for (const { allowed, waitMs } of [await limiter.peek(), await limiter.decide()]) {
      assert.equal([allowed, waitMs], [false, Infinity]);
    }
    assert.is(await second.cancel(), true);
    assert.ok((await limiter.peek()).waitMs < Infinity);
    assert.is(await limiter.tryAcquire(), false);
    const third = watch(clock, limiter.tryAcquire(1, FAR));
    await clock.advance(FAR);
    assert.equal([first.error, third.value], [undefined, true]);
  });

  test("bad arguments are refused before anything changes", async () => {
    const { limiter } = await make();
    const before = await limiter.peek();
    const strange: readonly unknown[] = [
      ...[0, -0, -1, Number.NaN, Infinity, -Infinity],
      ...[null, "1", true, 1n, [], {}, { unknown: 1 }, { [names[0] ?? ""]: 0 }],
    ];
    for (const bad of strange as readonly number[]) {
      const verbs: Record<string, () => unknown> = {
        acquire: () => limiter.acquire(bad),
        tryAcquire: () => limiter.tryAcquire(bad),
        "tryAcquire with a time-out": () => limiter.tryAcquire(bad, 10),
        reserve: () => limiter.reserve(bad),
        decide: () => limiter.decide(bad),
        peek: () => limiter.peek(bad),
        charge: () => limiter.charge(bad),
        refund: () => limiter.refund(bad),
      };
      for (const [verb, action] of Object.entries(verbs)) {
        const error = await failure(action);
        const good = error instanceof RangeError || error instanceof TypeError;
        assert.ok(good && /permits/.test(error.message), `${verb}(${String(bad)}): ${error}`);
      }
    }
    const others: [RegExp, (bad: never) => unknown, readonly unknown[]][] = [
      [/\bms\b/, (bad) => limiter.pause(bad), [-1, Number.NaN, Infinity, "1", null]],
      [/timeoutMs|wait/, (bad) => limiter.tryAcquire(1, bad), [Number.NaN, "1", null, [], true]],
      [
        /timeoutMs|wait/,
        (bad) => limiter.tryAcquire(1, bad),
        [{ timeoutMs: null }, { timeout: 1 }],
      ],
      [/signal/, (bad) => limiter.tryAcquire(1, bad), [{ signal: {} }, { signal: null }]],
      [
        /options|signal/,
        (bad) => limiter.acquire(1, bad),
        [null, 5, { signal: 1 }, { timeout: 1 }],
      ],
    ];
    for (const [words, action, bads] of others) {
      for (const bad of bads) {
        const error = await failure(() => action(bad as never));
        const good = error instanceof RangeError || error instanceof TypeError;
        assert.ok(good && words.test(error.message), `${String(bad)}: ${error}`);
      }
    }
    assert.equal(await limiter.peek(), before);
    const reservation = await limiter.reserve();
    const after = await limiter.peek();
    for (const bad of [-1, Number.NaN, Infinity, null, { unknown: 1 }] as number[]) {
      assert.match(String(await failure(() => reservation.settle(bad))), "permits");
      assert.match(String(await failure(() => reservation.ready(bad as never))), "options");
    }
    assert.equal(await limiter.peek(), after);
  });

  test("permits by name are the same as a number where every policy is named", async () => {
    const one = namedBy(names, 1);
    const { clock, limiter, taken, waitMs } = await makeDrained();
    assert.equal(await limiter.peek(one), await limiter.peek());
    const twin = await make();
    for (let i = 0; i < taken; i++) assert.is(await twin.limiter.tryAcquire(one), true);
    assert.is(await twin.limiter.tryAcquire(one), false);
    assert.is(await limiter.tryAcquire(one, waitMs - MICRO), false);
    const waited = watch(clock, limiter.acquire(one));
    const reservation = await limiter.reserve(one);
    assert.is(reservation.permits, one);
    await reservation.settle(one);
    await clock.advance(waitMs);
    assert.is(waited.at, waitMs);
    await limiter.charge(one);
    await limiter.refund(one);
    // the waiter and the reservation have taken one each
    for (let i = 2; i < together; i++) assert.is(await limiter.tryAcquire(one), true);
    assert.is((await limiter.decide(one)).allowed, false);
  });

  test.run();
}

function statusOf({ policies, policy }: Decision): PolicyStatus {
  return policies[policy] as PolicyStatus;
}

function namedBy<T>(names: readonly string[], value: T): Record<string, T> {
  return Object.fromEntries(names.map((name) => [name, value]));
}

/**
 * What only a local limiter can do: answer at once, and re-time every waiter to the microsecond.
 */
export function localLimiterSuite(
  name: string,
  makeLimiter: (clock: FakeClock, options?: LimiterOptions) => LocalLimiter,
  kind: Kind,
): void {
  const test = suite(`local limiter, ${name}`);

  async function makeDrained() {
    const clock = new FakeClock();
    const limiter = makeLimiter(clock);
    const { waitMs } = await drain(limiter);
    return { clock, limiter, waitMs };
  }

  /**
   * When each of `count` waiters is released, where `change` is done to the limiter right after
   * they called.
   */
  async function releases(count: number, action?: (limiter: LocalLimiter) => void) {
    const { clock, limiter } = await makeDrained();
    const waiting = Array.from({ length: count }, () => watch(clock, limiter.acquire()));
    action?.(limiter);
    await clock.advance(FAR);
    return instants(waiting) as number[];
  }

  test("the quick verbs answer synchronously", () => {
    const limiter = makeLimiter(new FakeClock());
    const reservation = limiter.reserve();
    assert.is(limiter.peek().waitMs >= 0, true);
    assert.type(limiter.decide().allowed, "boolean");
    assert.type(limiter.tryAcquire(), "boolean");
    assert.is(reservation.waitMs, 0);
    assert.is(reservation.cancel(), false);
    const done = [
      reservation.settle(1),
      limiter.charge(1),
      limiter.refund(1),
      limiter.update(kind.policies),
      limiter.pause(1),
      limiter.reset(),
    ];
    assert.ok(done.every((answer) => answer === undefined));
  });

  test("refusals and peeks change nothing", async () => {
    const [plain, looked] = [await makeDrained(), await makeDrained()];
    const look = () => {
      const { limiter } = looked;
      const { waitMs } = limiter.peek();
      assert.is(limiter.decide().waitMs, waitMs);
      assert.is(limiter.tryAcquire(), false);
      assert.not.throws(() => void limiter.tryAcquire(1, waitMs - MICRO).then(assert.not));
    };
    const due: number[][] = [];
    for (const { clock, limiter, waitMs } of [plain, looked]) {
      const mine: number[] = [];
      for (let step = 0; step < 8; step++) {
        await clock.advance(waitMs / 5);
        if (limiter === looked.limiter && limiter.peek().waitMs > 0) look();
        mine.push(limiter.reserve().waitMs);
      }
      due.push(mine);
    }
    assert.equal(due[0], due[1]);
  });

  test("a cancelled waiter leaves no gap, at any place and by any way of cancelling", async () => {
    const due = await releases(5);
    for (const gone of [0, 2, 5]) {
      for (const how of ["signal", "reservation", "awaited reservation"]) {
        const { clock, limiter, waitMs } = await makeDrained();
        const waiting: ReturnType<typeof watch<number>>[] = [];
        const controller = new AbortController();
        let leave = () => controller.abort();
        for (let i = 0; i < 6; i++) {
          if (i !== gone) waiting.push(watch(clock, limiter.acquire()));
          else if (how === "signal") {
            watch(clock, limiter.acquire(1, { signal: controller.signal }));
          } else {
            const reservation = limiter.reserve();
            if (how === "awaited reservation") watch(clock, reservation.ready());
            leave = () => assert.is(reservation.cancel(), true);
          }
        }
        await clock.advance(waitMs / 2);
        leave();
        await clock.advance(FAR);
        assert.equal(instants(waiting), due, `${how}, place ${gone}`);
      }
    }
  });

  test("a reservation that is cancelled at once leaves no trace", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    await clock.advance(waitMs / 3);
    const before = limiter.peek();
    for (let i = 0; i < 3; i++) limiter.reserve().cancel();
    assert.equal(limiter.peek(), before);
  });

  test("update, charge, refund and pause re-time every waiter", async () => {
    const due = await releases(12);
    const { together = 1 } = kind;
    assert.ok(last(await releases(12, (limiter) => limiter.update(kind.faster))) < last(due));
    assert.ok(last(await releases(12, (limiter) => limiter.update(kind.slower))) > last(due));
    assert.ok(last(await releases(12, (limiter) => limiter.charge(1))) > last(due));
    assert.ok(last(await releases(12, (limiter) => limiter.refund(together))) < last(due));
    const pausedUntil = last(due) * 2;
    const paused = await releases(12, (limiter) => limiter.pause(pausedUntil));
    assert.ok(paused.every((at) => at >= pausedUntil));
  });

  test("a time-out that can no longer be met answers false at once", async () => {
    const due = await releases(6);
    const actions: ((limiter: LocalLimiter) => void)[] = [
      (limiter) => limiter.update(kind.slower),
      (limiter) => limiter.charge(1),
      (limiter) => limiter.pause(last(due) + MICRO),
    ];
    for (const action of actions) {
      const { clock, limiter } = await makeDrained();
      for (let i = 0; i < 5; i++) watch(clock, limiter.acquire());
      const timed = watch(clock, limiter.tryAcquire(1, last(due)));
      await clock.advance(0);
      assert.is(timed.at, undefined);
      action(limiter);
      await clock.advance(0);
      assert.equal(timed, { at: 0, value: false, error: undefined });
    }
  });

  test("no caller overtakes the waiters", async () => {
    const { clock, limiter, waitMs } = await makeDrained();
    const first = watch(clock, limiter.acquire());
    limiter.refund(1);
    limiter.pause(waitMs * 3);
    const second = watch(clock, limiter.acquire());
    await clock.advance(waitMs * 2);
    assert.is(limiter.tryAcquire(), false);
    assert.is(limiter.decide().remaining, 0);
    await clock.advance(FAR);
    assert.ok((first.at ?? FAR) <= (second.at ?? -FAR));
  });

  test.run();
}
