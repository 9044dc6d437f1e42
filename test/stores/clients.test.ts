import type { EventEmitter } from "node:events";
import { type RedisConfigNodejs, Redis as Upstash } from "@upstash/redis";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis-5";
import { Redis as Valkey, Cluster as ValkeyCluster } from "iovalkey";
import { createClient, createClientPool, createCluster } from "redis";
import * as v4 from "redis-4";
import * as v5 from "redis-5";
import * as assert from "uvu/assert";
import { allOf, fixedWindow, smoothBursty } from "../../src/index.ts";
import {
  type RedisClient,
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
  type ScriptRunner,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { type Script, scriptRunner } from "../../src/stores/redis/client.ts";
import { isPermanent } from "../../src/stores/redis/permanent.ts";
import { failure } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { type RedisCluster, startCluster } from "../support/redis/cluster.ts";
import { startProxy } from "../support/redis/proxy.ts";
import { type RedisServer, startRedis } from "../support/redis/server.ts";
import { startUpstash, TOKEN } from "../support/redis/upstash-server.ts";
import { suite } from "../support/suite.ts";

/** A client, and whether it still answers: limiters never close it. */
interface Opened {
  readonly client: RedisClient;
  /**
   * Whether it opens subscriptions by itself, so that a concurrency limiter needs no `subscriber`.
   */
  readonly subscribes: boolean;
  flushScripts(): Promise<unknown>;
  isAlive(): Promise<unknown>;
  close(): unknown;
}

type Open = (server: RedisServer) => Opened | Promise<Opened>;

/** What all clients like ioredis have in common. */
function likeIoredis(
  redis: RedisClient & {
    script(word: "FLUSH"): Promise<unknown>;
    ping(): Promise<string>;
    disconnect(): void;
  },
): Opened {
  return {
    client: redis,
    subscribes: true,
    flushScripts: () => redis.script("FLUSH"),
    isAlive: async () => assert.is(await redis.ping(), "PONG"),
    close: () => redis.disconnect(),
  };
}

function likeNodeRedis(
  redis: RedisClient & {
    scriptFlush(): Promise<unknown>;
    ping(): Promise<unknown>;
    destroy(): unknown;
  },
): Opened {
  return {
    client: redis,
    subscribes: "duplicate" in redis && "subscribe" in redis,
    flushScripts: () => redis.scriptFlush(),
    isAlive: async () => assert.is(`${await redis.ping()}`, "PONG"),
    close: () => redis.destroy(),
  };
}

function likeUpstash(options: Partial<RedisConfigNodejs>): Open {
  return async ({ url }) => {
    const upstash = await startUpstash(url);
    const redis = new Upstash({ url: upstash.url, token: TOKEN, ...options });
    return {
      client: redis,
      subscribes: true,
      flushScripts: () => redis.scriptFlush(),
      isAlive: async () => assert.is(await redis.ping(), "PONG"),
      close: () => upstash.close(),
    };
  };
}

async function connected<T extends { connect(): Promise<unknown> }>(pool: T): Promise<T> {
  await pool.connect();
  return pool;
}

const clients: Record<string, Open> = {
  "ioredis 6": ({ url }) => likeIoredis(new Redis(url)),
  "ioredis 6, automatic pipelining": ({ url }) =>
    likeIoredis(new Redis(url, { enableAutoPipelining: true })),
  "ioredis 6, not connected yet": ({ url }) => likeIoredis(new Redis(url, { lazyConnect: true })),
  "ioredis 5": ({ url }) => likeIoredis(new Redis5(url)),
  iovalkey: ({ url }) => likeIoredis(new Valkey(url)),
  "redis 6": async ({ url }) => likeNodeRedis(await createClient({ url }).connect()),
  "redis 6, RESP 2": async ({ url }) =>
    likeNodeRedis(await createClient({ url, RESP: 2 }).connect()),
  "redis 6, a pool": async ({ url }) => likeNodeRedis(await connected(createClientPool({ url }))),
  "redis 5": async ({ url }) => likeNodeRedis(await v5.createClient({ url }).connect()),
  "redis 5, a pool": async ({ url }) =>
    likeNodeRedis(await connected(v5.createClientPool({ url }))),
  "redis 4": async ({ url }) => {
    const redis = v4.createClient({ url });
    await redis.connect();
    return {
      client: redis,
      subscribes: true,
      flushScripts: () => redis.scriptFlush(),
      isAlive: async () => assert.is(await redis.ping(), "PONG"),
      close: () => redis.disconnect(),
    };
  },
  "@upstash/redis": likeUpstash({}),
  "@upstash/redis, without automatic pipelining": likeUpstash({ enableAutoPipelining: false }),
  "@upstash/redis, as text": likeUpstash({
    responseEncoding: false,
    automaticDeserialization: false,
  }),
  "an object of the application": ({ url }) => {
    const redis = new Redis(url);
    const runner: ScriptRunner = {
      runScript: (script, keys, args) => redis.eval(script.lua, keys.length, ...keys, ...args),
    };
    return { ...likeIoredis(redis), client: runner, subscribes: false };
  },
};

const single = suite("redis clients");
let server: RedisServer;

single.before(async () => {
  await redisServer();
  server = await startRedis();
});

single.after(async () => {
  await server.stop();
});

/**
 * Everything that limiters need of a client: both scripts, also when the server forgot them;
 * errors.
 */
async function exercise(
  { client, subscribes, flushScripts, isAlive }: Opened,
  wrongTyped: () => unknown,
) {
  const limiter = RedisRateLimiter.create(client, "a", 0.001, PATIENT);
  assert.is(await limiter.tryAcquire(), true);
  assert.is(await limiter.tryAcquire(), false);
  const { allowed, waitMs } = await limiter.decide();
  assert.ok(!allowed && waitMs > 900_000 && waitMs <= 1_000_000);
  await flushScripts();
  assert.is(await limiter.tryAcquire(), false);
  assert.is((await limiter.peek()).allowed, false);

  const fast = RedisRateLimiter.create(client, "fast", 1e6, PATIENT);
  await Promise.all(Array.from({ length: 100 }, () => fast.acquire()));
  const reservation = await fast.reserve(1e9);
  await fast.setRate(1000);
  assert.is(fast.getRate(), 1000);
  const next = await fast.reserve();
  assert.ok(next.waitMs > 900_000 && next.waitMs <= 1_000_100, `${next.waitMs} ms`);
  assert.is(await next.cancel(), true);
  await reservation.ready();

  const two = RedisLimiter.create(
    client,
    "名 {a}\n",
    { one: smoothBursty({ permitsPerSecond: 1 }), two: smoothBursty({ permitsPerSecond: 1 / 3 }) },
    PATIENT,
  );
  assert.is(await two.tryAcquire({ one: 1, two: 2 }), true);
  assert.is((await two.decide()).policy, "two");

  const places = () =>
    RedisConcurrencyLimiter.create(client, "places", 1, {
      ...PATIENT,
      ...PATIENT,
      leaseMs: 300_000,
    });
  if (subscribes) await handOver(places(), places());
  else assert.throws(places, /cannot be duplicated, or cannot subscribe: .*options.subscriber/);

  await wrongTyped();
  const wrong = await failure(() => RedisRateLimiter.create(client, "list", 5, PATIENT).acquire());
  assert.instance(wrong, StoreUnavailableError);
  assert.match(`${(wrong as Error).cause}`, "WRONGTYPE");
  await isAlive();
}

/** Without a message the waiting caller would get its place after a third of leaseMs. */
async function handOver(one: RedisConcurrencyLimiter, other: RedisConcurrencyLimiter) {
  const lease = await one.acquire();
  const waiting = other.acquire();
  await until("a ticket", async () => (await one.peek()).waiting === 1);
  await lease.release();
  await (await waiting).release();
  await Promise.all([one.close(), other.close()]);
}

/** Closes a limiter while the client that it made for its subscription connects. */
async function closeEarly({ client }: Opened, nodes: readonly RedisServer[]) {
  const connections = async () => {
    const lists = await Promise.all(nodes.map((node) => node.ask("CLIENT", "LIST")));
    return lists.join("").match(/^id=/gm)?.length ?? 0;
  };
  const before = await connections();
  const make = client as unknown as { duplicate(): { connect(): Promise<unknown> } };
  const { duplicate } = make;
  const begun = new Promise<{ connected: Promise<unknown> }>((resolve) => {
    make.duplicate = (...args) => {
      const own = duplicate.apply(client, args);
      const { connect } = own;
      own.connect = () => {
        const connected = connect.call(own);
        resolve({ connected });
        return connected;
      };
      return own;
    };
  });
  const options = { ...PATIENT, leaseMs: 300_000 };
  const [holder, waiter] = [0, 1].map(() =>
    RedisConcurrencyLimiter.create(client, "early", 1, options),
  ) as [RedisConcurrencyLimiter, RedisConcurrencyLimiter];
  const lease = await holder.acquire();
  const waiting = failure(() => waiter.acquire());
  const { connected } = await begun;
  await waiter.close();
  await Promise.allSettled([connected, waiting]);
  await lease.release();
  await holder.close();
  await until("no connection is left", async () => (await connections()) === before);
}

for (const [name, open] of Object.entries(clients)) {
  if (!name.startsWith("redis") || name.includes("pool")) continue;
  single(
    `${name}: a limiter closed while its subscription connects leaves no connection`,
    async () => {
      const opened = await open(server);
      try {
        await closeEarly(opened, [server]);
      } finally {
        await opened.close();
      }
    },
  );
}

for (const [name, open] of Object.entries(clients)) {
  single(`${name}: limits, and stays open`, async () => {
    await server.ask("FLUSHALL");
    await server.ask("SCRIPT", "FLUSH");
    const opened = await open(server);
    try {
      await exercise(opened, () => server.ask("LPUSH", "l:list", "foreign"));
      const keys = (await server.ask("KEYS", "*")) as string[];
      assert.is(keys.length, 4);
    } finally {
      await opened.close();
    }
  });
}

/** Clients with connection events; a pool has none. */
const reporting = Object.keys(clients).filter(
  (name) => /^(ioredis|iovalkey|redis)/.test(name) && !/pool|not connected/.test(name),
);

for (const name of reporting) {
  single(`${name}: reports a cut connection, so no call waits for its time-out`, async () => {
    const proxy = await startProxy(server.port);
    const opened = await clients[name]?.({ url: proxy.url } as RedisServer);
    if (opened === undefined) return assert.unreachable();
    const client = opened.client as RedisClient & EventEmitter;
    client.on("error", () => {});
    try {
      const options = { ...PATIENT, whenUnavailable: "local", instances: 1 } as const;
      const limiter = RedisRateLimiter.create(client, "reported", 1000, options);
      await limiter.acquire();
      const noticed = new Promise((resolve) => client.once("reconnecting", resolve));
      await proxy.cut();
      await noticed;
      const asked = performance.now();
      await limiter.acquire();
      assert.ok(performance.now() - asked < PATIENT.timeoutMs / 2);
      assert.is(limiter.state, "unavailable");
      await proxy.open();
      await until("the end of the outage", () => limiter.state === "ready");
      await limiter.close();
    } finally {
      await opened.close();
      await proxy.stop();
    }
  });
}

single("calls of the application's own client may share the turn with a limiter's", async () => {
  await server.ask("FLUSHALL");
  const redis = new Redis(server.url, { enableAutoPipelining: true });
  try {
    const limiter = RedisRateLimiter.create(redis, "a", 1000, PATIENT);
    const other = RedisRateLimiter.create(redis, "b", 1000, PATIENT);
    const all = await Promise.all([
      redis.set("mine", "1"),
      limiter.acquire(),
      redis.get("mine"),
      other.tryAcquire(),
      limiter.decide(),
    ]);
    assert.equal(all.slice(0, 4), ["OK", 0, "1", true]);
  } finally {
    redis.disconnect();
  }
});

single("a client that is not connected yet, or no longer, causes no hang", async () => {
  const closed = new Redis(server.url);
  closed.disconnect();
  const unreachable = new Redis("redis://127.0.0.1:1", {
    lazyConnect: true,
    disconnectTimeout: 50,
  });
  unreachable.on("error", () => {});
  const never = createClient({ url: server.url });
  never.on("error", () => {});
  const destroyed = await createClient({ url: server.url }).connect();
  destroyed.destroy();
  for (const client of [closed, unreachable, never, destroyed]) {
    const limiter = RedisRateLimiter.create(client, "a", 5, { timeoutMs: 200 });
    assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
    assert.instance(await failure(() => limiter.tryAcquire()), StoreUnavailableError);
  }
  unreachable.disconnect();
});

single.run();

const clusters = suite("redis clients, cluster");
let cluster: RedisCluster;

clusters.before(async () => {
  await redisServer();
  cluster = await startCluster(3);
});

clusters.after(async () => {
  await cluster.stop();
});

type OpenCluster = (nodes: readonly RedisServer[]) => Opened | Promise<Opened>;

const ofCluster = {
  subscribes: true,
  // a cluster object asks a node of its own choice; all must have forgotten the script
  flushScripts: () => Promise.all(cluster.masters.map((node) => node.ask("SCRIPT", "FLUSH"))),
};

function likeIoredisCluster(
  client: RedisClient & { get(key: string): Promise<string | null>; disconnect(): void },
): Opened {
  return {
    ...ofCluster,
    client,
    isAlive: async () => assert.is(await client.get("nothing"), null),
    close: () => client.disconnect(),
  };
}

const clusterClients: Record<string, OpenCluster> = {
  "ioredis 6": (nodes) => likeIoredisCluster(new Cluster([...nodes])),
  "ioredis 6, automatic pipelining": (nodes) =>
    likeIoredisCluster(new Cluster([...nodes], { enableAutoPipelining: true })),
  "ioredis 5": (nodes) => likeIoredisCluster(new Cluster5([...nodes])),
  iovalkey: (nodes) => likeIoredisCluster(new ValkeyCluster([...nodes])),
  "redis 6": async (nodes) => {
    const client = await createCluster({ rootNodes: nodes.map(({ url }) => ({ url })) }).connect();
    return {
      ...ofCluster,
      client,
      isAlive: async () => assert.is(await client.get("nothing"), null),
      close: () => client.destroy(),
    };
  },
  "redis 4": async (nodes) => {
    const client = v4.createCluster({ rootNodes: nodes.map(({ url }) => ({ url })) });
    await client.connect();
    return {
      ...ofCluster,
      client,
      isAlive: async () => assert.is(await client.get("nothing"), null),
      close: () => client.disconnect(),
    };
  },
  "redis 5": async (nodes) => {
    const rootNodes = nodes.map(({ url }) => ({ url }));
    const client = await v5.createCluster({ rootNodes }).connect();
    return {
      ...ofCluster,
      client,
      isAlive: async () => assert.is(await client.get("nothing"), null),
      close: () => client.destroy(),
    };
  },
};

async function flushCluster(): Promise<void> {
  await Promise.all(cluster.masters.map((node) => node.ask("FLUSHALL")));
}

for (const [name, open] of Object.entries(clusterClients)) {
  clusters(`${name}: limits, on every node, and stays open`, async () => {
    await flushCluster();
    const opened = await open(cluster.masters);
    try {
      await exercise(opened, async () => {
        const tried = cluster.masters.map((node) => failureOrNot(node.ask("LPUSH", "l:list", "x")));
        await Promise.all(tried);
      });
      const limiters = Array.from({ length: 30 }, (_, i) =>
        RedisRateLimiter.create(opened.client, `limiter ${i}`, 0.001, PATIENT),
      );
      const first = await Promise.all(limiters.map((limiter) => limiter.tryAcquire()));
      const second = await Promise.all(limiters.map((limiter) => limiter.tryAcquire()));
      assert.equal([new Set(first), new Set(second)], [new Set([true]), new Set([false])]);
      const sizes = await Promise.all(cluster.masters.map((node) => node.ask("DBSIZE")));
      assert.ok(
        sizes.every((size) => Number(size) > 0),
        `${sizes}`,
      );
    } finally {
      await opened.close();
    }
  });
}

for (const [name, open] of Object.entries(clusterClients)) {
  if (!name.startsWith("redis")) continue;
  clusters(
    `${name}: a limiter closed while its subscription connects leaves no connection`,
    async () => {
      const opened = await open(cluster.masters);
      try {
        await closeEarly(opened, cluster.masters);
      } finally {
        await opened.close();
      }
    },
  );
}

for (const [name, open] of Object.entries(clusterClients)) {
  clusters(`${name}: limiters of one hash tag are charged together, others singly`, async () => {
    await flushCluster();
    const opened = await open(cluster.masters);
    try {
      const policy = fixedWindow({ limit: 2, windowMs: 60_000, align: "first" });
      const make = (key: string, hashTag?: string) =>
        RedisLimiter.create(opened.client, key, policy, { ...PATIENT, ...PATIENT, hashTag });
      const tagged = [make("wide", "shop"), make("narrow", "shop")] as const;
      await tagged[1].acquire(2);
      const together = allOf(...tagged);
      const refused = await Promise.all(Array.from({ length: 20 }, () => together.tryAcquire()));
      assert.equal(new Set(refused), new Set([false]));
      assert.is((await tagged[0].peek()).remaining, 2, "a refusal charges none");
      await tagged[1].refund(1);
      assert.equal([await together.tryAcquire(), await together.tryAcquire()], [true, false]);
      assert.is((await tagged[0].peek()).remaining, 1);

      const apart = Array.from({ length: 6 }, (_, i) => make(`apart ${i}`));
      const spread = allOf(...apart);
      assert.equal(
        [await spread.tryAcquire(), await spread.tryAcquire(), await spread.tryAcquire()],
        [true, true, false],
      );
    } finally {
      await opened.close();
    }
  });
}

/** Two of the three nodes are not responsible for the key. */
async function failureOrNot(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => error);
}

