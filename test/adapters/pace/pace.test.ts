import * as assert from "uvu/assert";
import { type PaceOptions, pace } from "../../../src/adapters/pace/index.ts";
import {
  ConcurrencyLimiter,
  Limiter,
  PermitsExceedCapacityError,
  RateLimiter,
  tokenBucket,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, watch } from "../../support/limiter/watch.ts";
import { later } from "../../support/p-queue/later.ts";
import { suite } from "../../support/suite.ts";

const test = suite("pace");

function steady() {
  const clock = new FakeClock();
  return { clock, limiter: RateLimiter.create(10, { clock, burstSeconds: 0 }) };
}

test("calls start at the limiter's pace, in the order in which they were made", async () => {
  const { clock, limiter } = steady();
  for (const face of [limiter, later(limiter).limiter]) {
    const begin = clock.now();
    const starts: string[] = [];
    const paced = pace(async (name: string) => {
      starts.push(`${name} ${clock.now() - begin}`);
      return name.toUpperCase();
    }, face);
    const results = ["a", "b", "c"].map((name) => watch(clock, paced(name)));
    await clock.advance(1000);
    assert.equal(starts, ["a 0", "b 100", "c 200"]);
    assert.equal(
      results.map(({ value }) => value),
      ["A", "B", "C"],
    );
  }
});

test("paced() keeps the function's this, arguments, name and length", async () => {
  const { limiter } = steady();
  const counter = {
    count: 5,
    add: pace(function add(this: { count: number }, a: number, b: number) {
      return this.count + a + b;
    }, limiter),
  };
  assert.is(await counter.add(1, 2), 8);
  assert.equal([counter.add.name, counter.add.length], ["add", 2]);
});

test("permits: a number, one for each policy, or a function of the arguments", async () => {
  const { clock, limiter } = steady();
  const starts: number[] = [];
  const note = async (_bytes: number) => starts.push(clock.now());
  const calls = [
    pace(note, limiter, { permits: 3 }),
    pace(note, limiter, { permits: (bytes) => bytes / 100 }),
    pace(note, limiter, { permits: { default: 2 } }),
    pace(note, limiter),
  ].map((call) => call(500));
  await clock.advance(2000);
  await Promise.all(calls);
  assert.equal(starts, [0, 300, 800, 1000]);
});

test("a signal ends the waits of all calls, or of one; running calls are not interrupted", async () => {
  const { clock, limiter } = steady();
  const controller = new AbortController();
  const { signal } = controller;
  let called = 0;
  const call = async (_signal?: AbortSignal) => void called++;
  const all = pace(call, limiter, { signal });
  const own = pace(call, limiter, { signal: (its?: AbortSignal) => its });
  const first = watch(clock, all());
  const waits = [all(), own(signal), own()].map((promise) => watch(clock, promise));
  await clock.advance(50);
  controller.abort("enough");
  await clock.advance(50);
  assert.equal([first.at, first.error], [0, undefined]);
  assert.equal(
    waits.map(({ at, error }) => [at, error]),
    [
      [50, "enough"],
      [50, "enough"],
      [100, undefined],
    ],
  );
  assert.is(called, 2);
});

test("errors of the function, the limiter and the options reject the call", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(tokenBucket({ capacity: 2, refill: 1, everyMs: 1 }), { clock });
  const wrong = new Error("no");
  const throws = () => {
    throw wrong;
  };
  assert.is(await failure(pace(throws, limiter)), wrong);
  assert.is(await failure(pace(() => Promise.reject(wrong), limiter)), wrong);
  let called = false;
  const call = () => {
    called = true;
  };
  const large = pace(call, limiter, { permits: 3 });
  assert.instance(await failure(large), PermitsExceedCapacityError);
  assert.is(await failure(pace(call, limiter, { permits: throws })), wrong);
  assert.match(`${await failure(pace(call, limiter, { permits: () => 0 }))}`, "permits must be");
  assert.is(called, false);
});

test("a call that need not wait starts before paced() returns, and not before an earlier call", async () => {
  const { clock, limiter } = steady();
  const starts: string[] = [];
  const paced = pace((name: string) => starts.push(name), limiter);
  void paced("a");
  assert.equal(starts, ["a"]);
  void paced("b");
  // b was granted, and its call has not started yet
  clock.wakeAt(200, () => {
    limiter.refund(1);
    void paced("c");
  });
  await clock.advance(500);
  assert.equal(starts, ["a", "b", "c"]);
  const native = Promise.resolve(5);
  assert.is(pace(() => native, RateLimiter.create(1))() === native, true, "no promise around it");
});

test("waiting counts calls that wait, however their wait ends", async () => {
  const { clock, limiter } = steady();
  const controller = new AbortController();
  const paced = pace((_signal?: AbortSignal) => 1, limiter, {
    signal: (own?: AbortSignal) => own,
  });
  const calls = [paced(), paced(), paced(controller.signal)].map((call) => watch(clock, call));
  assert.is(paced.waiting, 2);
  controller.abort("no");
  await clock.advance(0);
  assert.equal([paced.waiting, calls[2]?.error], [1, "no"]);
  await clock.advance(100);
  assert.equal([paced.waiting, calls[1]?.value], [0, 1]);
  await clock.advance(1000);
  assert.is(await paced(controller.signal.aborted ? undefined : controller.signal), 1);
  assert.is(await failure(() => paced(controller.signal)), "no");
  await clock.advance(1000);
  assert.is(await paced(new AbortController().signal), 1);
  assert.is(paced.waiting, 0);
});

