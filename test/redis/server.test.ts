import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { Cluster, Redis } from "ioredis";
import * as assert from "uvu/assert";
import { redisServer } from "../support/programs/redis-server.ts";
import { ask, until } from "../support/redis/ask.ts";
import { startCluster } from "../support/redis/cluster.ts";
import { startProxy } from "../support/redis/proxy.ts";
import {
  freshUrl,
  promote,
  type RedisServer,
  sharedRedis,
  startRedis,
  startReplica,
} from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

/** Calls `use` with a client of ioredis that does not retry. */
async function withClient<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, {
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    disconnectTimeout: 50,
  });
  redis.on("error", () => {});
  try {
    return await use(redis);
  } finally {
    redis.disconnect();
  }
}

/** The message of the error with which `promise` rejects. */
async function refusal(promise: Promise<unknown>): Promise<string> {
  const [outcome] = await Promise.allSettled([promise]);
  return outcome?.status === "rejected" ? `${outcome.reason}` : "it did not reject";
}

function nobodyListens(port: number): Promise<void> {
  return until(`port ${port} is free`, async () =>
    (await refusal(ask({ port, host: "127.0.0.1" }, ["PING"]))).includes("ECONNREFUSED"),
  );
}

// a replica that restarts copies its master anew, and may wait seconds for that
const servers = suite("redis servers");

// Downloading one, on a new machine, may take longer than a test may.
servers.before(async () => {
  await redisServer();
});

servers("a server starts, answers, and is gone after stop", async () => {
  const server = await startRedis();
  assert.is(await server.ask("PING"), "PONG");
  assert.is(await ask({ path: server.socketPath }, ["PING"]), "PONG");
  assert.match(`${await server.ask("INFO", "server")}`, `process_id:${server.pid}\r`);
  await withClient(server.url, async (redis) => {
    assert.is(await redis.set("key", "value"), "OK");
    assert.is(await redis.get("key"), "value");
  });
  await server.stop();
  await nobodyListens(server.port);
  assert.not(existsSync(server.dir));
  assert.not(server.running);
  await server.stop();
});

servers("a start on a port in use fails with the reason", async () => {
  await using first = await startRedis();
  assert.match(await refusal(startRedis({ port: first.port })), "Address already in use");
  assert.is(await first.ask("PING"), "PONG");
});

servers("many servers start at once", async () => {
  const many = await Promise.all(Array.from({ length: 8 }, () => startRedis()));
  assert.is(new Set(many.map(({ port }) => port)).size, 8);
  await Promise.all(many.map((server) => server.stop()));
});

servers("after a crash the server is back on the same port with its data", async () => {
  await using server = await startRedis({ args: ["--appendonly", "yes"] });
  const { pid } = server;
  await server.ask("SET", "key", "value");
  await withClient(server.url, async (redis) => {
    await redis.ping();
    const closed = once(redis, "close");
    await server.kill9();
    await closed;
  });
  await nobodyListens(server.port);
  await server.restart();
  assert.is.not(server.pid, pid);
  assert.is(await server.ask("GET", "key"), "value");
  await server.restart();
  assert.is(await server.ask("GET", "key"), "value");
});

servers("a suspended server is silent, and answers when it is resumed", async () => {
  await using server = await startRedis();
  await withClient(server.url, async (redis) => {
    await redis.ping();
    server.suspend();
    let answered = false;
    const pong = redis.ping().finally(() => {
      answered = true;
    });
    const other = ask({ port: server.port, host: server.host }, ["PING"], 300);
    assert.match(await refusal(other), "no answer within 300 ms");
    assert.not(answered);
    server.resume();
    assert.is(await pong, "PONG");
  });
  server.suspend();
});

servers("a replica copies its master, and accepts writes once it is promoted", async () => {
  await using master = await startRedis();
  await master.ask("SET", "key", "value");
  await using replica = await startReplica(master);
  assert.is(await replica.ask("GET", "key"), "value");
  assert.match(await refusal(replica.ask("SET", "key", "other")), "READONLY");
  await master.kill9();
  await promote(replica);
  assert.is(await replica.ask("SET", "key", "other"), "OK");
});

servers("a replica's clock may be ahead or behind", async () => {
  const epochMs = async (server: RedisServer) => {
    const script = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)";
    return Number(await server.ask("EVAL", script, "0"));
  };
  await using master = await startRedis();
  for (const clockOffsetMs of [-5000, 5250]) {
    await using replica = await startReplica(master, { clockOffsetMs });
    const before = await epochMs(master);
    const there = await epochMs(replica);
    const after = await epochMs(master);
    assert.ok(there >= before + clockOffsetMs - 1 && there <= after + clockOffsetMs + 1);
    await replica.restart();
    assert.ok(Math.abs((await epochMs(replica)) - (await epochMs(master))) > 4000);
  }
});

servers("the shared server gives each client a database of its own", async () => {
  const urls = await Promise.all([freshUrl(), freshUrl()]);
  assert.ok(urls.every((url) => url.startsWith("redis://127.0.0.1:")));
  for (const url of urls) {
    await withClient(url, async (redis) => assert.is(await redis.set("key", url, "NX"), "OK"));
  }
  assert.is(await sharedRedis(), await sharedRedis());
});

servers("no server outlives a process that is killed", async () => {
  const code = `
    import { startRedis } from ${JSON.stringify(new URL("../support/redis/server.ts", import.meta.url))};
    const { port, dir } = await startRedis();
    console.log(JSON.stringify({ port, dir }));
    setInterval(() => {}, 1000);
  `;
  const args = ["--import", "tsx", "--input-type=module", "--eval", code];
  const parent = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(parent.stdout, "data");
  const { port, dir } = JSON.parse(`${line}`);
  assert.is(await ask({ port, host: "127.0.0.1" }, ["PING"]), "PONG");
  parent.kill("SIGKILL");
  await once(parent, "exit");
  await nobodyListens(port);
  await until("the folder is removed", () => !existsSync(dir));
});

