import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { Cluster, Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { Redis as Valkey } from "iovalkey";
import { createClient, createClientPool, createCluster } from "redis";
import * as v5 from "redis-5";
import * as assert from "uvu/assert";
import {
  LeaseLostError,
  type RedisClient,
  RedisConcurrencyLimiter,
  type RedisConcurrencyOptions,
  type RedisLease,
  type RedisSubscriber,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { type LeaseRequest, leaseId } from "../../src/stores/lease-store.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { RedisLeaseStore } from "../../src/stores/redis/redis-lease-store.ts";
import { bundled } from "../support/bundled.ts";
import { HandLeaseStore, slotsOf } from "../support/limiter/lease-store.ts";
import { failure } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { startCluster } from "../support/redis/cluster.ts";
import { startProxy } from "../support/redis/proxy.ts";
import { freshUrl, type RedisServer, sharedRedis, startRedis } from "../support/redis/server.ts";
import { isTried, runs, suite } from "../support/suite.ts";

const LEASE_MS = 900;
const leaseHolder = bundled("test/support/programs/lease-holder.ts");

/** A test's own clients and limiters, all closed with it. */
class Bench implements AsyncDisposable {
  readonly #ends: (() => unknown)[] = [];
  readonly url: string;
  readonly redis: Redis;

  private constructor(url: string) {
    this.url = url;
    this.redis = new Redis(url);
    this.#ends.push(() => this.redis.disconnect());
  }

  static async open(url?: string): Promise<Bench> {
    return new Bench(url ?? (await freshUrl()));
  }

  limiter(limit: number, options: RedisConcurrencyOptions = {}, client: RedisClient = this.redis) {
    const all = { ...PATIENT, ...options };
    const limiter = RedisConcurrencyLimiter.create(client, "pages", limit, all);
    this.#ends.unshift(() => limiter.close());
    return limiter;
  }

  async child(): Promise<ChildProcess> {
    const env = { ...process.env, NODE_V8_COVERAGE: "" };
    const child = fork(await leaseHolder, [this.url, `${LEASE_MS}`], { env, execArgv: [] });
    this.#ends.push(() => child.kill("SIGKILL"));
    assert.is((await once(child, "message"))[0], "ready");
    return child;
  }

  onEnd(end: () => unknown): void {
    this.#ends.push(end);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends) await end();
  }
}

const test = suite("concurrency on Redis");

test.before(async () => {
  await redisServer();
});

/** Two limiters pass one place back and forth: each wait ends by a message. */
async function handOver(one: RedisConcurrencyLimiter, other: RedisConcurrencyLimiter) {
  const order: string[] = [];
  const ask = (who: string, limiter: RedisConcurrencyLimiter) =>
    limiter.acquire().then((lease) => {
      order.push(who);
      return lease;
    });
  const first = await one.acquire();
  assert.is(await other.tryAcquire(), undefined);
  const asked: Promise<RedisLease>[] = [];
  for (const [i, limiter] of [other, one, other, one].entries()) {
    asked.push(ask(`${i}`, limiter));
    await until("the ticket", async () => (await one.peek()).waiting === i + 1);
  }
  await first.release();
  for (const lease of asked) await (await lease).release();
  assert.equal(order, ["0", "1", "2", "3"]);
  assert.equal(await other.peek(), { limit: 1, active: 0, waiting: 0 });
}

type Open = (
  url: string,
) => [RedisClient, end: () => unknown] | Promise<[RedisClient, () => unknown]>;

const clients: Record<string, Open> = {
  "ioredis 6": (url) => {
    const redis = new Redis(url, { keyPrefix: "mine:" });
    return [redis, () => redis.disconnect()];
  },
  "ioredis 6, without an offline queue": async (url) => {
    const redis = new Redis(url, { enableOfflineQueue: false });
    await once(redis, "ready");
    return [redis, () => redis.disconnect()];
  },
  "ioredis 5": (url) => {
    const redis = new Redis5(url);
    return [redis, () => redis.disconnect()];
  },
  iovalkey: (url) => {
    const redis = new Valkey(url);
    return [redis, () => redis.disconnect()];
  },
  "redis 6": async (url) => {
    const redis = await createClient({ url }).connect();
    return [redis as RedisClient, () => redis.destroy()];
  },
  "redis 5": async (url) => {
    const redis = await v5.createClient({ url }).connect();
    return [redis as RedisClient, () => redis.destroy()];
  },
};

for (const [name, openClient] of Object.entries(clients)) {
  test(`${name}: messages pass places to waiters, in order`, async () => {
    await using bench = await Bench.open();
    const [client, end] = await openClient(bench.url);
    bench.onEnd(end);
    // polling alone would take far too long
    const options = { leaseMs: 600_000 };
    await handOver(bench.limiter(1, options, client), bench.limiter(1, options, client));
    await bench.redis.script("FLUSH");
    await handOver(bench.limiter(1, options, client), bench.limiter(1, options, client));
  });
}

test("a given subscriber is shared and left open", async () => {
  await using bench = await Bench.open();
  const ioredis = new Redis(bench.url);
  const nodeRedis = await createClient({ url: bench.url }).connect();
  const pool = createClientPool({ url: bench.url });
  await pool.connect();
  bench.onEnd(() => [ioredis.disconnect(), nodeRedis.destroy(), pool.destroy()]);
  for (const subscriber of [ioredis, nodeRedis] as RedisSubscriber[]) {
    const options = { leaseMs: 600_000, subscriber };
    const one = bench.limiter(1, options, pool as RedisClient);
    const other = bench.limiter(1, options);
    await handOver(one, other);
    await one.close();
    await other.close();
  }
  const channels = async () => await bench.redis.pubsub("CHANNELS", "c:pages:*");
  await until("no subscription", async () => (await channels()).length === 0);
  assert.is(await ioredis.subscribe("mine"), 1);
  assert.is(ioredis.listenerCount("message") + nodeRedis.listenerCount("ready"), 0);
  assert.is(await nodeRedis.ping(), "PONG");
});

test("a client without duplicate() needs a subscriber; arguments are checked", async () => {
  await using bench = await Bench.open();
  const { redis } = bench;
  const runner = { runScript: () => Promise.resolve("1 0 0 -1\t0") };
  const create =
    (options: unknown, client: unknown = redis, limit: unknown = 1) =>
    () =>
      RedisConcurrencyLimiter.create(
        client as RedisClient,
        "pages",
        limit as number,
        options as RedisConcurrencyOptions,
      );
  for (const [action, words] of [
    [create({}, runner), /subscriber/],
    [create({}, {}), /redis must be/],
    [create({ subscriber: {} }), /subscriber must have/],
    [create({}, redis, 0), /limit must be a whole number/],
    [create({ leaseMs: 0 }), /leaseMs must be/],
    [create({ leaseMs: 2 ** 31 }), /leaseMs must be/],
    [create({ timeoutMs: 0 }), /timeoutMs/],
    [create({ maxWaiting: -1 }), /maxWaiting/],
    [create({ prefix: 1 }), /prefix/],
    [create({ whenUnavailable: "hope" }), /whenUnavailable.*throw, wait/],
    [create({ whenUnavailable: "local" }), /needs instances/],
    [create({ whenUnavailable: "local", instances: 0 }), /instances must be .*, got 0/],
    [create({ instances: () => 0 }), /instances\(\) must be/],
    [create({ lease: 1 }), /lease/],
    [() => RedisConcurrencyLimiter.create(redis, "", 1), /name/],
  ] as const) {
    assert.throws(action, words);
  }
  const subscriber: RedisSubscriber = {
    subscribe: () => Promise.resolve(),
    unsubscribe: () => Promise.resolve(),
  };
  const own = create({ subscriber }, runner)();
  assert.is(await own.tryAcquire(), undefined);
  assert.is(own.limit, 1);
  const wrong = create({ subscriber }, { runScript: () => Promise.resolve("OK") })();
  assert.match(`${((await failure(() => wrong.tryAcquire())) as Error).cause}`, 'answered "OK"');
});

test("connections: one to subscribe while a caller waits, none afterwards", async () => {
  await using bench = await Bench.open();
  const limiter = bench.limiter(1);
  const channels = async () => (await bench.redis.pubsub("CHANNELS", "c:pages:*")).length;
  const lease = await limiter.acquire();
  assert.is(await channels(), 0);
  const waits = limiter.acquire();
  const aside = limiter.tryAcquire(1, 10);
  await until("a subscription", async () => (await channels()) === 1);
  assert.is(await aside, undefined);
  await lease.release();
  await waits;
  await until("no subscription", async () => (await channels()) === 0);
});

test("Cluster: one key, in its slot, and messages from any node", async () => {
  await using cluster = await startCluster(3);
  const nodes = cluster.nodes.map(({ host, port }) => ({ host, port }));
  const ioredis = new Cluster(nodes);
  const nodeRedis = createCluster({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) });
  await nodeRedis.connect();
  try {
    const open = (client: unknown, name: string) =>
      RedisConcurrencyLimiter.create(client as RedisClient, name, 1, {
        ...PATIENT,
        leaseMs: 600_000,
      });
    for (const name of ["a", "b", "c"]) {
      const limiters = [open(ioredis, name), open(nodeRedis, name)] as const;
      await handOver(...limiters);
      for (const limiter of limiters) await limiter.close();
    }
  } finally {
    ioredis.disconnect();
    nodeRedis.destroy();
  }
});

test("one key, which lapses with the last lease and is removed when no lease is held", async () => {
  await using bench = await Bench.open();
  const { redis } = bench;
  const limiter = bench.limiter(2, { leaseMs: 60_000 });
  const lease = await limiter.acquire();
  assert.equal(await redis.keys("*"), ["c:pages"]);
  const ttl = await redis.pttl("c:pages");
  assert.ok(ttl > 50_000 && ttl <= 61_001, `${ttl}`);
  const short = bench.limiter(2, { leaseMs: 800 });
  await short.acquire();
  assert.ok((await redis.pttl("c:pages")) > 50_000);
  assert.is(await limiter.tryAcquire(), undefined);
  await lease.release();
  assert.ok((await redis.pttl("c:pages")) < 2000);
  await short.close();
  await until("the key has lapsed", async () => (await redis.exists("c:pages")) === 0);
});

test("setLimit applies to equal declared limits, outlives idle time, and is bounded", async () => {
  await using bench = await Bench.open();
  const { redis } = bench;
  const [one, twin, other] = [bench.limiter(1), bench.limiter(1), bench.limiter(3)];
  await one.setLimit(2);
  assert.equal([one.limit, twin.limit], [2, 1]);
  assert.is((await twin.peek()).limit, 2);
  assert.is((await other.peek()).limit, 3);
  assert.is(await redis.pttl("c:pages"), -1);
  const leases = [await twin.acquire(), await one.acquire()];
  assert.is(await one.tryAcquire(), undefined);
  assert.ok(await other.tryAcquire());
  for (const lease of leases) await lease.release();
  assert.is(await redis.pttl("c:pages"), -1);
  await twin.resetLimit();
  assert.is((await one.peek()).limit, 1);
  assert.ok((await redis.pttl("c:pages")) > 0);
  for (let declared = 100; declared < 140; declared++) {
    await bench.limiter(declared).setLimit(5);
  }
  assert.is(await redis.zcount("c:pages", "4e15", "+inf"), 32);
  assert.is((await bench.limiter(107).peek()).limit, 107);
  assert.is((await bench.limiter(108).peek()).limit, 5);
});

test("a waiter goes by its own declared limit, and no caller overtakes", async () => {
  await using bench = await Bench.open();
  const [two, four] = [bench.limiter(2), bench.limiter(4)];
  const leases = [await four.acquire(), await four.acquire(), await four.acquire()];
  const waits = two.acquire();
  await until("the ticket", async () => (await two.peek()).waiting === 1);
  assert.is(await four.tryAcquire(), undefined);
  const behind = four.acquire();
  await leases[0]?.release();
  assert.equal(await four.peek(), { limit: 4, active: 2, waiting: 2 });
  await leases[1]?.release();
  // which of them receives it first depends on their connections
  await Promise.all([waits, behind]);
  assert.equal(await four.peek(), { limit: 4, active: 3, waiting: 0 });
});

test("the lease and the ticket of a killed process are freed", async () => {
  await using bench = await Bench.open();
  const child = await bench.child();
  const other = await bench.child();
  const limiter = RedisConcurrencyLimiter.create(bench.redis, "children", 2, PATIENT);
  bench.onEnd(() => limiter.close());
  // a child that is suspended for long loses its lease or its ticket, and gets another one
  await until("two leases and two tickets", async () => {
    const { active, waiting } = await limiter.peek();
    return active === 2 && waiting === 2;
  });
  child.kill("SIGKILL");
  other.kill("SIGKILL");
  const start = performance.now();
  const leases = await Promise.all([limiter.acquire(), limiter.acquire()]);
  const ms = performance.now() - start;
  // polled when the first would lapse
  assert.ok(ms < 10 * LEASE_MS, `${ms} ms`);
  assert.equal(await limiter.peek(), { limit: 2, active: 2, waiting: 0 });
  for (const lease of leases) await lease.release();
});

test("a process that is suspended too long is notified, and its place goes to another", async () => {
  await using bench = await Bench.open();
  const child = await bench.child();
  const limiter = RedisConcurrencyLimiter.create(bench.redis, "children", 2, PATIENT);
  bench.onEnd(() => limiter.close());
  child.kill("SIGSTOP");
  const leases = await Promise.all([limiter.acquire(), limiter.acquire()]);
  const notified = once(child, "message");
  child.kill("SIGCONT");
  assert.match(`${(await notified)[0]}`, "LeaseLostError");
  assert.not(leases.some(({ signal }) => signal.aborted));
  await leases[0]?.release();
});

test("lost state: holders are notified, waiters are granted", async () => {
  await using bench = await Bench.open();
  const limiter = bench.limiter(1, { leaseMs: LEASE_MS });
  const { signal } = await limiter.acquire();
  const waits = limiter.acquire();
  await until("the ticket", async () => (await limiter.peek()).waiting === 1);
  await bench.redis.del("c:pages");
  const lease = await waits;
  await until("the signal", () => signal.aborted);
  assert.instance(signal.reason, LeaseLostError);
  await lease.release();
  assert.equal(await limiter.peek(), { limit: 1, active: 0, waiting: 0 });
});

test("Redis unavailable: errors in time, leases lost when they may have lapsed, no leak", async () => {
  await using server: RedisServer = await startRedis();
  await using bench = await Bench.open(server.url);
  const limiter = bench.limiter(2, { leaseMs: LEASE_MS, timeoutMs: 300 });
  const { signal } = await limiter.acquire();
  server.suspend();
  const start = performance.now();
  const error = (await failure(() => limiter.acquire())) as StoreUnavailableError;
  assert.instance(error, StoreUnavailableError);
  await until("the signal", () => signal.aborted);
  assert.instance(signal.reason, LeaseLostError);
  assert.ok(performance.now() - start < 10 * LEASE_MS);
  server.resume();
  // on a busy machine an answer may take longer than 300 ms
  const patient = bench.limiter(2, { leaseMs: LEASE_MS });
  await until("all places", async () => (await patient.peek()).active === 0);
  const leases = [await patient.acquire(), await patient.acquire()];
  for (const lease of leases) await lease.release();
});

test("a lost subscriber connection is no outage", async () => {
  await using bench = await Bench.open();
  const limiter = bench.limiter(1, { leaseMs: LEASE_MS });
  const lease = await limiter.acquire();
  const waits = limiter.acquire();
  const channels = async () => (await bench.redis.pubsub("CHANNELS", "c:pages:*")).length;
  await until("a subscription", async () => (await channels()) === 1);
  await bench.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  await until("another", async () => (await channels()) === 1);
  await lease.release();
  await (await waits).release();
});

const listeners: Record<string, (bench: Bench, url: string) => Promise<object>> = {
  ioredis: async (bench, url) => {
    const duplicate = (options: object) => {
      const copy = new Redis(url, { ...options, retryStrategy: () => 50 });
      copy.on("error", () => {});
      return copy;
    };
    return Object.assign(new Redis(bench.url), { duplicate });
  },
  "node-redis": async (bench, url) => {
    const client = await createClient({ url: bench.url }).connect();
    bench.onEnd(() => client.destroy());
    const duplicate = () => createClient({ url }).on("error", () => {});
    return Object.assign(client, { duplicate });
  },
};

for (const [name, open] of Object.entries(listeners)) {
  test(`${name}: a subscriber connection that dies silently is detected and replaced`, async () => {
    await using bench = await Bench.open();
    await using proxy = await startProxy((await sharedRedis()).port);
    const redis = (await open(bench, proxy.url + new URL(bench.url).pathname)) as RedisClient;
    if (redis instanceof Redis) bench.onEnd(() => redis.disconnect());
    const options = { leaseMs: 6000, timeoutMs: 2000 };
    const limiter = RedisConcurrencyLimiter.create(redis, "pages", 1, options);
    const held = await limiter.acquire();
    const { accepted } = proxy;
    let handOvers = 0;
    const takeTurns = async () => {
      for (; proxy.accepted < accepted + 2; handOvers++) await (await limiter.acquire()).release();
    };
    const taking = [takeTurns(), takeTurns()];
    const channels = async () => (await bench.redis.pubsub("CHANNELS", "c:pages:*")).length;
    await until("a subscription", async () => (await channels()) >= 1);
    await proxy.halfOpen();
    await proxy.open();
    await held.release();
    await Promise.all(taking);
    // until then callers are let in by questions, of which the first comes after a second
    assert.ok(handOvers > 1, `${handOvers} hand-overs`);
    assert.is(proxy.accepted, accepted + 2);
    await limiter.close();
  });
}

for (const [i, [name, open]] of Object.entries(listeners).entries()) {
  // test/concurrency/leased/remote-concurrency.test.ts counts the questions in virtual time
  if (!isTried(i)) continue;
  test(`${name}: while subscriber connections are silent, callers are let in by questions`, async () => {
    await using bench = await Bench.open();
    await using proxy = await startProxy((await sharedRedis()).port);
    const redis = (await open(bench, proxy.url + new URL(bench.url).pathname)) as RedisClient;
    if (redis instanceof Redis) bench.onEnd(() => redis.disconnect());
    const limiter = bench.limiter(5, { leaseMs: 120_000, timeoutMs: 3000 }, redis);
    let granted = 0;
    const loop = async () => {
      for (;;) await limiter.run(() => sleep(20).then(() => granted++));
    };
    for (let i = 0; i < 20; i++) loop().catch(() => {});
    const channels = async () => (await bench.redis.pubsub("CHANNELS", "c:pages:*")).length;
    await until("a subscription", async () => (await channels()) >= 1);
    await until("messages", () => granted > 100);
    await proxy.halfOpen();
    granted = 0;
    // by renewals alone nothing would happen for 40 seconds
    await until("callers let in", () => granted > 100);
    const { accepted } = proxy;
    await proxy.open();
    await until("another connection", () => proxy.accepted > accepted);
    await limiter.close();
  });
}

for (const [name, open] of Object.entries(listeners)) {
  test(`${name}: a message is lost while the subscriber reconnects; the lease is granted then`, async () => {
    await using bench = await Bench.open();
    await using proxy = await startProxy((await sharedRedis()).port);
    const url = proxy.url + new URL(bench.url).pathname;
    const redis = (await open(bench, url)) as RedisClient;
    if (redis instanceof Redis) bench.onEnd(() => redis.disconnect());
    const copy: object = (redis as Redis).duplicate({});
    const own = copy as Redis | ReturnType<typeof createClient>;
    bench.onEnd(() => own.disconnect());
    if (!(own instanceof Redis)) await own.connect();
    // by renewals alone the waiting caller would wait for minutes
    const options = { leaseMs: 600_000 };
    for (const limiter of [
      bench.limiter(1, options, redis),
      bench.limiter(1, { ...options, subscriber: own as RedisSubscriber }, redis),
    ]) {
      const held = await limiter.acquire();
      const waits = limiter.acquire();
      const channels = async () => (await bench.redis.pubsub("CHANNELS", "c:pages:*")).length;
      await until("a subscription", async () => (await channels()) === 1);
      await proxy.cut();
      await until("no subscription", async () => (await channels()) === 0);
      await held.release();
      await proxy.open();
      await (await waits).release();
      await until("no subscription", async () => (await channels()) === 0);
    }
  });
}

test("Redis out of memory: no new lease or ticket; leases are kept, and can be released", async () => {
  await using server = await startRedis();
  await using bench = await Bench.open(server.url);
  const limiter = bench.limiter(2, { leaseMs: 600_000 });
  const [one, other] = [await limiter.acquire(), await limiter.acquire()];
  const waiting = limiter.acquire();
  await until("a ticket", () => limiter.waiting === 1);
  await bench.redis.config("SET", "maxmemory", "1");
  const late = bench.limiter(2, { whenUnavailable: "wait" });
  try {
    for (const ask of [() => limiter.acquire(), () => limiter.tryAcquire()]) {
      const error = (await failure(ask)) as StoreUnavailableError;
      assert.instance(error, StoreUnavailableError);
      assert.match(`${error.cause}`, "OOM");
    }
    assert.match(`${await failure(() => limiter.setLimit(5))}`, "OOM");
    // together with a request that is refused
    const refused = failure(() => limiter.acquire());
    await one.release();
    assert.match(`${await refused}`, "OOM");
    await (await waiting).release();
    assert.equal(await limiter.peek(), { limit: 2, active: 1, waiting: 0 });
    const waits = late.acquire();
    await sleep(200);
    assert.is(late.active, 0);
    await bench.redis.config("SET", "maxmemory", "0");
    await (await waits).release();
  } finally {
    await bench.redis.config("SET", "maxmemory", "0");
  }
  await other.release();
});

test("in the script: an adoption and a probe are refused when Redis is out of memory", async () => {
  await using server = await startRedis();
  await using bench = await Bench.open(server.url);
  const subscriptions = () => ({ ready: Promise.resolve(), close: () => {} });
  const store = new RedisLeaseStore(scriptRunner(bench.redis as RedisClient), subscriptions, "");
  const held = leaseId(60_000, 1, "p", 1);
  await store.run("key", 1, [{ verb: "acquire", what: held }]);
  await bench.redis.config("SET", "maxmemory", "1");
  for (const [verb, what] of [
    ["adopt", leaseId(60_000, 1, "p", 2)],
    ["probe", ""],
  ] as const) {
    assert.match(`${await failure(() => store.run("key", 1, [{ verb, what }]))}`, "OOM");
  }
  const { standings } = await store.run("key", 1, [{ verb: "adopt", what: held }]);
  assert.equal(standings, ["held"]);
});

test("a foreign sorted set under the key: the error names its type, and its members stay", async () => {
  await using bench = await Bench.open();
  const { redis } = bench;
  const limiter = bench.limiter(1);
  for (const score of [-5, 0, 17, 1e12, 1.7e12, 9e14, 1.7e15, 4e15, 1e300]) {
    await redis.del("c:pages");
    await redis.zadd("c:pages", score, "a player", `${score}`, "no player");
    for (const call of [() => limiter.acquire(), () => limiter.peek(), () => limiter.setLimit(1)]) {
      const says =
        /the key "c:pages" holds a value of type zset with "a player", which no limiter has written/;
      assert.match(`${await failure(call)}`, says);
    }
    assert.equal(await redis.zrange("c:pages", "0", "-1"), ["a player", "no player"]);
  }
});

test("a foreign value under the key: the error names its type", async () => {
  await using bench = await Bench.open();
  await bench.redis.set("c:pages", "a session");
  const error = await failure(() => bench.limiter(1).acquire());
  assert.match(`${error}`, /WRONGTYPE the key "c:pages" holds "a session", which no limiter/);
  assert.is(await bench.redis.get("c:pages"), "a session");
});

test("a user with the rights listed in the docs works, one without publish or subscribe fails", async () => {
  await using server = await startRedis();
  const commands = "+evalsha +eval +time +zadd +zrem +zscore +zcount +zrangebyscore";
  const more = "+zrevrangebyscore +zremrangebyscore +persist +pexpire +info";
  const rights = ["on", ">secret", "~c:*", ...commands.split(" "), ...more.split(" ")];
  await server.ask("ACL", "SETUSER", "full", ...rights, "&c:*", "+publish", "+subscribe");
  await server.ask("ACL", "SETUSER", "mute", ...rights, "resetchannels");
  for (const [username, leaseMs] of [
    ["full", 600_000],
    ["mute", LEASE_MS],
  ] as const) {
    const redis = new Redis(server.url, { username, password: "secret" });
    const options = { ...PATIENT, leaseMs };
    const open = () => RedisConcurrencyLimiter.create(redis, username, 1, options);
    const limiters = [open(), open()] as const;
    await handOver(...limiters);
    await limiters[0].setLimit(5);
    await limiters[0].resetLimit();
    for (const limiter of limiters) await limiter.close();
    redis.disconnect();
  }
});

test("random histories: the script agrees with a model, request by request", async () => {
  await using bench = await Bench.open();
  const subscriptions = () => ({ ready: Promise.resolve(), close: () => {} });
  const store = new RedisLeaseStore(scriptRunner(bench.redis as RedisClient), subscriptions, "m:");
  let keys = 0;
  const request = fc.record({
    verb: fc.constantFrom<LeaseRequest["verb"][]>(
      ...(["acquire", "acquire", "try", "keep", "release", "release", "limit", "look"] as const),
      ...(["adopt", "probe"] as const),
    ),
    number: fc.integer({ min: 1, max: 8 }),
  });
  const batches = fc.array(fc.array(request, { maxLength: 5 }), { maxLength: 30 });
  const idOf = (number: number) => leaseId(60_000, 3, "test", number, 1 + (number % 3));
  await fc.assert(
    fc.asyncProperty(batches, async (history) => {
      const model = new HandLeaseStore();
      const key = `${keys++}`;
      for (const batch of history) {
        const requests = batch.map(({ verb, number }) => ({
          verb,
          what: verb === "limit" ? `${(number % 4) + 1}` : idOf(number),
        }));
        const [{ lapseMs, ...real }, { lapseMs: expected, ...modelled }] = [
          await store.run(key, 3, requests),
          await model.run(key, 3, requests),
        ];
        assert.equal(real, modelled);
        assert.is(lapseMs >= 0, expected >= 0);
      }
      const members = await bench.redis.zrange(`m:${key}`, "0", "-1");
      const slots = [...model.leases.keys()].reduce((sum, id) => sum + slotsOf(id), 0);
      const expected = slots + 2 * model.tickets.size;
      const rest = members.filter((member) => !member.startsWith("s"));
      assert.is(rest.length, expected);
    }),
    { numRuns: runs(100) },
  );
});

test("in the script: an adopted lease comes before all others; a probe grants nothing", async () => {
  await using bench = await Bench.open();
  const { redis } = bench;
  const subscriptions = () => ({ ready: Promise.resolve(), close: () => {} });
  const store = new RedisLeaseStore(scriptRunner(redis as RedisClient), subscriptions, "");
  const [dying = "", first = "", second = ""] = [50, 60_000, 60_000].map((leaseMs, i) =>
    leaseId(leaseMs, 1, "p", i),
  );
  const run = (...requests: [LeaseRequest["verb"], string][]) =>
    store.run(
      "key",
      1,
      requests.map(([verb, what]) => ({ verb, what })),
    );
  await run(["acquire", dying], ["acquire", first]);
  await sleep(60);
  const { active, waiting } = await run(["probe", ""]);
  assert.equal([active, waiting], [0, 1]);
  const adopted = await run(["look", ""], ["adopt", second]);
  assert.equal([adopted.standings, adopted.active, adopted.waiting], [["none", "held"], 1, 1]);
  // above the limit, the owner of a ticket too, and a repeated call has no effect
  const both = await run(["adopt", first], ["adopt", first]);
  assert.equal([both.active, both.waiting], [2, 0]);
  assert.ok((await redis.pttl("key")) > 50_000);
  await run(["release", first], ["release", second]);
  await run(["probe", ""]);
  assert.is(await redis.exists("key"), 0);
});

for (const [whenUnavailable, atOnce, known] of [
  ["wait", 0, 2],
  ["allow", 3, 5],
  ["local", 0, 2],
] as const) {
  test(`"${whenUnavailable}": Redis is killed and restarts without data`, async () => {
    await using server: RedisServer = await startRedis();
    await using bench = await Bench.open(server.url);
    bench.redis.disconnect();
    const redis = new Redis(server.url, { retryStrategy: () => 50 });
    redis.on("error", () => {});
    bench.onEnd(() => redis.disconnect());
    const options = { whenUnavailable, instances: 2, timeoutMs: 400, leaseMs: 60_000 };
    const [limiter, other] = [bench.limiter(2, options, redis), bench.limiter(2, options, redis)];
    const held = [await limiter.acquire(), await other.acquire()];
    const closed = once(redis, "close");
    await server.kill9();
    await closed;
    const order: number[] = [];
    const leases: RedisLease[] = [];
    for (const i of [0, 1, 2]) {
      void limiter.acquire().then((lease) => {
        leases.push(lease);
        order.push(i);
      });
    }
    await until("all asked", () => limiter.waiting === 3 - atOnce && order.length === atOnce);
    const start = performance.now();
    for (let i = 0; i < 1000; i++) await (await limiter.tryAcquire())?.release();
    const ms = performance.now() - start;
    assert.ok(ms < 10 * 400, `1000 calls took ${ms} ms: some waited for Redis`);
    assert.equal([order.length, held[0]?.signal.aborted], [atOnce, false]);
    // a process without calls does not notice the outage, and has lost what was lost
    await (await other.tryAcquire())?.release();

    await server.restart();
    const leasesThere = () => redis.zcount("c:pages", 0, "(1e15").catch(() => 0);
    await until("all have noticed", async () => (await leasesThere()) === known);
    await until("all recovered", async () => (await other.peek()).limit === 2);
    // a caller that was granted or held a lease keeps it; in "wait" mode lost state is lost
    const isLost = whenUnavailable === "wait";
    await until("the signals", () => held.every(({ signal }) => signal.aborted === isLost));
    assert.is(await other.tryAcquire(), undefined);
    for (const lease of held) await lease.release();
    await until("one more", () => leases.length > 0);
    while (leases.length > 0) {
      await leases.shift()?.release();
      await until("the next", () => leases.length > 0 || order.length === 3);
    }
    assert.equal(order, [0, 1, 2]);
    await until("no lease is held", async () => (await leasesThere()) === 0);
  });
}

test("in the script: lapsed leases are removed, and the next waiters are granted", async () => {
  await using bench = await Bench.open();
  const subscriptions = () => ({ ready: Promise.resolve(), close: () => {} });
  const store = new RedisLeaseStore(scriptRunner(bench.redis as RedisClient), subscriptions, "");
  const ids = [50, 60_000, 50, 60_000].map((leaseMs, i) => leaseId(leaseMs, 2, "p", i));
  const ask = async (verb: LeaseRequest["verb"], ...whom: number[]) => {
    const { standings, active, waiting } = await store.run(
      "key",
      2,
      whom.map((i) => ({ verb, what: String(ids[i]) })),
    );
    return [...standings, active, waiting];
  };
  assert.equal(await ask("acquire", 0, 1, 2, 3), ["held", "held", "waiting", "waiting", 2, 2]);
  await sleep(60);
  // the ticket before it has lapsed, too
  assert.equal(await ask("keep", 0, 1, 2, 3), ["none", "held", "none", "held", 2, 0]);
  assert.equal(await ask("release", 0, 2, 3), ["none", "none", "none", 1, 0]);
  assert.equal(await ask("try", 0, 0, 2), ["held", "held", "none", 2, 0]);
});

test.run();
