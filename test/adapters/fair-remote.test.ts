/** Every adapter passes the share of a call through to a fair limiter on a store. */
import * as assert from "uvu/assert";
import { limitedFetch } from "../../src/adapters/fetch/index.ts";
import { withEstimate } from "../../src/adapters/llm/index.ts";
import { PacedQueue } from "../../src/adapters/p-queue/index.ts";
import { pace } from "../../src/adapters/pace/index.ts";
import { throttle } from "../../src/adapters/streams/index.ts";
import { fairShares, smoothBursty } from "../../src/index.ts";
import { StoreLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { suite } from "../support/suite.ts";

const test = suite("adapters on a fair limiter on a store");

/** Ten a second; share "busy" waits with 10 calls, so another share goes before most of them. */
async function busy() {
  const clock = new FakeClock();
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const limiter = StoreLimiter.create(memoryStore({ clock }), "x", policy, {
    clock,
    order: fairShares(),
  });
  await limiter.acquire();
  const order: string[] = [];
  for (let i = 0; i < 10; i++) {
    void limiter.acquire(1, { share: "busy" }).then(() => order.push("busy"));
  }
  const at = async (done: Promise<unknown>) => {
    void done.then(() => order.push("new"));
    await clock.advance(3000);
    return order.indexOf("new");
  };
  return { clock, limiter, at };
}

test("limitedFetch, pace, withEstimate, throttle and PacedQueue", async () => {
  const share = "new";
  const rows: [string, (limiter: StoreLimiter) => Promise<unknown>][] = [
    [
      "limitedFetch",
      (limiter) =>
        limitedFetch(limiter, { share, fetch: async () => new Response("ok") })("http://a.test/"),
    ],
    ["pace", (limiter) => pace(async () => 7, limiter, { share: () => share, weight: 1 })()],
    ["withEstimate", (limiter) => withEstimate(limiter, 1, async (settle) => settle(1), { share })],
    [
      "throttle",
      async (limiter) => {
        const bytes = new ReadableStream({
          start(controller) {
            controller.enqueue(new Uint8Array(1));
            controller.close();
          },
        });
        await new Response(bytes.pipeThrough(throttle(limiter, { share }) as never)).arrayBuffer();
      },
    ],
    ["PacedQueue", (limiter) => new PacedQueue({ limiter, share }).add(async () => 7)],
  ];
  for (const [name, call] of rows) {
    const { limiter, at } = await busy();
    const place = await at(call(limiter));
    assert.ok(place >= 0 && place <= 4, `${name}: ${place}`);
    await limiter.close();
  }
});

test.run();
