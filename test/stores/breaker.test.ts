import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { Breaker, type BreakerListener } from "../../src/stores/breaker.ts";
import { suite } from "../suite.ts";

const patrol = suite("breakers of limiters whose callers wait");
let timers: FakeTimers.Clock;

patrol.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

patrol.after.each(() => {
  timers.uninstall();
});

const gone = new Error("gone");

/** A limiter that somebody waits for; its store answers as the test says. */
class Waiting implements BreakerListener {
  readonly timeoutMs = 300;
  readonly breaker: Breaker;
  isAwaited = true;
  probes = 0;
  isBack = false;
  answer: () => Promise<unknown> = () => Promise.reject(gone);

  constructor(breaker: Breaker) {
    this.breaker = breaker;
    breaker.join(this, gone);
  }

  probe(): Promise<unknown> {
    this.probes += 1;
    return this.answer();
  }

  isPermanent(): boolean {
    return false;
  }

  get isIdle(): boolean {
    return !this.isAwaited;
  }

  forgotten(): void {}

  found(): void {
    this.isBack = true;
  }
}

function many(count: number) {
  const client = new Breaker();
  const all = Array.from({ length: count }, () => new Waiting(client.forWaiting()));
  const probes = () => all.reduce((sum, each) => sum + each.probes, 0);
  return { all, probes };
}

patrol("one of them looks at a time, in turns, after pauses that grow", async () => {
  const { all, probes } = many(100);
  await timers.tickAsync(10_000);
  assert.ok(probes() > 10 && probes() < 30, `${probes()} probes in 10 s`);
  assert.ok(Math.max(...all.map((each) => each.probes)) === 1, "each in its turn");
});

patrol("nobody is held up by one that never gets an answer, or only errors", async () => {
  const { all, probes } = many(3);
  const [silent, , last] = all as [Waiting, Waiting, Waiting];
  silent.answer = () => new Promise(() => {});
  last.answer = () => Promise.resolve();
  await timers.tickAsync(1000);
  assert.equal([last.isBack, silent.isBack], [true, false]);
  assert.ok(probes() < 20, `${probes()} probes`);
});

patrol("when one has found it all look at once, and each finds it by itself", async () => {
  const { all, probes } = many(100);
  await timers.tickAsync(5000);
  for (const each of all) each.answer = () => Promise.resolve();
  const before = probes();
  all[50]?.breaker.close();
  await timers.tickAsync(0);
  assert.ok(all.every(({ isBack }) => isBack));
  await timers.tickAsync(60_000);
  assert.is(probes() - before, 99);
});

patrol(
  "it is the next one's turn where nobody waits any more, or a limiter is closed",
  async () => {
    const { all, probes } = many(4);
    const [closed, given, late, last] = all as [Waiting, Waiting, Waiting, Waiting];
    closed.breaker.leave(closed);
    given.isAwaited = false;
    await timers.tickAsync(5000);
    assert.equal([closed.probes, given.probes], [0, 0]);
    assert.ok(Math.abs(late.probes - last.probes) <= 1 && last.probes > 1);
    for (const each of [late, last]) each.isAwaited = false;
    await timers.tickAsync(1000);
    const before = probes();
    await timers.tickAsync(60_000);
    assert.is(probes(), before);
    given.isAwaited = true;
    given.answer = () => Promise.resolve();
    given.breaker.awaited();
    await timers.tickAsync(1000);
    await timers.tickAsync(60_000);
    assert.equal([given.isBack, late.isBack, probes()], [true, false, before + 1]);
  },
);

patrol.run();
