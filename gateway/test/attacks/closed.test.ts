import { Redis } from "ioredis";
import { gcra } from "smooth-limiter";
import { type RedisClient, RedisLimiter } from "smooth-limiter/redis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../../test/support/redis/server.ts";
import { isTriedOneIn, suite } from "../../../test/support/suite.ts";
import { createGateway, type HostOptions, readRules } from "../../src/index.ts";
import { type ask1, EVERY } from "../support/http/ask.ts";
import type { Running } from "../support/http/servers.ts";

const test = suite("requests after a close");

const RULES = readRules(`
url: /
rules:
  - { actor: device, unit: day, rpu: 3, algo: W, name: here }
  - { actor: all, unit: day, rpu: 1000, scope: global, name: everywhere }
`);

let redis: RedisClient & { disconnect(): void };
test.before(async () => {
  redis = new Redis(await freshUrl()) as unknown as typeof redis;
});
test.after(() => redis.disconnect());

const ANSWERS: Readonly<Record<string, [options: HostOptions, status: number]>> = {
  "no onError": [{}, 503],
  refuse: [{ onError: "refuse" }, 503],
  allow: [{ onError: "allow" }, 200],
  "a function": [
    {
      onError: (error) =>
        (error as { code?: string }).code === "LIMITER_CLOSED" ? "allow" : "refuse",
    },
    200,
  ],
};

async function statusesOf(server: Running, ask: typeof ask1): Promise<ReadonlySet<number>> {
  const replies = await Promise.all([1, 2, 3, 4, 5].map(() => ask(server, "/hello")));
  return new Set(replies.map(({ status }) => status));
}

for (const [h, [name, [host, ask]]] of Object.entries(EVERY).entries()) {
  test(`a closed gateway lets nobody past its rules: ${name}`, async () => {
    for (const [w, whenUnavailable] of (["local", "allow", "throw"] as const).entries()) {
      if (!isTriedOneIn(3, h, w)) continue;
      const gateway = await createGateway({ rules: RULES, redis, whenUnavailable });
      const servers = await Promise.all(
        Object.values(ANSWERS).map(([options]) => host(gateway, options)),
      );
      assert.is((await ask(servers[0] as Running, "/hello")).status, 200);
      await gateway.close();
      for (const [i, [said, [, status]]] of Object.entries(ANSWERS).entries()) {
        const server = servers[i] as Running;
        assert.equal([...(await statusesOf(server, ask))], [status], `${whenUnavailable}, ${said}`);
        await server.close();
      }
    }
  });

  test(`a closed limiter lets nobody past a limit in one call: ${name}`, async () => {
    const settings = [{}, { maxWaitMs: 1000 }, { count: "failures" as const }];
    for (const [a, [said, [options, status]]] of Object.entries(ANSWERS).entries()) {
      for (const [m, more] of settings.entries()) {
        if (!isTriedOneIn(4, h, a, m)) continue;
        const policy = gcra({ limit: 1000, periodMs: 1000 });
        const limiter = RedisLimiter.create(redis, `closed ${said}`, policy);
        const server = await host({ limiter, options: { ...options, ...more } });
        assert.is((await ask(server, "/hello")).status, 200);
        await limiter.close();
        const where = `${said}, ${JSON.stringify(more)}`;
        assert.equal([...(await statusesOf(server, ask))], [status], where);
        await server.close();
      }
    }
  });
}

test("a closed gateway still limits by its rules in this process", async () => {
  const [host, ask] = Object.values(EVERY)[0] as (typeof EVERY)[string];
  const rules = readRules("{ url: /, rules: [{ actor: device, unit: day, rpu: 3, algo: W }] }");
  const gateway = await createGateway({ rules });
  const server = await host(gateway);
  await gateway.close();
  const replies = await Promise.all([1, 2, 3, 4, 5].map(() => ask(server, "/hello")));
  assert.equal(replies.map(({ status }) => status).sort(), [200, 200, 200, 429, 429]);
  await server.close();
});

test.run();
