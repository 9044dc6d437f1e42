/** Random histories of three regions: whatever fails, together they keep the bound of the whole limit. */
import fc from "fast-check";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { algorithms, share } from "../../src/algorithms/index.ts";
import { hasInstants, isDated } from "../../src/algorithms/instants.ts";
import { tokenBucket } from "../../src/index.ts";
import { samplesOf } from "../support/algorithms/samples.ts";
import { seeded } from "../support/random.ts";
import { World } from "../support/regions/world.ts";
import { progress, runs, suite } from "../support/suite.ts";

const test = suite("regions, random histories", { timeoutMs: 120_000 });

const REGIONS = ["eu", "us", "asia"];
const EVERY_MS = 200;
/** By how much a timer may be late, µs, on a clock with another rate. */
const LATE = 3;
/** By how much the home's clock jumps: by less than the life of a record. */
const JUMP_MS = 3000;
/** A jump that is longer ago than this has been seen: an interval, and the way. */
const SEEN_MS = 2 * EVERY_MS;
/** Sums of fractions are as exact as this. */
const SLACK = 1e-6;

/** What fails in a history: with two causes at once within an interval no bound is promised. */
const faults = {
  none: [] as const,
  members: ["cut", "cut", "heal", "heal", "restart", "keep", "keep", "heal"] as const,
  network: ["lose messages", "lose replies", "find all", "slow", "fast"] as const,
  memory: ["forget", "go back"] as const,
  time: ["jump", "jump back"] as const,
};
type Fault = (typeof faults)[keyof typeof faults][number];

/** A while in which the same regions are busy. */
const phase = fc.record({
  /** How many requests each region makes in a tick. */
  demand: fc.constantFrom(
    [8, 0, 0],
    [0, 8, 0],
    [0, 0, 8],
    [8, 8, 0],
    [0, 3, 8],
    [8, 8, 8],
    [1, 1, 1],
  ),
  permits: fc.constantFrom(1, 1, 2, 5),
  waits: fc.constantFrom(false, false, true),
  /** What each region is charged in a tick, for work that is already done. */
  charged: fc.constantFrom(0, 0, 0, 1),
  ticks: fc.constantFrom(4, 20, 30, 50),
  tickMs: fc.constantFrom(20, 33, 50),
  fault: fc.nat(10),
});

const history = fc.record({
  kind: fc.constantFrom(...(Object.keys(faults) as (keyof typeof faults)[])),
  reserve: fc.constantFrom(0.1, 0.3, 0.03),
  drift: fc.constantFrom(0, 0.01),
  latencyMs: fc.constantFrom(0, 10, 60),
  seed: fc.nat(),
  phases: fc.array(phase, { minLength: 5, maxLength: 12, size: "max" }),
});

type History = typeof history extends fc.Arbitrary<infer Value> ? Value : never;

interface Grant {
  readonly micros: number;
  readonly permits: number;
}

/** What came of a history. */
interface Outcome {
  readonly grants: readonly Grant[];
  /** When the clock of the home jumped ahead, µs. */
  readonly jumps: readonly number[];
}

// 100 a second, in whatever portions
const paced = algorithms.flatMap(({ name }) =>
  Object.entries(samplesOf(name).paced).map(
    ([title, { at }]) => [title, share(at(5), 20)] as const,
  ),
);
const bucket = tokenBucket({ capacity: 20, refill: 100, everyMs: 1000 });
const limits: readonly (readonly [string, Readonly<Record<string, Policy>>])[] = [
  ...paced.map(([title, policy]) => [title, { policy }] as const),
  ...paced
    .filter(([, policy]) => hasInstants(policy))
    .map(([title, policy]) => [`${title} and a bucket`, { policy, bucket }] as const),
];

for (const [title, policies] of limits) {
  test(`${title}: all regions together keep the bound`, async () => {
    const property = fc.asyncProperty(history, async (past) => {
      const outcome = await seeded(past.seed, () => play(policies, past));
      for (const policy of Object.values(policies)) keepsBound(policy, outcome, past);
    });
    await fc.assert(property, { seed: progress.seed, numRuns: runs(120, 4) });
  });
}