test("onDelay is called with the arguments of a call that has to wait, before it waits", async () => {
  const { clock, limiter } = steady();
  const delayed: string[] = [];
  const onDelay = (name: string) => delayed.push(`${name} ${clock.now()}`);
  const paced = pace((_name: string) => {}, limiter, { onDelay });
  void paced("a");
  void paced("b");
  assert.equal(delayed, ["b 0"]);
  await clock.advance(100);
  assert.equal(delayed, ["b 0"]);
});

test("an error in onDelay becomes an uncaught exception; the call continues", async () => {
  const { clock, limiter } = steady();
  const caught: unknown[] = [];
  const wrong = new Error("wrong");
  const paced = pace(() => "ran", limiter, {
    onDelay: () => {
      throw wrong;
    },
  });
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => caught.push(error));
  void paced();
  const call = watch(clock, paced());
  await clock.advance(100);
  process.removeAllListeners("uncaughtException");
  for (const listener of listeners) process.on("uncaughtException", listener);
  assert.equal([call.value, caught], ["ran", [wrong]]);
});

test("enabled: false: later calls start at once and take no permits, calls that wait keep waiting", async () => {
  const { clock, limiter } = steady();
  const paced = pace((name: string) => `${name} ${clock.now()}`, limiter);
  const calls = ["a", "b"].map((name) => watch(clock, paced(name)));
  paced.enabled = false;
  assert.is(paced.enabled, false);
  assert.is(await paced("free"), "free 0");
  paced.enabled = true;
  calls.push(watch(clock, paced("c")));
  await clock.advance(1000);
  assert.equal(
    calls.map(({ value }) => value),
    ["a 0", "b 100", "c 200"],
  );
  assert.throws(() => {
    paced.enabled = 1 as never;
  }, /enabled must be true or false, got 1/);
});

test("clear rejects waiting calls, also those with a signal of their own; later calls are paced", async () => {
  const { clock, limiter } = steady();
  const other = new AbortController();
  const paced = pace((_signal?: AbortSignal) => clock.now(), limiter, {
    signal: (own?: AbortSignal) => own,
  });
  const calls = [paced(), paced(), paced(other.signal)].map((call) => watch(clock, call));
  paced.clear("enough");
  const later = watch(clock, paced());
  await clock.advance(1000);
  assert.equal(
    calls.map(({ value, error }) => value ?? error),
    [0, "enough", "enough"],
  );
  assert.is(later.value, 100);
  void paced();
  const last = watch(clock, paced());
  paced.clear();
  await clock.advance(0);
  assert.is((last.error as DOMException).name, "AbortError");
});

test("an aborted signal ends later calls too; with onAbort clear only the waiting ones", async () => {
  for (const onAbort of [undefined, "end", "clear"] as const) {
    const { clock, limiter } = steady();
    const controller = new AbortController();
    const { signal } = controller;
    const paced = pace(() => clock.now(), limiter, { signal, onAbort });
    void paced();
    const waits = watch(clock, paced());
    controller.abort("stop");
    const later = [paced(), paced()].map((call) => watch(clock, call));
    await clock.advance(1000);
    assert.is(waits.error, "stop");
    const ended = onAbort !== "clear";
    assert.equal(
      later.map(({ value, error }) => value ?? error),
      ended ? ["stop", "stop"] : [100, 200],
    );
  }
});

test("a signal has a listener only while a call waits", async () => {
  const { clock, limiter } = steady();
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners += 1;
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners -= 1;
    removeEventListener.apply(signal, args);
  };
  const paced = pace(() => {}, limiter, { signal });
  void paced();
  assert.is(listeners, 0);
  const calls = [paced(), paced()];
  assert.is(listeners, 1);
  await clock.advance(1000);
  await Promise.all(calls);
  assert.is(listeners, 0);
});

test("error messages name bad arguments", () => {
  const { limiter } = steady();
  const fn = () => {};
  for (const [args, words] of [
    [[5, limiter], /fn must be a function, got 5/],
    [[fn, undefined], /limiter must be a rate limiter, got undefined/],
    [[fn, null], /limiter must be a rate limiter, got null/],
    [[fn, ConcurrencyLimiter.create(2)], /limiter must be a rate limiter, got an object/],
    [[fn, limiter, 5], /options/],
    [[fn, limiter, { permit: 1 }], /permit/],
    [[fn, limiter, { permits: 0 }], /permits must be/],
    [[fn, limiter, { permits: {} }], /permits must name a policy$/],
    [[fn, limiter, { permits: null }], /permits must be/],
    [[fn, limiter, { signal: 5 }], /signal must be/],
    [[fn, limiter, { onAbort: "stop" }], /onAbort must be one of end, clear, got "stop"/],
    [[fn, limiter, { onAbort: "clear" }], /onAbort "clear" needs a signal/],
    [[fn, limiter, { onDelay: 5 }], /onDelay must be a function/],
  ] as [[() => void, RateLimiter, PaceOptions?], RegExp][]) {
    assert.throws(() => pace(...args), words);
  }
});

test.run();
