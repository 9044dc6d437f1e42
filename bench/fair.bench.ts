/**
 * Is a limit shared fairly, and what does that cost? 50 tenants share 100 calls a second. Tenant i has 1 to
 * 1000 callers, each of which calls again as soon as its call has gone. Jain's index of what the tenants got is
 * (Σx)² / (n Σx²): 1 where all got the same, 1/50 where one got everything. In real time, where a late timer
 * favours tenants with many callers; and on a simulated clock, where the machine has no say.
 */
import { setTimeout as sleep } from "node:timers/promises";
import Bottleneck from "bottleneck";
import { fairShares, RateLimiter } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import { short } from "./lib/options.ts";
import { nanos, table, target, times } from "./lib/report.ts";

const TENANTS = 50;
const RATE = 100;
const FOR_MS = short ? 5000 : 10_000;

/** Waits for the turn of a tenant. */
type Call = (tenant: string) => Promise<unknown>;

interface Candidate {
  readonly call: Call;
  end(): void;
  /** Lets the time pass; absent: real time. */
  pass?(ms: number): Promise<void>;
}

function onFakeClock(fair: boolean): Candidate {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(RATE, {
    clock,
    burstSeconds: 0,
    order: fair ? fairShares() : undefined,
  });
  return {
    call: (share) => limiter.acquire(1, fair ? { share } : undefined),
    end: () => limiter.setRate(Infinity),
    pass: (ms) => clock.advance(ms),
  };
}

const FAIR_SIMULATED = "order: fairShares(), simulated clock";

const candidates: Record<string, () => Candidate> = {
  "one queue, simulated clock": () => onFakeClock(false),
  [FAIR_SIMULATED]: () => onFakeClock(true),
  "one queue": () => {
    const limiter = RateLimiter.create(RATE, { burstSeconds: 0 });
    return { call: () => limiter.acquire(), end: () => limiter.setRate(Infinity) };
  },
  "order: fairShares()": () => {
    const limiter = RateLimiter.create(RATE, { burstSeconds: 0, order: fairShares() });
    return {
      call: (share) => limiter.acquire(1, { share }),
      end: () => limiter.setRate(Infinity),
    };
  },
  "bottleneck, one for all": () => {
    const limiter = new Bottleneck({ minTime: 1000 / RATE });
    const call = () => limiter.schedule(async () => {});
    return { call, end: () => void limiter.disconnect() };
  },
  "bottleneck, a group": () => {
    // its groups share nothing: each tenant gets a fiftieth, whether others need theirs or not
    const group = new Bottleneck.Group({ minTime: (1000 * TENANTS) / RATE });
    const call = (tenant: string) => group.key(tenant).schedule(async () => {});
    return { call, end: () => void group.disconnect() };
  },
};

interface Result {
  readonly index: number;
  readonly served: readonly number[];
}

async function share(make: () => Candidate, tenants: number): Promise<Result> {
  const { call, end, pass = sleep } = make();
  const served = Array.from({ length: tenants }, () => 0);
  let open = true;
  for (let tenant = 0; tenant < tenants; tenant++) {
    const loop = async () => {
      while (open) {
        await call(`tenant ${tenant}`);
        if (open) served[tenant] = (served[tenant] ?? 0) + 1;
      }
    };
    const load = Math.round(1000 ** (tenant / (TENANTS - 1)));
    for (let i = 0; i < load; i++) loop().catch(() => {});
  }
  await pass(FOR_MS);
  open = false;
  end();
  const sum = served.reduce((a, b) => a + b, 0);
  const squares = served.reduce((a, b) => a + b * b, 0);
  return { index: sum ** 2 / (tenants * squares), served };
}

const rows: string[][] = [];
let fairIndex = 0;
for (const [name, make] of Object.entries(candidates)) {
  // of the other limiter only 5 tenants are there: what do they get of the whole limit?
  const [{ index, served }, few] = await Promise.all([share(make, TENANTS), share(make, 5)]);
  if (name === FAIR_SIMULATED) fairIndex = index;
  const used = few.served.reduce((a, b) => a + b, 0) / ((RATE * FOR_MS) / 1000);
  rows.push([
    name,
    index.toFixed(4),
    `${Math.min(...served)} to ${Math.max(...served)}`,
    `${(100 * used).toFixed(0)} %`,
  ]);
}
table(
  [`${FOR_MS / 1000} s, 50 tenants`, "Jain's index", "calls of a tenant", "used by 5 tenants"],
  rows,
);
target("Jain's index is at least 0.999", fairIndex >= 0.999, fairIndex.toFixed(4));

/** The time of a waiter, ns: to come, and to go. */
async function cost(waiters: number, shares: number | undefined): Promise<[number, number]> {
  const limiter = RateLimiter.create(1e-3, {
    order: shares !== undefined ? fairShares() : undefined,
  });
  limiter.tryAcquire();
  const names = Array.from({ length: shares ?? 1 }, (_, i) => `tenant ${i}`);
  const options = names.map((share) => (shares === undefined ? undefined : { share }));
  const all: Promise<number>[] = Array(waiters);
  const startedAt = performance.now();
  for (let i = 0; i < waiters; i++) all[i] = limiter.acquire(1, options[i % options.length]);
  const waitAt = performance.now();
  limiter.setRate(Infinity);
  limiter.reset();
  await Promise.all(all);
  const end = performance.now();
  return [((waitAt - startedAt) / waiters) * 1e6, ((end - waitAt) / waiters) * 1e6];
}

const WAITERS = short ? 30_000 : 100_000;
const kinds: [string, number | undefined][] = [
  ["one queue", undefined],
  ["fair, 1 share", 1],
  ["fair, 1000 shares", 1000],
  ["fair, a share for each", WAITERS],
];
const costs = new Map<string, [number, number]>();
for (let round = 0; round < 4; round++) {
  for (const [name, shares] of kinds) {
    const [come, go] = await cost(WAITERS, shares);
    const [leastCome, leastGo] = costs.get(name) ?? [Infinity, Infinity];
    costs.set(name, [Math.min(come, leastCome), Math.min(go, leastGo)]);
  }
}
const sum = ([come, go]: [number, number]) => come + go;
const base = sum(costs.get("one queue") ?? [Number.NaN, Number.NaN]);
table(
  [`${WAITERS.toLocaleString("en")} waiters`, "to come", "to go", "to one queue"],
  [...costs].map(([name, both]) => [name, nanos(both[0]), nanos(both[1]), times(sum(both) / base)]),
);
process.exit(); // what waits in bottleneck would take minutes to drain
