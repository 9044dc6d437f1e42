/**
 * The errors that are not about bad arguments: a code, facts, and the same numbers in the message.
 */
import {
  Limiter,
  LimiterError,
  type LocalLimiter,
  PermitsExceedCapacityError,
  type Policy,
  QueueFullError,
  RateLimiter,
  ReservationCancelledError,
  smoothBursty,
} from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { type SmoothPolicy, type SmoothState, smooth } from "../../src/algorithms/smooth/smooth.ts";
import { StoreUnavailableError } from "../../src/ground/errors.ts";
import { suite } from "../support/suite.ts";

const shapes = suite("errors: their shape");

const lost = new Error("connection lost");

const errors: Record<
  string,
  readonly [LimiterError, code: string, message: string, facts: object]
> = {
  PermitsExceedCapacityError: [
    new PermitsExceedCapacityError("tokens", 12, 10),
    "PERMITS_EXCEED_CAPACITY",
    '12 permits can never pass policy "tokens", which holds 10 at most',
    { policy: "tokens", permits: 12, capacity: 10 },
  ],
  QueueFullError: [
    new QueueFullError("mail", 3, 8, 10),
    "QUEUE_FULL",
    'limiter "mail": the queue is full: 3 asked for, 8 waiting, maxWaiting is 10',
    { limiter: "mail", permits: 3, waiting: 8, maxWaiting: 10 },
  ],
  ReservationCancelledError: [
    new ReservationCancelledError(200),
    "RESERVATION_CANCELLED",
    "the reservation (wait 200 ms) was cancelled",
    { waitMs: 200 },
  ],
  StoreUnavailableError: [
    new StoreUnavailableError("mail", 250, lost),
    "STORE_UNAVAILABLE",
    'limiter "mail": the store is unavailable: connection lost',
    { limiter: "mail", timeoutMs: 250 },
  ],
};

for (const [name, [error, code, message, facts]] of Object.entries(errors)) {
  shapes(name, () => {
    assert.instance(error, LimiterError);
    assert.instance(error, Error);
    assert.is(error.name, name);
    assert.is(error.code, code);
    assert.is(error.message, message);
    assert.equal(error.facts, facts);
    assert.ok(Object.isFrozen(error.facts));
    assert.match(String(error.stack), "errors.test.ts");
    assert.is(String(error), `${name}: ${message}`);
  });
}

shapes("a dropped QueueFullError says so, in its message and its facts", () => {
  const { message, facts } = new QueueFullError("mail", 1, 8, 8, true);
  assert.is(
    message,
    'limiter "mail": dropped to make room for a later request: 1 asked for, 8 waiting, maxWaiting is 8',
  );
  assert.is(facts.dropped, true);
});

shapes("the store's own error is the cause", () => {
  assert.is(new StoreUnavailableError("mail", 250, lost).cause, lost);
  const strange = new StoreUnavailableError("mail", 250, "closed");
  assert.is(strange.cause, "closed");
  assert.match(strange.message, /unavailable: closed$/);
});

shapes("an error class of the application", () => {
  class TooLateError extends LimiterError<{ readonly byMs: number }> {}
  const error = new TooLateError("TOO_LATE", "too late", { byMs: 5 }, { cause: "traffic" });
  assert.is(error.name, "TooLateError");
  assert.is(error.facts.byMs, 5);
  assert.is(error.cause, "traffic");
});

shapes.run();

