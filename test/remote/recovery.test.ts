/**
 * Random histories of stores that freeze and come back while callers are being sent again. Each history ends
 * either with every key alive (a fresh call settles, and the rate is back) or closed; never with an open call.
 */
import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import { fairShares, gcra } from "../../src/index.ts";
import { type RemoteLimiter, type Store, StoreLimiter } from "../../src/store.ts";
import { memoryStore } from "../../src/testing/index.ts";
import { turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const test = suite("random histories of recoveries", { timeoutMs: 240_000 });

const RUNS = runs(6);
const PER_SECOND = 100;
const TIMEOUT_MS = 300;
const FAKED = ["setTimeout", "clearTimeout", "performance", "Date"] as const;

type Outcome = "late" | "lost" | "dropped";

/** A store in this process that can freeze. Calls that it holds then end when it is back. */
class FreezingStore {
  readonly #base = memoryStore();
  readonly #held: ((outcome: Outcome) => void)[] = [];
  #isFrozen = false;
  #isRefusing = false;
  readonly latencyMs: number;
  readonly store: Store;

  constructor(latencyMs: number) {
    this.latencyMs = latencyMs;
    const breaker = this.#base.breakerOf();
    this.store = {
      breakerOf: () => breaker,
      run: async (key, declared, requests, now, batchId) => {
        await sleep(this.latencyMs);
        if (this.#isRefusing) throw new Error("ECONNREFUSED");
        const outcome = this.#isFrozen ? await this.#hold() : "late";
        if (outcome === "dropped") throw new Error("ECONNRESET");
        const reply = await this.#base.run(key, declared, requests, now, batchId);
        if (outcome === "lost") throw new Error("ECONNRESET");
        return reply;
      },
    };
  }

  freeze(): void {
    this.#isFrozen = true;
  }

  /** The connection breaks, and the client knows. */
  disconnect(outcomes: readonly Outcome[]): void {
    this.#isRefusing = true;
    this.#base.breakerOf().disconnected(new Error("the connection is closed"));
    this.#end(outcomes);
  }

  /** Replies again, to the calls that it holds in bulk. */
  comeBack(outcomes: readonly Outcome[]): void {
    this.#isFrozen = false;
    this.#end(outcomes);
    if (!this.#isRefusing) return;
    this.#isRefusing = false;
    this.#base.breakerOf().reconnected();
  }

  #end(outcomes: readonly Outcome[]): void {
    for (const [i, end] of this.#held.splice(0).entries()) {
      end(outcomes[i % outcomes.length] as Outcome);
    }
  }

  #hold(): Promise<Outcome> {
    return new Promise((resolve) => this.#held.push(resolve));
  }
}

const sleep = async (ms: number) => {
  if (ms > 0) await new Promise<void>((resolve) => setTimeout(resolve, ms));
};

/** Resolves when no microtask is left, in the same phase of the event loop. */
const microtasks = () => new Promise<void>((resolve) => process.nextTick(resolve));

const few = fc.integer({ min: 1, max: 5 });
const upTo400 = fc.nat(400);
const step = fc.record({
  verb: fc.constantFrom(
    ...(["acquire", "acquire", "aborted", "timed", "timed", "try", "try", "newKey"] as const),
    ...(["decide", "reserve", "abort", "busy", "busy", "micro", "turn", "tick", "tick"] as const),
    ...(["freeze", "disconnect", "back", "race"] as const),
  ),
  times: few,
  ms: upTo400,
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A race: the store is back while calls wait for the next turn, since this one has lasted for too long. */
function inSteps(one: Step): Step[] {
  if (one.verb !== "race") return [one];
  const away = one.ms < 200 ? "freeze" : "disconnect";
  const calls = ["acquire", "aborted", "timed", "try", "acquire"] as const;
  const step = (verb: Step["verb"], ms = one.ms) => ({ verb, times: one.times, ms });
  return [
    ...[step(away), step("acquire"), step("tick", TIMEOUT_MS + 50), step("acquire")],
    ...[step("busy", 25), ...calls.map((verb) => step(verb)), step("back"), step("micro")],
  ];
}

const world = fc.record({
  latencyMs: fc.constantFrom(0, 0, 3, 30),
  outcomes: fc.array(fc.constantFrom<Outcome[]>("late", "late", "lost", "dropped"), {
    minLength: 1,
    maxLength: 4,
  }),
  steps: fc.array(step, { minLength: 5, maxLength: 60, size: "max" }),
  last: fc.record({ verb: fc.constantFrom("turn", "race"), times: few, ms: upTo400 }),
  isClosedEarly: fc.boolean(),
});

for (const whenUnavailable of ["throw", "wait", "local", "allow"] as const)
  test(`${whenUnavailable}: a process that only polls notices that the store is back`, async () => {
    const timers = FakeTimers.install({ toFake: [...FAKED], now: 1e12 });
    try {
      const store = memoryStore();
      const policy = gcra({ limit: PER_SECOND, periodMs: 1000, burst: 9 });
      const limiter = StoreLimiter.create(store, "name", policy, { whenUnavailable, instances: 2 });
      store.fail();
      for (let i = 0; i < 50; i++) {
        void limiter.tryAcquire().catch(() => {});
        await timers.tickAsync(50);
      }
      store.recover();
      await polled(timers, limiter);
      await timers.tickAsync(1000);
      assert.is(limiter.state, "ready");
    } finally {
      timers.uninstall();
    }
  });

for (const fair of [false, true])
  for (const prefetch of [undefined, { permits: 3, maxAgeMs: 50 }, "auto"] as const)
    for (const whenUnavailable of ["throw", "wait", "local", "allow"] as const)
      for (const isKeyed of [false, true]) {
        const order = fair ? fairShares() : undefined;
        const options = { order, prefetch, whenUnavailable, instances: 2, timeoutMs: TIMEOUT_MS };
        const title = JSON.stringify({ fair, prefetch, whenUnavailable, isKeyed });
        test(title, () =>
          fc.assert(historyOf(options, isKeyed), { numRuns: RUNS, includeErrorInReport: true }),
        );
      }

function historyOf(options: Parameters<typeof StoreLimiter.create>[3], isKeyed: boolean) {
  return fc.asyncProperty(world, async ({ latencyMs, outcomes, steps, last, isClosedEarly }) => {
    const timers = FakeTimers.install({ toFake: [...FAKED], now: 1e12 });
    try {
      const server = new FreezingStore(latencyMs);
      const policy = gcra({ limit: PER_SECOND, periodMs: 1000, burst: 9 });
      const limiter = StoreLimiter.create(server.store, "name", policy, options);
      const hot: RemoteLimiter = isKeyed ? limiter.for("hot") : limiter;
      const open = new Set<string>();
      const track = async (what: string, call: () => unknown) => {
        open.add(what);
        try {
          return await call();
        } catch (error) {
          const { code = error } = Object(error);
          assert.match(`${code}`, /^(STORE_UNAVAILABLE|LIMITER_CLOSED|enough)/);
          return error;
        } finally {
          open.delete(what);
        }
      };
      /** Lets time pass until no call is open. */
      const settle = async (mostMs: number) => {
        for (let ms = 0; open.size > 0 && ms < mostMs; ms += 50) {
          await timers.tickAsync(50);
          await turn();
        }
        assert.equal([...open], []);
      };

      let abort = new AbortController();
      let keys = 0;
      const ends: Promise<unknown>[] = [];
      for (const [i, { verb, times, ms }] of [...steps, last].flatMap(inSteps).entries()) {
        const { signal } = abort;
        const act = {
          acquire: () => hot.acquire(1 + (ms % 2)),
          aborted: () => hot.acquire(1, { signal }),
          timed: () => hot.tryAcquire(1, { timeoutMs: ms }),
          try: () => hot.tryAcquire(),
          newKey: () => (isKeyed ? limiter.for(`${keys++}`).tryAcquire() : hot.tryAcquire(2)),
          decide: () => hot.decide(),
          reserve: () => hot.reserve(),
        }[verb as string];
        if (act !== undefined) {
          for (let n = 0; n < times; n++) ends.push(track(`${i}: ${verb} ${n}`, act));
        } else if (verb === "abort") {
          abort.abort("enough");
          abort = new AbortController();
        } else if (verb === "busy") {
          // timers fire, but the event loop does not come to its next phase
          for (let left = ms; left > 0; left -= 20) {
            await microtasks();
            timers.tick(Math.min(left, 20));
          }
        } else if (verb === "micro") {
          for (let n = 0; n < 3 * times; n++) await Promise.resolve();
        } else if (verb === "turn") {
          await turn();
        } else if (verb === "tick") {
          await timers.tickAsync(ms);
        } else if (verb === "freeze") {
          server.freeze();
        } else if (verb === "disconnect") {
          server.disconnect(outcomes);
        } else {
          server.comeBack(outcomes);
        }
      }
      server.comeBack(outcomes);
      if (!isClosedEarly) {
        // a probe follows after a second at most
        await settle(10_000);
        await timers.tickAsync(3000);
        for (const each of isKeyed ? [hot, limiter.for("0")] : [hot]) {
          await polled(timers, each);
          assert.is(each.state, "ready");
          await timers.tickAsync(1000);
          const startedAt = performance.now();
          for (let n = 0; n < 60; n++) void track(`afterwards ${n}`, () => each.acquire());
          await settle(2000);
          const tookMs = performance.now() - startedAt;
          assert.ok(tookMs >= 400 && tookMs <= 1000, `60 permits took ${tookMs} ms`);
        }
      }
      ends.push(track("close", () => limiter.close()));
      await settle(2 * TIMEOUT_MS);
      await Promise.all(ends);
      await timers.tickAsync(3000);
      assert.is(limiter.stats.waiting, 0);
      assert.is(timers.countTimers(), 0);
    } finally {
      timers.uninstall();
    }
  });
}

/** Polls until a permit is granted; the longest pause between two probes is a second. */
async function polled(timers: FakeTimers.Clock, limiter: RemoteLimiter): Promise<void> {
  for (let i = 0; i < 12; i++) {
    let outcome: unknown = "open";
    const call = limiter.tryAcquire().catch(({ code }) => code);
    void call.then((value) => {
      outcome = value;
    });
    await timers.tickAsync(100);
    if (outcome === true) return;
    assert.is.not(outcome, "open");
  }
  assert.unreachable("polled in vain");
}

test.run();