clusters.run();

const choosing = suite("redis clients, choosing");

const SCRIPT: Script = { name: "x", lua: "return 1" };

choosing("a client is recognized by what it can do, not by its name", async () => {
  const calls: unknown[] = [];
  const own = {
    runScript: async (...args: unknown[]) => calls.push(args),
    defineCommand: () => assert.unreachable(),
  };
  await scriptRunner(own).runScript(SCRIPT, ["k"], ["a"]);
  assert.equal(calls, [[SCRIPT, ["k"], ["a"]]]);
  assert.is(scriptRunner(own), own);

  const hashes: string[] = [];
  const nodeRedis = {
    evalSha: async (sha1: string, options: unknown) => {
      hashes.push(sha1);
      assert.equal(options, { keys: ["k"], arguments: ["a", "b"] });
      throw new Error(hashes.length > 1 ? "ERR something else" : "NOSCRIPT No matching script");
    },
    eval: async (script: string, options: unknown) => [script, options],
  };
  const runner = scriptRunner(nodeRedis);
  assert.equal(await runner.runScript(SCRIPT, ["k"], ["a", "b"]), [
    "return 1",
    { keys: ["k"], arguments: ["a", "b"] },
  ]);
  assert.match(
    `${await failure(() => runner.runScript(SCRIPT, ["k"], ["a", "b"]))}`,
    "something else",
  );
  const sha1 = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
  assert.equal(hashes, [sha1, sha1]);
});

