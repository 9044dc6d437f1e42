import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/index.ts";
import type { Store } from "../../src/stores/store.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { pacedSamples } from "../support/algorithms/samples.ts";
import { HandStore, onHand } from "../support/limiter/remote.ts";
import { turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

// The bound of docs/outage-bounds.md for `whenUnavailable: "local"`: whatever the arrivals and the
// outages, all instances together stay within
//
//   bound of the policy + absences x (largest request + share of the capacity)
//     + share of the rate x time for which instances were cut off
//
// The largest request, since a share that cannot hold it is lent it, once in an absence. The shares
// only where others are not cut off, since these have the whole limit then.

const RATE = 10;
const LARGEST = 2;
const INSTANCES = 3;

/** The store as one instance reaches it. */
class Way implements Store {
  isCut = false;
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  run(...asked: Parameters<Store["run"]>): ReturnType<Store["run"]> {
    return this.isCut ? Promise.reject(new Error("cut")) : this.#store.run(...asked);
  }
}

type Deed =
  | { readonly verb: "pass"; readonly ms: number }
  | { readonly verb: "ask"; readonly instance: number; readonly permits: number }
  | { readonly verb: "wait"; readonly instance: number; readonly permits: number }
  /** All permits that are available. */
  | { readonly verb: "drain"; readonly instance: number }
  | { readonly verb: "outage"; readonly cut: readonly boolean[] };

const instance = fc.nat({ max: INSTANCES - 1 });
const permits = fc.constantFrom(1, 1, 1, 0.5, LARGEST);
const action: fc.Arbitrary<Deed> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      verb: fc.constant("pass"),
      ms: fc.oneof(fc.constantFrom(1, 10, 100, 3000), fc.integer({ min: 1, max: 1500 })),
    }),
  },
  { weight: 6, arbitrary: fc.record({ verb: fc.constant("drain"), instance }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant("ask"), instance, permits }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant("wait"), instance, permits }) },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: fc.constant("outage"),
      cut: fc.oneof(
        fc.constant([true, true, true]),
        fc.constant([false, false, false]),
        fc.array(fc.boolean(), { minLength: INSTANCES, maxLength: INSTANCES }),
      ),
    }),
  },
);

/**
 * The permits used in all, the instant of the last use, and how often an instance granted from its
 * share.
 */
async function play(policy: Policy, actions: readonly Deed[]) {
  const clock = new FakeClock();
  const store = new HandStore(clock);
  const ways = Array.from({ length: INSTANCES }, () => new Way(store));
  const limiters = ways.map(
    (way) =>
      onHand(policy, {
        ...{ clock, store: way as never, timeoutMs: 1000 },
        ...{ whenUnavailable: "local", instances: () => INSTANCES },
      }).limiter,
  );
  let used = 0;
  let absences = 0;
  let partial = 0;
  let cutOffMs = 0;
  const pass = async (ms: number) => {
    const cut = ways.filter(({ isCut }) => isCut).length;
    if (cut < INSTANCES) cutOffMs += cut * ms;
    await clock.advance(ms);
    await timers.tickAsync(ms);
    await turn();
  };
  for (const action of actions) {
    if (action.verb === "pass") {
      await pass(action.ms);
    } else if (action.verb === "outage") {
      // all instances know the same last report: what they do not know of each other comes on top
      await pass(60);
      await Promise.all(limiters.map((limiter) => limiter.peek()));
      ways.forEach((way, i) => {
        if (!way.isCut && action.cut[i]) absences += 1;
        way.isCut = action.cut[i] === true;
      });
      const cut = ways.filter(({ isCut }) => isCut).length;
      if (cut < INSTANCES) partial += cut;
      // an instance that is back has noticed it
      if (!action.cut.every((isCut) => isCut)) await pass(1000);
    } else if (action.verb === "drain") {
      while (await limiters[action.instance]?.tryAcquire()) used += 1;
    } else {
      const limiter = limiters[action.instance];
      const asked =
        action.verb === "ask"
          ? limiter?.tryAcquire(action.permits)
          : limiter?.acquire(action.permits).then(() => true);
      asked?.then(
        (granted) => {
          if (granted) used += action.permits;
        },
        () => {},
      );
      await turn();
    }
  }
  const seconds = clock.now() / 1000;
  return { used, seconds, absences, partial, cutOff: cutOffMs / 1000 };
}

const outages = suite("outages");
let timers: FakeTimers.Clock;

outages.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

outages.after.each(() => {
  timers.uninstall();
});

for (const [name, { at }] of pacedSamples) {
  outages(`${name}: all instances together stay within the bound in any outage`, async () => {
    const policy = at(RATE);
    // just after 0: the edge of a window may be there. A queue that may be long has no useful bound
    // here
    const capacity = policy.algorithm.bound(policy, 1, LARGEST);
    if (capacity > 100) return;
    const history = fc.array(action, { minLength: 5, maxLength: 25, size: "max" });
    await fc.assert(
      fc.asyncProperty(history, async (actions) => {
        const { used, seconds, absences, partial, cutOff } = await play(policy, actions);
        const lent = absences * LARGEST;
        const beside = (partial * capacity + RATE * cutOff) / INSTANCES;
        const most = capacity + RATE * seconds + lent + beside;
        assert.ok(used <= most + 1e-6, `${used} used in ${seconds} s, at most ${most}`);
      }),
      { numRuns: runs(25) },
    );
  });
}

outages.run();
