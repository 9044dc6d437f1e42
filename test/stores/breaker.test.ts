import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { Breaker, type BreakerListener } from "../../src/stores/breaker.ts";
import { suite } from "../support/suite.ts";

const breakers = suite("breakers");
let timers: FakeTimers.Clock;

breakers.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

breakers.after.each(() => {
  timers.uninstall();
});

const gone = new Error("gone");

/** A limiter whose store is unavailable; its callers wait unless the test says otherwise. */
class Listener implements BreakerListener {
  readonly timeoutMs = 300;
  isAwaited = true;
  probes = 0;
  isBack = false;
  isForgotten = false;
  answer: () => Promise<unknown> = () => Promise.reject(gone);

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

  forgotten(): void {
    this.isForgotten = true;
  }

  found(): void {
    this.isBack = true;
  }
}

function many(count: number, breaker = new Breaker().forWaiting(), isAwaited = true) {
  const all = Array.from({ length: count }, () => {
    const listener = new Listener();
    listener.isAwaited = isAwaited;
    breaker.join(listener, gone);
    return listener;
  });
  const probes = () => all.reduce((sum, each) => sum + each.probes, 0);
  return { breaker, all, probes };
}

breakers("limiters probe one at a time, in turn, after growing pauses", async () => {
  const { all, probes } = many(100);
  await timers.tickAsync(10_000);
  assert.ok(probes() > 10 && probes() < 30, `${probes()} probes in 10 s`);
  assert.is(Math.max(...all.map((each) => each.probes)), 1);
});

breakers(
  "a limiter whose probes get no reply, or only errors, delays no other limiter",
  async () => {
    const { all, probes } = many(3);
    const [silent, , last] = all as [Listener, Listener, Listener];
    silent.answer = () => new Promise(() => {});
    last.answer = () => Promise.resolve();
    await timers.tickAsync(1000);
    assert.ok(all.every(({ isBack }) => isBack));
    assert.ok(probes() <= 3, `${probes()} probes`);
  },
);

breakers("one reply ends the outage for all: no limiter probes any more", async () => {
  const { all, breaker, probes } = many(100);
  await timers.tickAsync(5000);
  const before = probes();
  breaker.close();
  await timers.tickAsync(60_000);
  assert.ok(all.every(({ isBack }) => isBack));
  assert.is(probes(), before);
});

breakers("limiters without waiters, and closed ones, do not probe", async () => {
  const { all, breaker, probes } = many(4);
  const [closed, idle, third, fourth] = all as [Listener, Listener, Listener, Listener];
  breaker.leave(closed);
  idle.isAwaited = false;
  await timers.tickAsync(5000);
  assert.equal([closed.probes, idle.probes], [0, 0]);
  assert.ok(Math.abs(third.probes - fourth.probes) <= 1 && fourth.probes > 1);
  for (const each of [third, fourth]) each.isAwaited = false;
  await timers.tickAsync(1000);
  const before = probes();
  await timers.tickAsync(60_000);
  assert.is(probes(), before);
});

breakers("after an idle time the first waiting caller causes a probe at once", async () => {
  const { all, breaker, probes } = many(1);
  const [only] = all as [Listener];
  await timers.tickAsync(5000);
  only.isAwaited = false;
  await timers.tickAsync(60_000);
  const before = probes();
  only.isAwaited = true;
  only.answer = () => Promise.resolve();
  breaker.awaited();
  await timers.tickAsync(0);
  assert.equal([only.isBack, probes()], [true, before + 1]);
});

breakers(
  "when the last limiter is closed, the next call of another one asks the store",
  async () => {
    const { all, breaker } = many(2, new Breaker());
    for (const each of all) each.answer = () => new Promise(() => {});
    await timers.tickAsync(5000);
    for (const each of all) {
      assert.ok(breaker.isOpen);
      breaker.leave(each);
    }
    assert.not.ok(breaker.isOpen);
    assert.is(timers.countTimers(), 0);
  },
);

for (const name of ["fails", "waits"] as const) {
  breakers(`keys that are used once do not pile up where the caller ${name}`, async () => {
    const client = new Breaker();
    const breaker = name === "waits" ? client.forWaiting() : client;
    const used = many(150, breaker).all;
    let largest = 0;
    for (let i = 0; i < 100_000; i++) {
      many(1, breaker, false);
      largest = Math.max(largest, breaker.size);
    }
    assert.ok(largest <= 2 * 151 + 1, `${largest} listeners`);
    assert.not.ok(used.some(({ isForgotten }) => isForgotten));
    for (const each of used) each.isAwaited = false;
    await timers.tickAsync(10_000);
    const { all } = many(1, breaker, false);
    for (let i = 0; i < 400; i++) many(1, breaker, false);
    assert.ok(breaker.size <= 101, `${breaker.size} listeners`);
    assert.ok(all[0]?.isForgotten);
  });
}

breakers.run();