choosing("a script is sent by its hash, and as text where the server forgot it", async () => {
  const sent: unknown[] = [];
  let known = false;
  const ioredis = {
    async evalsha(...call: unknown[]) {
      sent.push(["evalsha", ...call.slice(1)]);
      if (!known) throw new Error("NOSCRIPT No matching script");
      return "by hash";
    },
    async eval(...call: unknown[]) {
      sent.push(["eval", ...call]);
      known = true;
      return "whole";
    },
  };
  const runner = scriptRunner(ioredis);
  assert.is(await runner.runScript(SCRIPT, ["k"], ["a"]), "whole");
  assert.is(await runner.runScript(SCRIPT, ["k"], ["a"]), "by hash");
  const args = [1, "k", "a"];
  assert.equal(sent, [
    ["evalsha", ...args],
    ["eval", SCRIPT.lua, ...args],
    ["evalsha", ...args],
  ]);
});

choosing("an object that is no client is refused, and the error says what would be one", () => {
  const strange = [undefined, null, 5, "redis://localhost", {}, [], () => {}, { get() {} }];
  for (const bad of [...strange, { runScript: "no" }, new Map()] as never[]) {
    assert.throws(
      () => RedisRateLimiter.create(bad, "a", 5, PATIENT),
      (error: unknown) => error instanceof TypeError && /runScript/.test(error.message),
    );
  }
});

