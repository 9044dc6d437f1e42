/** The connection broke after the store had run a batch, and the client sent the batch again. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { smoothBursty } from "../../src/index.ts";
import { StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteOptions } from "../../src/remote/remote-options.ts";
import { type Store, StoreLimiter } from "../../src/store.ts";
import { LostReplyError } from "../../src/stores/batch-id.ts";
import { memoryStore } from "../../src/testing/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

let timers: FakeTimers.Clock;

const lost = suite("remote limiter, lost replies");

lost.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

lost.after.each(() => {
  timers.uninstall();
});

/** A limiter that has been used at 10 permits a second, and has none left. */
async function make(options: Partial<RemoteOptions> = {}) {
  const ten = smoothBursty({ permitsPerSecond: 10 });
  const made = onHand(ten, { instances: () => 1, ...options });
  await made.limiter.acquire();
  await made.clock.advance(100);
  const pass = async (ms: number) => {
    await made.clock.advance(ms);
    await timers.tickAsync(ms);
    await turn();
  };
  const nextFree = async () => (await made.limiter.peek()).waitMs;
  return { ...made, pass, nextFree };
}

lost("a request for permits fails, and is charged once", async () => {
  const { limiter, store, nextFree } = await make();
  for (const ask of [
    () => limiter.acquire(5),
    () => limiter.tryAcquire(5, 60_000),
    () => limiter.reserve(5),
  ]) {
    const before = await nextFree();
    store.lostReplies = 1;
    const error = (await failure(ask)) as StoreUnavailableError;
    assert.instance(error, StoreUnavailableError);
    assert.instance(error.cause, LostReplyError);
    assert.is(await nextFree(), before + 500);
  }
});

lost("a peek fails if other requests of its batch changed the state", async () => {
  const { limiter, store } = await make();
  store.lostReplies = 1;
  const [charged, looked] = await Promise.allSettled([limiter.charge(1), limiter.peek()]);
  assert.is(charged.status, "fulfilled");
  assert.is(looked.status, "rejected");
  store.lostReplies = 1;
  assert.is((await limiter.peek()).waitMs, 100);
});

lost("changes are made once, and resolve", async () => {
  const { limiter, store, nextFree } = await make();
  const changes = [
    [() => limiter.charge(30), 3000],
    [() => limiter.refund(5), 2500],
    [() => limiter.pause(4000), 4000],
    [() => limiter.update(smoothBursty({ permitsPerSecond: 20 })), 4000],
    [() => limiter.resetPolicies(), 4000],
    [() => limiter.reset(), 0],
  ] as const;
  for (const [change, free] of changes) {
    store.lostReplies = 1;
    await change();
    assert.is(await nextFree(), free, `${change}`);
  }
  await limiter.charge(10);
  const reservation = await limiter.reserve();
  store.lostReplies = 1;
  assert.is(await reservation.cancel(), true);
});

lost('with "wait" callers are served in order, and at most one batch more is charged', async () => {
  const { clock, limiter, store, pass } = await make({ whenUnavailable: "wait" });
  const began = clock.now();
  store.lostReplies = 1;
  const first = [1, 2].map((permits) => watch(clock, limiter.acquire(permits)));
  await Promise.resolve();
  const later = watch(clock, limiter.acquire(3));
  await pass(0);
  // the store is probed once more, since the connection broke
  await pass(50);
  for (let i = 0; i < 20; i++) await pass(100);
  assert.equal(
    [...first, later].map(({ at }) => Math.ceil((Number(at) - began) / 100)),
    [3, 4, 6],
  );
});

lost('with "local" and "allow" callers are answered in this process', async () => {
  for (const whenUnavailable of ["local", "allow"] as const) {
    const { limiter, store, pass } = await make({ whenUnavailable });
    await pass(1000);
    store.lostReplies = 1;
    assert.is(await limiter.tryAcquire(), true);
    assert.is(limiter.state, "unavailable");
    await pass(1000);
    assert.is(limiter.state, "ready");
  }
});

lost("a caller that left meanwhile is not served", async () => {
  const { limiter, store, nextFree } = await make();
  store.held = true;
  store.lostReplies = 1;
  const controller = new AbortController();
  const acquired = failure(() => limiter.acquire(1, { signal: controller.signal }));
  await turn();
  controller.abort();
  assert.is(((await acquired) as Error).name, "AbortError");
  await store.deliver();
  assert.is(limiter.state, "ready");
  assert.is(await nextFree(), 100);
});

lost("a late reply: a change is made, and a request for permits is not granted", async () => {
  const { clock, limiter, store, pass } = await make({ whenUnavailable: "wait" });
  await limiter.charge(20);
  store.held = true;
  store.lostReplies = 1;
  const refunded = watch(clock, limiter.refund(10));
  const acquired = watch(clock, limiter.acquire());
  await pass(1000);
  assert.is(limiter.state, "unavailable");
  await store.deliver();
  assert.is(refunded.error, undefined);
  assert.is.not(refunded.at, undefined);
  for (let i = 0; i < 30; i++) await pass(100);
  assert.is.not(acquired.at, undefined);
  assert.is(acquired.error, undefined);
});

lost.run();

const keyed = suite("limiters of keys, under way");

keyed(
  "the limiter of a key lives as long as its call is under way, so that none is made beside it",
  async () => {
    setFlagsFromString("--expose-gc");
    const gc = runInNewContext("gc") as () => void;
    const base = memoryStore();
    let reply = () => {};
    const store: Store = {
      run: async (key, declared, requests, now, batchId) => {
        await new Promise<void>((resolve) => {
          reply = resolve;
        });
        return base.run(key, declared, requests, now, batchId);
      },
    };
    const policy = smoothBursty({ permitsPerSecond: 10 });
    const limiter = StoreLimiter.create(store, "name", policy, { timeoutMs: 60_000 });
    const call = limiter.for("key").tryAcquire();
    const seen = new WeakRef(limiter.for("key"));
    for (let round = 0; round < 3; round++) {
      await turn();
      gc();
    }
    assert.is.not(seen.deref(), undefined);
    reply();
    assert.ok(await call);
  },
);

keyed.run();
