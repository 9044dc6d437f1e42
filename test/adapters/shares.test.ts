import * as assert from "uvu/assert";
import { limitedFetch } from "../../src/adapters/fetch/index.ts";
import { withEstimate } from "../../src/adapters/llm/index.ts";
import { pace } from "../../src/adapters/pace/index.ts";
import { throttle } from "../../src/adapters/streams/index.ts";
import { type FairOptions, fairShares, RateLimiter } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { suite } from "../support/suite.ts";

const test = suite("adapters on a fair limiter");

/** Ten a second, the first taken, with three waiters of the share "loud". */
function busy(options: FairOptions = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0, order: fairShares(options) });
  limiter.tryAcquire();
  const order: string[] = [];
  const note = (name: string) => () => {
    order.push(name);
  };
  for (let i = 0; i < 3; i++) void limiter.acquire(1, { share: "loud" }).then(note("loud"));
  return { clock, limiter, order, note };
}

test("withEstimate waits for the turn of its share", async () => {
  const { clock, limiter, order, note } = busy();
  void withEstimate(limiter, 1, note("quiet"), { share: "quiet", weight: 2 });
  await clock.advance(1000);
  assert.ok(order.indexOf("quiet") <= 1, order.join(" "));
});

test("limitedFetch takes the share of a request from a function", async () => {
  const { clock, limiter, order } = busy();
  const fetch = limitedFetch(limiter, {
    share: (request) => request.headers.get("x-tenant") ?? undefined,
    weight: 2,
    fetch: async () => new Response("ok"),
    clock,
  });
  void fetch("https://example.com", { headers: { "x-tenant": "quiet" } }).then(() =>
    order.push("quiet"),
  );
  await clock.advance(250);
  assert.ok(order.includes("quiet"), order.join(" "));
  await clock.advance(1000);
});

test("pace takes the share of a call from its arguments, with a signal of its own, too", async () => {
  const { clock, limiter, order } = busy({ priorities: ["high", "low"] });
  const call = pace((name: string) => order.push(name), limiter, {
    share: (name) => name,
    weight: () => 2,
    priority: () => "high",
  });
  const { signal } = new AbortController();
  const withSignal = pace((name: string) => order.push(name), limiter, {
    signal: () => signal,
    share: "signal",
  });
  void call("quiet");
  void withSignal("signal");
  await clock.advance(350);
  assert.is(order[0], "quiet");
  assert.ok(order.includes("signal"), order.join(" "));
  await clock.advance(1000);
});

test("streams of different shares pass in turn", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1000, { clock, burstSeconds: 0, order: fairShares() });
  const passed = { loud: 0, quiet: 0 };
  const end = new AbortController();
  const pump = (share: keyof typeof passed) => {
    const source = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(100)),
    });
    const sink = new WritableStream<Uint8Array>({
      write: (chunk) => {
        passed[share] += chunk.byteLength;
      },
    });
    source
      .pipeThrough(throttle(limiter, { share, signal: end.signal }))
      .pipeTo(sink)
      .catch(() => {});
  };
  for (let i = 0; i < 9; i++) pump("loud");
  pump("quiet");
  await clock.advance(10_000);
  end.abort();
  await clock.advance(1000);
  const { loud, quiet } = passed;
  assert.ok(quiet > 0.4 * (loud + quiet), `${loud} ${quiet}`);
});

test.run();