/** The error that `action` throws or rejects with. */
async function failure(action: () => unknown): Promise<unknown> {
  try {
    await action();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

/** A bursty limiter that never lends more than this many permits at once. */
function bounded(capacity: number): Policy {
  const policy: SmoothPolicy = smoothBursty({ permitsPerSecond: 5, prefilled: true });
  const algorithm: typeof smooth = {
    ...smooth,
    earliest: (own: SmoothPolicy, state: SmoothState, from: number, permits: number) =>
      permits > capacity ? Infinity : smooth.earliest(own, state, from, permits),
  };
  return { ...policy, algorithm: algorithm as Policy["algorithm"] };
}

const capacity = suite("errors: more permits than can ever be granted");

const verbs: Record<string, (limiter: LocalLimiter, permits: number) => unknown> = {
  acquire: (limiter, permits) => limiter.acquire(permits),
  tryAcquire: (limiter, permits) => limiter.tryAcquire(permits),
  "tryAcquire with a time-out": (limiter, permits) => limiter.tryAcquire(permits, 1e9),
  reserve: (limiter, permits) => limiter.reserve(permits),
  decide: (limiter, permits) => limiter.decide(permits),
  peek: (limiter, permits) => limiter.peek(permits),
  charge: (limiter, permits) => limiter.charge(permits),
  refund: (limiter, permits) => limiter.refund(permits),
};

for (const [verb, call] of Object.entries(verbs)) {
  capacity(`${verb}, with all permits free, with none, and behind waiters`, async () => {
    const clock = new FakeClock();
    const limiter = Limiter.create(bounded(6), { clock });
    for (const prepare of [() => {}, () => limiter.tryAcquire(6), () => void limiter.acquire()]) {
      prepare();
      const before = limiter.peek();
      const error = await failure(() => call(limiter, 7));
      assert.instance(error, PermitsExceedCapacityError);
      assert.equal((error as PermitsExceedCapacityError).facts, {
        policy: "default",
        permits: 7,
        capacity: 6,
      });
      assert.equal(limiter.peek(), before, "nothing has changed");
    }
    await clock.advance(10_000);
  });

  capacity(`${verb}, of one policy among two`, async () => {
    const wide = smoothBursty({ permitsPerSecond: 5 });
    const limiter = Limiter.create({ wide, narrow: bounded(6) }, { clock: new FakeClock() });
    const before = limiter.peek();
    const error = await failure(() => call(limiter, 7));
    assert.instance(error, PermitsExceedCapacityError);
    assert.is((error as PermitsExceedCapacityError).facts.policy, "narrow");
    assert.equal(limiter.peek(), before, "nothing has changed");
    assert.is(limiter.tryAcquire({ wide: 7, narrow: 6 }), true);
  });
}

capacity("a smooth limiter lends, and has no such bound", () => {
  const limiter = RateLimiter.create(1, { clock: new FakeClock() });
  assert.is(limiter.tryAcquire(1e12), true);
});

capacity.run();

const full = suite("errors: a full queue");

full("acquire and reserve that would have to wait are errors, tryAcquire is not", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1, { clock, maxWaiting: 5, name: "mail" });
  assert.is(limiter.tryAcquire(), true);
  const waiting = [limiter.acquire(2), limiter.acquire(2)];
  const before = limiter.peek();
  for (const verb of [() => limiter.acquire(2), () => limiter.reserve(2)]) {
    const error = await failure(verb);
    assert.instance(error, QueueFullError);
    const facts = { limiter: "mail", permits: 2, waiting: 4, maxWaiting: 5 };
    assert.equal((error as QueueFullError).facts, facts);
  }
  assert.is(await limiter.tryAcquire(2, 1e9), false);
  assert.is(limiter.tryAcquire(2), false);
  assert.equal(limiter.peek(), before, "nothing has changed");
  // there is room for one more
  waiting.push(limiter.acquire(1));
  await clock.advance(10_000);
  await Promise.all(waiting);
});

full("maxWaiting 0: a caller that need not wait is granted", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1, { clock, maxWaiting: 0 });
  assert.is(await limiter.acquire(3), 0);
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  assert.instance(await failure(() => limiter.reserve()), QueueFullError);
  await clock.advance(3000);
  assert.is(limiter.reserve().waitMs, 0);
});

full("of several policies the largest number counts", async () => {
  const policies = {
    requests: smoothBursty({ permitsPerSecond: 1 }),
    tokens: smoothBursty({ permitsPerSecond: 100 }),
  };
  const limiter = Limiter.create(policies, { clock: new FakeClock(), maxWaiting: 100 });
  limiter.charge({ requests: 1, tokens: 1 });
  void limiter.acquire({ requests: 1, tokens: 60 });
  const error = await failure(() => limiter.acquire({ requests: 2, tokens: 41 }));
  assert.equal((error as QueueFullError).facts, {
    limiter: "limiter",
    permits: 41,
    waiting: 60,
    maxWaiting: 100,
  });
});

full.run();

const gone = suite("errors: cancelled waits");

gone("ready() of a cancelled reservation rejects, before and after the cancel", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(5, { clock });
  limiter.tryAcquire();
  const reservation = limiter.reserve();
  const ready = failure(() => reservation.ready());
  assert.is(reservation.cancel(), true);
  for (const error of [await ready, await failure(() => reservation.ready())]) {
    assert.instance(error, ReservationCancelledError);
    assert.equal((error as ReservationCancelledError).facts, { waitMs: 200 });
  }
});

for (const reason of [new Error("enough"), "enough", undefined, null, 0, { code: 5 }]) {
  gone(`an abort rejects with the signal's own reason: ${JSON.stringify(reason)}`, async () => {
    const limiter = RateLimiter.create(1, { clock: new FakeClock() });
    limiter.tryAcquire();
    const before = limiter.peek();
    const aborted = AbortSignal.abort(reason);
    const later = new AbortController();
    const reservation = limiter.reserve();
    const verbs = [
      (signal: AbortSignal) => limiter.acquire(1, { signal }),
      (signal: AbortSignal) => limiter.tryAcquire(1, { signal }),
      (signal: AbortSignal) => reservation.ready({ signal }),
    ];
    const failures = verbs.map((verb) => failure(() => verb(later.signal)));
    later.abort(reason);
    // without a reason a signal creates one
    for (const failed of failures) assert.is(await failed, later.signal.reason);
    for (const verb of verbs.slice(0, 2)) {
      assert.is(await failure(() => verb(aborted)), aborted.reason);
    }
    assert.equal(limiter.peek(), before, "no trace of them is left");
  });
}

gone.run();
