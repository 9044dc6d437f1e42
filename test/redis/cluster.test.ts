/** A real Cluster of which one master falls silent, with a limiter for each of many keys. */
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import * as assert from "uvu/assert";
import { smoothBursty } from "../../src/index.ts";
import {
  type RedisClient,
  RedisLimiter,
  type RedisPoliciesOptions,
} from "../../src/redis/index.ts";
import { slotOf } from "../../src/stores/redis/cluster-slots.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { type RedisCluster, startCluster } from "../support/redis/cluster.ts";
import type { RedisServer } from "../support/redis/server.ts";
import { isTried, runs, suite } from "../support/suite.ts";

const test = suite("many keys on a Cluster, one master silent", { timeoutMs: 120_000 });
let cluster: RedisCluster;

test.before(async () => {
  await redisServer();
  // the other nodes must not consider it dead while it is silent
  cluster = await startCluster(3, { nodeTimeoutMs: 60_000 });
});

test.after(async () => {
  await cluster.stop();
});

const { setTimeout: setReal } = globalThis;
const sleep = (ms: number) => new Promise((resolve) => setReal(resolve, ms));

interface Opened {
  readonly client: RedisClient;
  close(): unknown;
}

const clients: Record<string, () => Promise<Opened>> = {
  ioredis: async () => {
    const client = new Cluster(cluster.masters.map(({ host, port }) => ({ host, port })));
    client.on("error", () => {});
    return { client, close: () => client.disconnect() };
  },
  "node-redis": async () => {
    const rootNodes = cluster.masters.map(({ url }) => ({ url }));
    const client = await createCluster({ rootNodes })
      .on("error", () => {})
      .connect();
    return { client, close: () => client.destroy() };
  },
};

async function scriptsRun(node: RedisServer): Promise<number> {
  const stats = `${await node.ask("INFO", "commandstats")}`;
  const calls = /cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1];
  return Number(calls ?? 0);
}

const KEYS = runs(600, 150);

const modes: readonly RedisPoliciesOptions[] = [
  { whenUnavailable: "throw" },
  { whenUnavailable: "wait" },
  { whenUnavailable: "local", instances: 2 },
];

for (const [c, [name, open]] of Object.entries(clients).entries()) {
  for (const [m, mode] of modes.entries()) {
    if (!isTried(c, m)) continue;
    test(`${name}, "${mode.whenUnavailable}": one probe at a time, and the other masters answer`, async () => {
      const { client, close } = await open();
      const [silent, ...others] = cluster.masters as [RedisServer, RedisServer, RedisServer];
      try {
        // full again soon: what a key has used and not regained is sent to its node after recovery
        const policy = smoothBursty({ permitsPerSecond: 1000, burstSeconds: 0.01 });
        const options = { timeoutMs: 1500, ...mode };
        const limiter = RedisLimiter.create(
          client,
          `${name} ${mode.whenUnavailable}`,
          policy,
          options,
        );
        const isSilent = (key: string) => slotOf(`l:${name} ${mode.whenUnavailable}[${key}`) < 5461;
        const all = Array.from({ length: 3 * KEYS }, (_, i) => `key ${i}`);
        const away = all.filter(isSilent);
        const there = all.filter((key) => !isSilent(key));
        for (const key of [...away.slice(0, 3), ...there.slice(0, 9)])
          await limiter.for(key).peek();
        const before = await scriptsRun(silent);
        silent.suspend();
        // one call detects the outage for all keys of the node
        await limiter
          .for(String(away[0]))
          .tryAcquire(1, 100)
          .catch(() => {});
        let answered = 0;
        const asked = away.map((key) =>
          limiter
            .for(key)
            .tryAcquire(1, 100)
            .catch(() => {}),
        );
        for (const key of there) if (await limiter.for(key).tryAcquire()) answered += 1;
        assert.is(answered, there.length);
        await Promise.all(asked);
        await sleep(500);
        silent.resume();
        await limiter
          .for("one")
          .tryAcquire(1, 5000)
          .catch(() => {});
        await sleep(200);
        const runs = (await scriptsRun(silent)) - before;
        assert.ok(runs < 60, `${runs} scripts for ${away.length} keys`);
        for (const other of others) assert.ok((await scriptsRun(other)) > 100);
      } finally {
        if (silent.suspended) silent.resume();
        close();
      }
    });
  }
}

test("ioredis with automatic pipelining: after failovers no caller gets a redirection", async () => {
  await using replicated = await startCluster(3, { replicas: 1 });
  const nodes = replicated.masters.map(({ host, port }) => ({ host, port }));
  const client = new Cluster(nodes, { enableAutoPipelining: true });
  client.on("error", () => {});
  try {
    for (const whenUnavailable of ["throw", "wait"] as const) {
      const options = { timeoutMs: 10_000, whenUnavailable };
      const policy = smoothBursty({ permitsPerSecond: 1000 });
      const limiter = RedisLimiter.create(client, `moved ${whenUnavailable}`, policy, options);
      const keys = Array.from({ length: 60 }, (_, i) => limiter.for(`key ${i}`));
      const ask = () => Promise.all(keys.map((key) => key.tryAcquire(1, 20_000)));
      await ask();
      await replicated.failover(0);
      await replicated.failover(1);
      for (let i = 0; i < 2; i++) assert.ok((await ask()).every((isIn) => isIn));
    }
  } finally {
    client.disconnect();
  }
});

test("slots are computed like the server's", async () => {
  const [node] = cluster.masters as [RedisServer];
  const keys = [
    "",
    "a",
    "l:github",
    "{}a",
    "{a}b",
    "b{a}",
    "b{a}{c}",
    "{{a}}",
    "a}b{c}",
    "a{b",
    "ü€",
  ];
  for (const key of keys) {
    const bytes = Buffer.from(key).toString("latin1");
    assert.is(slotOf(key), await node.ask("CLUSTER", "KEYSLOT", bytes), key);
  }
});

test.run();
