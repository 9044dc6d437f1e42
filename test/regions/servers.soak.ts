/**
 * Regions whose home is a real server at a distance: delays of 50 to 300 ms for a round trip, partitions, a home that is
 * stopped or loses its data, a region whose process is replaced. All grants are counted by one clock: in no interval
 * are there more than the bound of the whole limit.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import pg from "pg";
import * as assert from "uvu/assert";
import { type Policies, smoothBursty, tokenBucket } from "../../src/index.ts";
import { postgresStore } from "../../src/postgres.ts";
import { RegionalLimiter, type RegionalOptions } from "../../src/regions/index.ts";
import { PostgresServer } from "../support/postgres.ts";
import { startProxy, type TcpProxy } from "../support/redis/proxy.ts";
import { type RedisServer, startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const RATE = 400;
const BURST = 40;
/** One way, ms. */
const DISTANCES = { eu: 25, us: 75, asia: 150 };
const REGIONS = Object.keys(DISTANCES);
/** A grant is noted when its promise has resolved: so much later at most on a busy machine, ms. */
const LATE_MS = 100;

type Home = RegionalOptions["home"];

/** Asks for permits in several regions, and notes the grants. */
class Callers {
  readonly #policies: Policies;
  readonly #homes: readonly Home[];
  readonly limiters: RegionalLimiter[];
  readonly #granted: number[] = [];
  readonly #left: RegionalLimiter[] = [];

  constructor(policies: Policies, homes: readonly Home[]) {
    this.#policies = policies;
    this.#homes = homes;
    this.limiters = homes.map((_, i) => this.#open(i));
  }

  #open(index: number): RegionalLimiter {
    return RegionalLimiter.create("limit", this.#policies, {
      ...{ home: this.#homes[index] as Home, region: REGIONS[index] as string, regions: REGIONS },
      ...{ everyMs: 500, leaseMs: 2000 },
    });
  }

  /** The region's process dies without a word, and another one takes its place. */
  replace(index: number): void {
    this.#left.push(this.limiters[index] as RegionalLimiter);
    this.limiters[index] = this.#open(index);
  }

  /** Each region asks so many times a second, for that long. */
  async ask(demands: readonly number[], ms: number): Promise<void> {
    const end = performance.now() + ms;
    const owed = demands.map(() => 0);
    for (let last = performance.now(); last < end; ) {
      await sleep(10);
      const now = performance.now();
      for (const [i, demand] of demands.entries()) {
        let calls = (owed[i] ?? 0) + (demand * Math.min(100, now - last)) / 1000;
        for (; calls >= 1; calls--) void this.#ask(i);
        owed[i] = calls;
      }
      last = now;
    }
  }

  /** Asks until the region has more than half of the limit: on a busy machine that takes longer. */
  async askUntilMoved(demands: readonly number[], region: number): Promise<void> {
    for (let tries = 0; tries < 40; tries++) {
      if ((this.limiters[region]?.fraction ?? 0) > 0.5) return;
      await this.ask(demands, 250);
    }
    assert.unreachable(`${REGIONS[region]} has ${this.limiters[region]?.fraction} of the limit`);
  }

  async #ask(region: number): Promise<void> {
    if (await this.limiters[region]?.tryAcquire()) this.#granted.push(performance.now());
  }

  async close(): Promise<void> {
    await Promise.all([...this.limiters, ...this.#left].map((limiter) => limiter.close()));
  }

  /** @param more what the bound has beyond the burst */
  keepBound(more: number): void {
    const granted = this.#granted;
    for (let from = 0; from < granted.length; from += 7) {
      for (let to = from; to < granted.length; to += 3) {
        const ms = (granted[to] as number) - (granted[from] as number) + LATE_MS;
        const bound = BURST + (RATE * ms) / 1000 + more;
        const count = to - from + 1;
        if (count > bound) assert.unreachable(`${count} in ${ms} ms, the bound is ${bound}`);
      }
    }
    assert.ok(granted.length > RATE, `only ${granted.length} were granted`);
  }
}

const policies: Readonly<Record<string, { policy: Policies; more: number }>> = {
  "token bucket": {
    policy: tokenBucket({ capacity: BURST, refill: RATE, everyMs: 1000 }),
    // the reserve of a process that has been replaced is new
    more: BURST * (0.1 / 3),
  },
  "smooth bursty": {
    policy: smoothBursty({ permitsPerSecond: RATE, burstSeconds: BURST / RATE }),
    more: BURST * (0.1 / 3) + REGIONS.length + 1,
  },
};

const test = suite("regions with a real home at a distance", { timeoutMs: 240_000 });

for (const [title, { policy, more }] of Object.entries(policies)) {
  test(`${title}, Redis: the bound holds through partitions, an outage, lost data and a replaced process`, async () => {
    const server: RedisServer = await startRedis();
    const proxies: TcpProxy[] = [];
    const clients: Redis[] = [];
    for (const distance of Object.values(DISTANCES)) {
      const proxy = await startProxy(server.port);
      await proxy.delay(distance);
      proxies.push(proxy);
      const client = new Redis(proxy.url, { maxRetriesPerRequest: null });
      client.on("error", () => {});
      clients.push(client);
    }
    const callers = new Callers(policy, clients);
    try {
      await callers.ask([20, 20, 20], 3000);
      await callers.ask([600, 20, 20], 3000);
      await callers.ask([20, 600, 20], 1500);
      await callers.askUntilMoved([20, 600, 20], 1);
      await proxies[1]?.stall();
      await callers.ask([600, 600, 20], 4000);
      await proxies[1]?.delay(DISTANCES.us);
      await callers.ask([300, 300, 300], 3000);
      server.suspend();
      await callers.ask([600, 20, 600], 4000);
      server.resume();
      await callers.ask([600, 20, 600], 3000);
      await server.ask("FLUSHALL");
      await callers.ask([20, 600, 600], 4000);
      callers.replace(2);
      await callers.ask([600, 20, 600], 4000);
      callers.keepBound(more);
    } finally {
      await callers.close();
      for (const client of clients) client.disconnect();
      for (const proxy of proxies) await proxy.stop();
      await server.stop();
    }
  });
}

test("token bucket, PostgreSQL: the parts follow the demand, and the bound holds", async () => {
  const server = await PostgresServer.start();
  const pools = REGIONS.map(() => new pg.Pool({ connectionString: server.url }));
  for (const pool of pools) pool.on("error", () => {});
  const { policy, more } = policies["token bucket"] as { policy: Policies; more: number };
  const callers = new Callers(
    policy,
    pools.map((pool) => postgresStore(pool as unknown as Parameters<typeof postgresStore>[0])),
  );
  try {
    await callers.ask([20, 20, 20], 3000);
    await callers.ask([600, 20, 20], 1500);
    await callers.askUntilMoved([600, 20, 20], 0);
    await callers.ask([20, 20, 600], 1500);
    await callers.askUntilMoved([20, 20, 600], 2);
    await callers.ask([600, 600, 600], 3000);
    callers.keepBound(more);
  } finally {
    await callers.close();
    for (const pool of pools) await pool.end();
    await server.stop();
  }
});

test.run();