choosing("an object that only looks like a client is refused with the likely mistake", async () => {
  const ioredis = new Redis({ lazyConnect: true });
  const nodeRedis = createClient();
  const verb = () => {};
  const cases: [client: unknown, mistake: RegExp][] = [
    ["redis://localhost", /got a URL/],
    [Promise.resolve(ioredis), /got a promise: await it/],
    [Redis, /got a function: .* with new/],
    [{ query: verb }, /got a client of PostgreSQL: postgresStore makes/],
    [Object.assign(() => {}, { unsafe: verb }), /got a client of PostgreSQL/],
    [ioredis.pipeline(), /got a pipeline or transaction/],
    [ioredis.multi(), /got a pipeline or transaction/],
    [nodeRedis.multi(), /got a pipeline or transaction/],
    [{ evalsha: verb, eval: verb, internal_send_command: verb }, /got a client of node-redis 3/],
    [
      new Upstash({ url: "http://localhost", token: "x" }).pipeline(),
      /got a pipeline or transaction/,
    ],
    [new Upstash({ url: "http://localhost", token: "x" }).multi(), /got a pipeline or transaction/],
    [{ send: verb, close: verb }, /got an object/],
    [{ evalsha: verb }, /but no eval/],
    [{ evalSha: verb }, /but no eval/],
    [{}, /got an object/],
    [5, /got 5/],
  ];
  for (const [client, mistake] of cases) {
    const create = () => RedisRateLimiter.create(client as RedisClient, "a", 5, PATIENT);
    assert.throws(create, mistake);
    assert.throws(create, /redis must be a client of ioredis .*createSentinel.*runScript/);
  }
});

