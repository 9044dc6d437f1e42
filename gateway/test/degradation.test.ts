import { once } from "node:events";
import { Agent, createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { until } from "../../test/support/redis/ask.ts";
import { startRedis } from "../../test/support/redis/server.ts";
import { suite } from "../../test/support/suite.ts";
import {
  createGateway,
  type GatewayOptions,
  nodeGateway,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("gateway, Redis away");

const TIMEOUT_MS = 250;
const GLOBAL = "url: /\nrules: [{ actor: all, unit: hour, rpu: 1000000, algo: W, scope: global }]";

function client(url: string): Redis {
  const redis = new Redis(url, {
    retryStrategy: () => 20,
    maxRetriesPerRequest: null,
    disconnectTimeout: 50,
  });
  redis.on("error", () => {});
  return redis;
}

test("Redis killed and restarted under load: no request fails, the slowest waits once for timeoutMs", async () => {
  await using server = await startRedis();
  const redis = client(server.url);
  const gateway = await createGateway({
    rules: readRules(GLOBAL),
    redis,
    instances: 2,
    timeoutMs: TIMEOUT_MS,
  });
  const faults: unknown[] = [];
  const listener = nodeGateway(gateway, (_, res) => res.end("ok"), {
    onError: (error) => {
      faults.push(error);
      return "allow";
    },
  });
  const web = createServer(listener).listen(0, "127.0.0.1");
  await once(web, "listening");
  const { port } = web.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 10 });
  const answers: { status: number | undefined; at: number; ms: number; fields: unknown }[] = [];
  let isOver = false;
  const load = Array.from({ length: 10 }, async () => {
    while (!isOver) {
      const at = performance.now();
      const [response] = await once(get({ port, agent }), "response");
      response.resume();
      await once(response, "end");
      const { statusCode: status, headers } = response;
      answers.push({ status, at, ms: performance.now() - at, fields: headers.ratelimit });
      await sleep(2);
    }
  });

  await sleep(200);
  const killedAt = performance.now();
  await server.kill9();
  await sleep(TIMEOUT_MS + 50);
  const away = answers.length;
  // so many that the requests of one pause of a busy machine are few of them
  await until("answers while it is away", () => answers.length > away + 300);
  const restartedAt = performance.now();
  await server.restart();
  await sleep(500);
  isOver = true;
  await Promise.all(load);

  assert.equal(faults, []);
  assert.equal([...new Set(answers.map(({ status }) => status))], [200]);
  assert.ok(answers.every(({ fields }) => typeof fields === "string"));
  // a busy machine is slow by itself; the checks below show that no request waits twice
  const slowest = Math.max(...answers.map(({ ms }) => ms));
  assert.ok(slowest < TIMEOUT_MS + 3000, `${slowest} ms`);
  const during = answers.filter(({ at }) => at > killedAt + TIMEOUT_MS + 50 && at < restartedAt);
  const slow = during.filter(({ ms }) => ms > TIMEOUT_MS / 2);
  // a busy machine delays many; if requests paid for the outage, all would be slow
  assert.ok(slow.length < 0.9 * during.length, `${slow.length} of ${during.length} were slow`);

  agent.destroy();
  web.close();
  await gateway.close();
  redis.disconnect();
});

test("during an outage a share of the requests passes, all pass, or check rejects", async () => {
  const passed = async (options: Partial<GatewayOptions>) => {
    await using server = await startRedis();
    const redis = client(server.url);
    const text = "url: /\nrules: [{ actor: all, unit: hour, rpu: 10, algo: W, scope: global }]";
    const rules = readRules(text);
    const gateway = await createGateway({ rules, redis, timeoutMs: 100, ...options });
    await server.kill9();
    let count = 0;
    try {
      for (let i = 0; i < 12; i++) {
        const { allowed } = (await gateway.check(request("/"))) as Verdict;
        if (allowed) count += 1;
      }
    } finally {
      await gateway.close();
      redis.disconnect();
    }
    return count;
  };
  assert.is(await passed({ instances: 5 }), 2);
  assert.is(await passed({ instances: () => 2 }), 5);
  assert.is(await passed({ whenUnavailable: "allow" }), 12);
  assert.is(await passed({}), 10); // no other instance has been counted
  try {
    await passed({ whenUnavailable: "throw" });
    assert.unreachable("it continued");
  } catch (error) {
    assert.match(String(error), /StoreUnavailableError/);
  }
});

test("by default the share is 1/n, with n the number of instances that were counted", async () => {
  await using server = await startRedis();
  const redis = client(server.url);
  const text =
    "url: /\nrules: [{ actor: all, unit: hour, rpu: 10, algo: W, scope: global, name: r }]";
  const rules = readRules(text);
  const gateway = await createGateway({ rules, redis, timeoutMs: 100 });
  // another instance, which this one sees with its first request
  const key = "g:r%processes";
  await redis.set(key, `another ${Date.now() + 60_000}\n`);
  while (`${await redis.get(key)}`.split("\n").length < 3) await gateway.check(request("/"));
  const { remaining } =
    ((await gateway.check(request("/"))) as Verdict).outcomes[0]?.decision ?? {};
  await server.kill9();
  let passed = 0;
  for (let i = 0; i < 12; i++) {
    if (((await gateway.check(request("/"))) as Verdict).allowed) passed += 1;
  }
  assert.ok(passed <= 5, `${passed} of ${remaining} that were left`);
  await gateway.close();
  redis.disconnect();
});

test.run();