async function play(
  policies: Readonly<Record<string, Policy>>,
  { kind, reserve, drift, latencyMs, phases }: History,
): Promise<Outcome> {
  const isCalendar = Object.values(policies).some(
    (policy) => hasInstants(policy) && !isDated(policy),
  );
  // windows of the calendar are as exact as the clocks that show it
  const rates = isCalendar ? [1, 1, 1] : [1, 1 + drift, 1 - drift];
  const times = { everyMs: EVERY_MS, leaseMs: 1000 };
  const world = new World(policies, { regions: REGIONS, reserve, ...times, rates });
  const { clock, home } = world;
  home.latencyMs = latencyMs;
  const grants: Grant[] = [];
  const jumps: number[] = [];
  const ask = async (region: number, permits: number, waits: boolean) => {
    const limiter = world.regions[region]?.limiter;
    const isGranted = await limiter?.tryAcquire(permits, waits ? 300 : 0).catch(() => false);
    if (isGranted) grants.push({ micros: clock.now() * 1000, permits });
  };
  for (const { limiter } of world.regions) await limiter.peek();
  await clock.advance(1500);
  const snapshots = [home.snapshot()];
  for (const { demand, permits, waits, charged, ticks, tickMs, fault } of phases) {
    const what = faults[kind][fault];
    if (what === "jump") jumps.push(clock.now() * 1000);
    if (what !== "restart" || !isCalendar)
      suffer(world, what, fault % 3, snapshots, ticks + permits);
    for (let tick = 0; tick < ticks; tick++) {
      // less is granted then, and never more
      for (const { limiter } of charged > 0 ? world.regions : []) await limiter.charge(charged);
      for (const [region, requests] of demand.entries()) {
        for (let i = 0; i < requests; i++) void ask(region, permits, waits);
      }
      await clock.advance(tickMs);
      snapshots.push(home.snapshot());
    }
  }
  await world.close();
  await clock.advance(2000);
  return { grants, jumps };
}

function suffer(
  world: World,
  fault: Fault | undefined,
  index: number,
  snapshots: readonly ReturnType<World["home"]["snapshot"]>[],
  any: number,
): void {
  const { home } = world;
  const region = world.regions[index];
  if (fault === "cut" && region) region.isCut = true;
  else if (fault === "keep" && region) region.kept ??= [];
  else if (fault === "heal" && region) world.heal(region);
  else if (fault === "restart") world.restart(index);
  else if (fault === "lose messages") home.losesMessages = true;
  else if (fault === "lose replies") home.losesReplies = true;
  else if (fault === "find all") Object.assign(home, { losesMessages: false, losesReplies: false });
  else if (fault === "slow") home.latencyMs = 90;
  else if (fault === "fast") home.latencyMs = 5;
  else if (fault === "forget") home.forget();
  else if (fault === "go back")
    home.goBackTo(snapshots[Math.max(0, snapshots.length - any)] ?? new Map());
  else if (fault === "jump") home.aheadMs = Math.min(2 * JUMP_MS, home.aheadMs + JUMP_MS);
  else if (fault === "jump back") home.aheadMs = Math.max(-JUMP_MS, home.aheadMs - JUMP_MS);
}

/**
 * Whether no interval has more grants than the algorithm's bound, and one request more for each further region. If the
 * home's clock jumps ahead meanwhile, what was used seems to be back.
 */
function keepsBound(policy: Policy, { grants, jumps }: Outcome, past: History): void {
  const { algorithm } = policy;
  const { drift, reserve, kind, phases } = past;
  const largest = 5;
  const lends = algorithm.name === "smooth" || policy.maxWaiting !== undefined;
  // a process that takes the place of another one has a new reserve
  const restarts = phases.filter(({ fault }) => faults[kind][fault] === "restart").length;
  // a part that moves to a clock whose buckets begin at other times may use one more of them
  const bucket = drift > 0 && "width" in policy ? Number(policy.width) : 0;
  const lent = lends ? (REGIONS.length - 1 + restarts) * largest : 0;
  const renewed = (restarts * algorithm.bound(policy, 0, 0) * reserve) / REGIONS.length;
  const more = lent + renewed;
  for (const [from, { micros: start }] of grants.entries()) {
    let sum = 0;
    for (let to = from; to < grants.length; to++) {
      const { micros, permits } = grants[to] as Grant;
      sum += permits;
      const isSeen = (jump: number) => start - SEEN_MS * 1000 < jump && jump < micros;
      const jumped = jumps.filter(isSeen).length * JUMP_MS * 1000;
      const span = (micros - start) * (1 + drift) + LATE + bucket + jumped;
      const bound = algorithm.bound(policy, span, largest) + more;
      if (sum > bound * (1 + SLACK) + SLACK) {
        const seconds = (micros - start) / 1e6;
        assert.unreachable(
          `${sum} permits in ${seconds} s from ${start / 1e6} s on, the bound is ${bound}`,
        );
      }
    }
  }
}

test.run();
