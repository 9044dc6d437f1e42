/**
 * Faults of real servers under load. For each fault: every call ends within its own time, by an
 * answer or by a StoreUnavailableError with its cause; what is used stays within the bound that
 * docs/outage-bounds.md states; the limiter works again afterwards; nothing is left behind.
 *
 * The bound, beyond what a limiter grants in t seconds (store + rate x t + 1 request):
 *
 *   promised + 1                    for a lost state, which has no record of what was promised
 *   promised + store + 1            for lost writes: the state continues from an earlier one
 *   min(rate x J, promised + store + 1)   for a clock that jumps J seconds ahead
 *   promised                        for delayed replies, if callers wait for them nevertheless
 *   rate x lateness                 delayed callers are released together with punctual ones
 */
import { getEventListeners } from "node:events";
import { createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import * as assert from "uvu/assert";
import type { Reservation } from "../../src/index.ts";
import {
  type RedisClient,
  RedisRateLimiter,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { startCluster } from "../support/redis/cluster.ts";
import { startProxy } from "../support/redis/proxy.ts";
import { promote, type RedisServer, startRedis, startReplica } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const RATE = 100;
const BURST_SECONDS = 0.1;
const STORE = RATE * BURST_SECONDS;
/** Each asks for one permit at a time, so at most this many are promised and not used. */
const CALLERS = 40;
const TIMEOUT_MS = 300;
/** How long a call may exceed its own time on a busy machine, ms. */
const MARGIN_MS = 2000;
/** Up to which lateness of its own timer a caller counts as punctual, ms. */
const CREDIT_MS = 10;
/** By how much the latency of replies may vary on a busy machine, ms. */
const JITTER_MS = 100;

/** Many callers of one limiter, in endless loops. */
class Crowd {
  readonly limiter: RedisRateLimiter;
  readonly waitForStore: boolean;
  /** When a permit was used, ms. */
  readonly used: number[] = [];
  /** The number of calls by outcome. */
  readonly ends: Record<string, number> = {};
  /** Why the store could not be reached. */
  readonly causes = new Set<string>();
  /** By how much a call exceeded its own time, ms. */
  overdueMs = 0;
  /** How late a timer was, ms. */
  #lateMs = 0;
  #strange: unknown;
  #stopped = false;
  readonly #signal = new AbortController();
  readonly #callers: Promise<unknown>;
  readonly #probe: NodeJS.Timeout;

  constructor(redis: RedisClient, name: string, whenUnavailable: "throw" | "wait", rate = RATE) {
    const options = { burstSeconds: BURST_SECONDS, timeoutMs: TIMEOUT_MS, whenUnavailable };
    this.limiter = RedisRateLimiter.create(redis, name, rate, options);
    this.waitForStore = whenUnavailable === "wait";
    let last = performance.now();
    this.#probe = setInterval(() => {
      this.#lateMs = Math.max(this.#lateMs, performance.now() - last - 10);
      last = performance.now();
    }, 10);
    this.#callers = Promise.all(Array.from({ length: CALLERS }, () => this.#call()));
  }

  async #call(): Promise<void> {
    while (!this.#stopped) {
      try {
        await this.#ask(Math.random());
      } catch (error) {
        if (!(error instanceof StoreUnavailableError)) this.#strange = error;
        else this.causes.add(error.cause instanceof Error ? error.cause.message : error.message);
        this.#end("unavailable");
        await sleep(20);
      }
    }
  }

  async #ask(kind: number): Promise<void> {
    if (kind < 0.4) {
      if (await this.#within(TIMEOUT_MS + 300, this.limiter.tryAcquire(1, 300))) this.#use("tried");
      else await this.#refused();
    } else if (kind < 0.5) {
      if (await this.#within(TIMEOUT_MS, this.limiter.tryAcquire())) this.#use("tried at once");
      else await this.#refused();
    } else if (kind < 0.7) {
      const signal = AbortSignal.timeout(300 + Math.floor(600 * Math.random()));
      const acquired = this.limiter.acquire(1, { signal }).catch((reason: unknown) => {
        if (reason === signal.reason) return "aborted";
        throw reason;
      });
      if ((await this.#within(900, acquired)) === "aborted") this.#end("aborted");
      else this.#use("acquired in time");
    } else if (kind < 0.9) {
      await this.limiter.acquire(1, { signal: this.#signal.signal });
      this.#use("acquired");
    } else {
      // calls that wait for the store have no time limit: see the end of the crowd
      const limitMs = this.waitForStore ? Infinity : TIMEOUT_MS;
      const reservation = await this.#within(limitMs, this.limiter.reserve());
      await sleep(Math.random() * Math.min(1000, reservation.waitMs));
      await this.#cancel(reservation, limitMs);
    }
  }

  async #cancel(reservation: Reservation, limitMs: number): Promise<void> {
    try {
      if (await this.#within(limitMs, reservation.cancel())) this.#end("cancelled");
      else this.#use("cancelled too late");
    } catch (error) {
      // a cancel in flight when the connection breaks fails in any mode: it is not sent twice
      if (!this.waitForStore || !(error instanceof StoreUnavailableError)) throw error;
      this.#end("cancelled perhaps");
    }
  }

  async #within<T>(limitMs: number, call: T | Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await call;
    } finally {
      this.overdueMs = Math.max(this.overdueMs, performance.now() - start - limitMs);
    }
  }

  #use(how: string): void {
    this.used.push(performance.now());
    this.#end(how);
  }

  #refused(): Promise<void> {
    this.#end("refused");
    return sleep(10);
  }

  #end(how: string): void {
    this.ends[how] = (this.ends[how] ?? 0) + 1;
  }

  /** Stops all callers; every call gets an answer. */
  async end(): Promise<void> {
    this.#stopped = true;
    const late = sleep(MARGIN_MS, "late", { ref: false });
    const outcome = await Promise.race([this.#callers, late]);
    clearInterval(this.#probe);
    assert.is.not(outcome, "late", `calls hang: ${JSON.stringify(this.ends)}`);
    if (this.#strange !== undefined) throw this.#strange;
    assert.ok(this.overdueMs <= MARGIN_MS, `a call took ${this.overdueMs} ms longer than it may`);
    assert.is(getEventListeners(this.#signal.signal, "abort").length, 0);
  }

  /**
   * Checks that permits are granted at the rate again, once callers with an instant promised
   * before the fault have been served: permits taken for callers that left delay no other caller.
   */
  async works(): Promise<void> {
    const goal = this.used.length + RATE;
    const limitMs = (1000 * (CALLERS + RATE)) / RATE + MARGIN_MS;
    await until("it works again", () => this.used.length >= goal, { limitMs });
  }

  /** What was used beyond the first line of the bound, in the worst interval. */
  excess(): number {
    let lowest = Infinity;
    let most = 0;
    for (const [i, at] of this.used.entries()) {
      lowest = Math.min(lowest, i - (RATE * at) / 1000);
      most = Math.max(most, i + 1 - (RATE * at) / 1000 - lowest);
    }
    return most - STORE - 1 - (RATE * (this.#lateMs + CREDIT_MS + JITTER_MS)) / 1000;
  }
}

interface Faults {
  readonly lostStates?: number;
  readonly lostWrites?: number;
  readonly jumpSeconds?: number;
  readonly lateAnswers?: number;
}

/** The sum of the lines of the bound. Each caller is promised one permit at most. */
function bound(
  { lostStates = 0, lostWrites = 0, jumpSeconds = 0, lateAnswers = 0 }: Faults,
  waitForStore: boolean,
): number {
  const anew = CALLERS + 1;
  const behind = CALLERS + STORE + 1;
  const jump = Math.min(RATE * jumpSeconds, behind);
  const late = waitForStore ? lateAnswers : 0;
  return lostStates * anew + lostWrites * behind + jump + late;
}

/** How many timers and sockets keep this process alive. */
function resources(): number {
  const kinds = process.getActiveResourcesInfo();
  return kinds.filter((kind) => kind === "Timeout" || kind === "TCPSocketWrap").length;
}

function listeners(client: Redis | Cluster): string {
  const counts = client.eventNames().map((name) => [String(name), client.listenerCount(name)]);
  return counts.sort().join();
}

interface Scene {
  readonly client: () => Redis | Cluster;
  /** Causes the fault and repairs it. */
  readonly fault: () => Promise<void>;
  readonly faults?: Faults;
}

/** Two crowds meet the fault together, one that throws and one that waits. */
async function play(name: string, { client, fault, faults = {} }: Scene): Promise<void> {
  const resourcesBefore = resources();
  const redis = client();
  redis.on("error", () => {});
  try {
    await until("the client", () => redis.status === "ready");
    const listenersBefore = listeners(redis);
    const crowds = (["throw", "wait"] as const).map(
      (kind) => new Crowd(redis, `${name} ${kind}`, kind),
    );
    await sleep(500);
    await fault();
    await Promise.all(crowds.map((crowd) => crowd.works()));
    await Promise.all(crowds.map((crowd) => crowd.end()));
    for (const crowd of crowds) {
      const { ends, causes, waitForStore } = crowd;
      const facts = `${waitForStore ? "wait" : "throw"}, ${JSON.stringify(ends)}, ${[...causes].join("; ")}`;
      if (waitForStore) assert.is(ends.unavailable, undefined, facts);
      const most = bound(faults, waitForStore);
      assert.ok(crowd.excess() <= most, `${facts}: ${crowd.excess()} in excess, at most ${most}`);
    }
    assert.is(listeners(redis), listenersBefore);
  } finally {
    redis.disconnect();
  }
  await until("nothing is left behind", () => resources() <= resourcesBefore);
}

const test = suite("limits through faults");

test.before(async () => {
  await redisServer();
});

function clientOf(url: string): Redis {
  return new Redis(url, { retryStrategy: () => 50 });
}

for (const persistent of [true, false]) {
  test(`kill -9 and a restart ${persistent ? "with" : "without"} its data`, async () => {
    const args = persistent ? ["--appendonly", "yes", "--appendfsync", "always"] : [];
    await using server = await startRedis({ args });
    await play("killed", {
      client: () => clientOf(server.url),
      fault: async () => {
        await server.kill9();
        await sleep(700);
        await server.restart();
      },
      faults: { lostStates: persistent ? 0 : 1 },
    });
  });
}

test("silent for 5 s", async () => {
  await using server = await startRedis();
  await play("silent", {
    client: () => clientOf(server.url),
    fault: async () => {
      server.suspend();
      await sleep(5000);
      server.resume();
    },
    // the process may have been stopped after it had decided and before it replied
    faults: { lateAnswers: CALLERS },
  });
});

test("replies delayed for 2 s, requests not delayed", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server.port);
  await play("delayed", {
    client: () => clientOf(proxy.url),
    fault: async () => {
      await proxy.stall("replies");
      await sleep(2000);
      await proxy.open();
    },
    faults: { lateAnswers: CALLERS },
  });
});

test("scripts flushed repeatedly", async () => {
  await using server = await startRedis();
  await play("forgotten", {
    client: () => clientOf(server.url),
    fault: async () => {
      for (const end = performance.now() + 3000; performance.now() < end; ) {
        await server.ask("SCRIPT", "FLUSH");
      }
    },
  });
});

test("connections killed repeatedly", async () => {
  await using server = await startRedis();
  const kills = 20;
  await play("cut off", {
    client: () => clientOf(server.url),
    fault: async () => {
      for (let i = 0; i < kills; i++) {
        await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        await sleep(200);
      }
    },
  });
});

test("a cluster of three masters, one of which dies", async () => {
  await using cluster = await startCluster(3, { replicas: 1 });
  const nodes = cluster.nodes.map(({ host, port }) => ({ host, port }));
  const of = async (slot: string) =>
    Number(await cluster.masters[0]?.ask("CLUSTER", "KEYSLOT", slot));
  // a client whose limiters are on the first master
  let tag = 0;
  while ((await of(`${tag}`)) > 5000) tag++;
  await play(`{${tag}}`, {
    client: () => new Cluster(nodes, { clusterRetryStrategy: () => 50 }),
    fault: async () => {
      await cluster.masters[0]?.kill9();
      await sleep(700);
      await cluster.failover(0);
    },
    faults: { lostWrites: 1 },
  });
});

for (const seconds of [-5, 5]) {
  test(`another is promoted whose clock is ${seconds} s ahead`, async () => {
    await using first = await startRedis();
    await using second = await startReplica(first, { clockOffsetMs: 1000 * seconds });
    await using sentinel = await startSentinel(first);
    await play("promoted", {
      client: () =>
        new Redis({
          sentinels: [{ host: sentinel.host, port: sentinel.port }],
          name: "master",
          retryStrategy: () => 50,
          sentinelRetryStrategy: () => 50,
        }),
      fault: async () => {
        await first.kill9();
        await promote(second);
        sentinel.master = second;
      },
      faults: {
        lostWrites: 1,
        jumpSeconds: Math.max(0, seconds),
      },
    });
  });
}

/** A client's question to a Sentinel: which server is the master now? */
async function startSentinel(master: RedisServer) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.unref());
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (data) => {
      // a request is an array of words; only their number matters here
      for (const [request] of `${data}`.matchAll(/\*\d+\r\n(?:\$\d+\r\n[^\r]*\r\n)+/g)) {
        const { host, port } = sentinel.master;
        if (/get-master-addr-by-name/i.test(request)) {
          socket.write(`*2\r\n$${host.length}\r\n${host}\r\n$${`${port}`.length}\r\n${port}\r\n`);
        } else if (/sentinels/i.test(request)) socket.write("*0\r\n");
        else socket.write("-NOPROTO only this\r\n");
      }
    });
  });
  const sentinel = {
    host: "127.0.0.1",
    port: 0,
    master,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
  await new Promise<void>((resolve) => server.unref().listen(0, sentinel.host, resolve));
  const address = server.address();
  if (typeof address === "object" && address !== null) sentinel.port = address.port;
  return sentinel;
}

test.run();
