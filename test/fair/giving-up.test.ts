/** A share always has a caller, but its callers give up before their turn. */
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { RemoteConcurrency } from "../../src/concurrency/leased/remote-concurrency.ts";
import { systemClock } from "../../src/ground/clock.ts";
import {
  ConcurrencyLimiter,
  fairShares,
  KeyedLimiter,
  RateLimiter,
  smoothBursty,
} from "../../src/index.ts";
import { StoreRateLimiter } from "../../src/store.ts";
import { memoryStore } from "../../src/testing/index.ts";
import { HandLeaseStore } from "../support/limiter/lease-store.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("shares whose callers give up");

interface Asked {
  readonly share: string;
  readonly signal?: AbortSignal;
}
type Call = (asked: Asked) => Promise<unknown>;

/** One place, which each caller holds that long. */
function held(limiter: ConcurrencyLimiter | RemoteConcurrency, ms: number): Call {
  return async (asked) => {
    const lease = await limiter.acquire(1, asked);
    setTimeout(() => void lease.release(), ms);
  };
}

/** Each lets one call through in that time. */
const LIMITERS: Record<string, (everyMs: number) => Call> = {
  "a rate limiter": (everyMs) => {
    const limiter = RateLimiter.create(1000 / everyMs, { order: fairShares(), burstSeconds: 0 });
    return (asked) => limiter.acquire(1, asked);
  },
  "a keyed limiter": (everyMs) => {
    const policy = smoothBursty({ permitsPerSecond: 1000 / everyMs, burstSeconds: 0 });
    const limiter = KeyedLimiter.create(policy, { order: fairShares() }).for("key");
    return (asked) => limiter.acquire(1, asked);
  },
  "a rate limiter on a store": (everyMs) => {
    const store = memoryStore({ clock: systemClock });
    const options = { order: fairShares(), burstSeconds: 0 };
    const limiter = StoreRateLimiter.create(store, "api", 1000 / everyMs, options);
    return (asked) => limiter.acquire(1, asked);
  },
  "a concurrency limiter": (everyMs) =>
    held(ConcurrencyLimiter.create(1, { order: fairShares() }), everyMs),
  "a concurrency limiter on a store": (everyMs) => {
    const store = new HandLeaseStore();
    const whenUnavailable = "throw" as const;
    const all = { name: "pages", leaseMs: 30_000, maxWaiting: Infinity, timeoutMs: 1000 };
    const options = { ...all, whenUnavailable };
    return held(new RemoteConcurrency(store, "key", 1, options, fairShares()), everyMs);
  },
};

interface Scene {
  readonly everyMs: number;
  readonly others: number;
  readonly seconds: number;
}

/**
 * Each other share has two callers, which call again at once. Share A may get a new caller every 300 ms, and its
 * oldest one leaves when more than `most` wait.
 *
 * @param most 0: A gets a new caller only if none waits, and all of them stay
 * @returns how many calls were let through: of A, and of each other share
 */
async function play(create: (everyMs: number) => Call, scene: Scene, most: number) {
  const timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const call = create(scene.everyMs);
  let isOpen = true;
  const others = Array.from({ length: scene.others }, () => 0);
  const loop = async (i: number) => {
    while (isOpen) {
      await call({ share: `other ${i}` });
      others[i] = Number(others[i]) + 1;
    }
  };
  for (const i of others.keys()) for (const _ of [1, 2]) void loop(i);
  let own = 0;
  const waiting = new Set<AbortController>();
  const one = async () => {
    const controller = new AbortController();
    waiting.add(controller);
    try {
      await call({ share: "A", signal: controller.signal });
      own += 1;
    } catch {}
    waiting.delete(controller);
  };
  for (let ms = 0; ms < scene.seconds * 1000; ms += 300) {
    if (most > 0 || waiting.size === 0) void one();
    const [oldest] = waiting;
    if (waiting.size > Math.max(1, most)) oldest?.abort();
    await timers.tickAsync(300);
  }
  const result = { own, others: [...others] };
  isOpen = false;
  for (const controller of waiting) controller.abort();
  await timers.tickAsync(scene.everyMs * (2 * scene.others + 2));
  timers.uninstall();
  return result;
}

/** A caller of A waits for several others; or the caller that is next waits for longer than it stays. */
const SCENES: readonly Scene[] = [
  { everyMs: 10, others: 50, seconds: runs(30, 6) },
  { everyMs: 1000, others: 5, seconds: runs(120, 60) },
];

for (const [name, create] of Object.entries(LIMITERS)) {
  test(`${name}: a caller that gives up leaves its place to the next one of its share`, async () => {
    for (const scene of SCENES) {
      const staying = await play(create, scene, 0);
      const leaving = await play(create, scene, 1);
      const two = await play(create, scene, 2);
      assert.ok(leaving.own >= staying.own - 1, `${leaving.own} of ${staying.own}`);
      assert.ok(two.own >= Math.min(...two.others) - 2, `${two.own}; ${two.others}`);
    }
  });
}

test.run();