for (const [name, evalsha] of Object.entries({
  "does not return a promise": (): unknown => 42,
  throws: (): unknown => {
    throw new Error("broken");
  },
})) {
  choosing(`a client that ${name} fails calls, and causes no other error`, async () => {
    const client = { evalsha, eval: evalsha } as unknown as RedisClient;
    const one = RedisRateLimiter.create(client, "a", 5, PATIENT);
    const both = allOf(one, RedisRateLimiter.create(client, "b", 5, PATIENT));
    // its hash is known from the second call on
    for (let i = 0; i < 2; i++) {
      for (const ask of [() => one.tryAcquire(), () => both.tryAcquire()]) {
        const error = (await failure(ask)) as StoreUnavailableError;
        assert.instance(error, StoreUnavailableError);
        assert.match(`${error.cause}`, name === "throws" ? "broken" : /answers with 42/);
      }
    }
  });
}

const redirects = suite("redis clients, redirections");

const moved = () => new Error("MOVED 5 127.0.0.1:7002");

redirects("a redirection that a Cluster client passes on is followed, with new slots", async () => {
  let isStale = true;
  const runs: string[] = [];
  const cluster = {
    nodes: () => [],
    refreshSlotsCache: (done: () => void) => {
      runs.push("refresh");
      isStale = false;
      done();
    },
    evalsha: async () => {
      runs.push("run");
      if (isStale) throw moved();
      return "done";
    },
    eval: async () => "",
  };
  const runner = scriptRunner(cluster);
  assert.equal(await Promise.all([1, 2].map(() => runner.runScript(SCRIPT, ["k"], []))), [
    "done",
    "done",
  ]);
  assert.is(runs.filter((one) => one === "refresh").length, 1);
});