servers.run();

const clusters = suite("redis cluster");

clusters("three masters share the keys, and replicas take over", async () => {
  await using cluster = await startCluster(3, { replicas: 1 });
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  client.on("error", () => {});
  try {
    const keys = Array.from({ length: 30 }, (_, i) => `key ${i}`);
    for (const key of keys) assert.is(await client.set(key, key), "OK");
    const sizes = await Promise.all(cluster.masters.map((master) => master.ask("DBSIZE")));
    assert.ok(sizes.every((size) => Number(size) > 0));
    assert.is(Number(sizes[0]) + Number(sizes[1]) + Number(sizes[2]), 30);

    const [first, second, third] = cluster.masters;
    const [, standIn] = cluster.replicas;
    await cluster.failover(0);
    await second?.kill9();
    await cluster.failover(1);
    third?.suspend();
    await cluster.failover(2);
    // Otherwise the client would wait for its answer without end.
    third?.resume();
    assert.is(cluster.replicas[0], first);
    assert.is(cluster.masters[1], standIn);
    for (const key of keys) assert.is(await client.set(key, "again"), "OK");
  } finally {
    client.disconnect();
  }
});

clusters.run();

const proxies = suite("redis through a proxy");

/** How long one PING takes, in ms. */
async function pingMs(to: { port: number; host: string }): Promise<number> {
  const start = performance.now();
  assert.is(await ask(to, ["PING"], 5000), "PONG");
  return performance.now() - start;
}

proxies("an open proxy passes bytes, with a delay", async () => {
  const { port } = await sharedRedis();
  await using proxy = await startProxy(port);
  assert.is(await withClient(proxy.url, (redis) => redis.echo("x".repeat(1e6))), "x".repeat(1e6));
  await proxy.delay(100);
  assert.ok((await pingMs(proxy)) >= 190);
  await proxy.delay(100, "replies");
  assert.ok((await pingMs(proxy)) >= 90);
  await proxy.open();
  await pingMs(proxy);
  assert.is(proxy.accepted, 4);
});

proxies("a stalled proxy keeps the bytes until it is open", async () => {
  const server = await sharedRedis();
  await using proxy = await startProxy(server.port);
  await withClient(proxy.url, async (redis) => {
    await redis.ping();
    await redis.del("stalled");
    for (const [direction, arrives] of [
      ["both", false],
      ["requests", false],
      ["replies", true],
    ] as const) {
      await proxy.stall(direction);
      const added = redis.incr("stalled");
      assert.match(await refusal(ask(proxy, ["PING"], 100)), "no answer");
      assert.is(await server.ask("DEL", "stalled"), arrives ? 1 : 0);
      await proxy.open();
      assert.is(await added, 1);
      await redis.del("stalled");
    }
  });
});

proxies("a cut proxy resets connections, and refuses or accepts new ones", async () => {
  const { port } = await sharedRedis();
  await using proxy = await startProxy(port);
  for (const accept of [true, false]) {
    await proxy.open();
    const pending = refusal(ask(proxy, ["BLPOP", "never pushed", "5"], 5000));
    await until("the connection", () => proxy.accepted === (accept ? 1 : 3));
    await proxy.cut({ accept });
    assert.match(await pending, "ECONNRESET");
    if (accept) await pingMs(proxy);
    else assert.match(await refusal(ask(proxy, ["PING"])), "ECONNREFUSED");
  }
  await proxy.open();
  await pingMs(proxy);
});

proxies("a redirected proxy connects to another server", async () => {
  const { port } = await sharedRedis();
  await using other = await startRedis();
  await using proxy = await startProxy(port);
  const pending = refusal(ask(proxy, ["BLPOP", "never pushed", "5"], 5000));
  await until("the connection", () => proxy.accepted === 1);
  await proxy.redirect(other.port);
  assert.match(await pending, "ECONNRESET");
  assert.match(`${await ask(proxy, ["INFO", "server"])}`, `tcp_port:${other.port}`);
});

proxies("a half-open proxy never answers", async () => {
  const { port } = await sharedRedis();
  await using proxy = await startProxy(port);
  await withClient(proxy.url, async (redis) => {
    await redis.ping();
    await proxy.halfOpen();
    const old = refusal(redis.ping());
    assert.match(await refusal(ask(proxy, ["PING"], 100)), "no answer");
    await proxy.open();
    await pingMs(proxy);
    assert.is(await Promise.race([old, pingMs(proxy).then(() => "nothing")]), "nothing");
    await proxy.cut();
    assert.match(await old, /ECONNRESET|closed/i);
  });
});

proxies("a flapping proxy is reachable and unreachable in turn", async () => {
  const { port } = await sharedRedis();
  await using proxy = await startProxy(port);
  const there = () =>
    ask(proxy, ["PING"], 1000).then(
      () => true,
      () => false,
    );
  await proxy.flap(50);
  for (const expected of [true, false, true, false]) {
    await until(`${expected}`, async () => (await there()) === expected, { everyMs: 5 });
  }
  await proxy.open();
  await pingMs(proxy);
});

proxies("the end of the server ends the connection", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server.port);
  const pending = refusal(ask(proxy, ["BLPOP", "never pushed", "5"], 5000));
  await until("the connection", () => proxy.accepted === 1);
  await server.kill9();
  assert.match(await pending, /ECONNRESET|closed/);
  assert.match(await refusal(ask(proxy, ["PING"])), /ECONNRESET|closed/);
  await server.restart();
  await pingMs(proxy);
});

proxies.run();