redirects("a missing slot table, other errors and endless redirections are errors", async () => {
  const errors = [new Error("ASK 5 b:1"), new Error("TRYAGAIN later"), new Error("ERR else")];
  const cluster = {
    nodeClient: () => {},
    evalSha: async () => {
      throw errors.shift() ?? moved();
    },
    eval: async () => "",
  };
  const runner = scriptRunner(cluster);
  assert.is(String(await failure(() => runner.runScript(SCRIPT, ["k"], []))), "Error: ERR else");
  const last = await failure(() => runner.runScript(SCRIPT, ["k"], []));
  assert.match(String(last), /redirected 6 times, the last time by MOVED 5/);
  assert.not.ok(isPermanent(last));
  // a single server is no Cluster: it does not serve the key, and never will
  const single = { evalsha: async () => Promise.reject(moved()), eval: async () => "" };
  const refused = await failure(() => scriptRunner(single).runScript(SCRIPT, ["k"], []));
  assert.ok(isPermanent(refused));
});

redirects("a slot table that does not arrive in time is given up", async () => {
  let isFirst = true;
  const cluster = {
    nodes: () => [],
    refreshSlotsCache: () => {},
    evalsha: async () => {
      if (!isFirst) return "done";
      isFirst = false;
      throw moved();
    },
    eval: async () => "",
  };
  assert.is(await scriptRunner(cluster).runScript(SCRIPT, ["k"], []), "done");
});

redirects.run();

choosing.run();
