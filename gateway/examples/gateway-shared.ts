/**
 * Two instances of a service, in two processes, have the same rules. A rule with scope local applies to
 * each instance separately; a rule with scope global applies to both together, through Redis. Set
 * REDIS_URL to use your own Redis; otherwise the example starts one.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import autocannon from "autocannon";
import { Redis } from "ioredis";
import colors from "picocolors";
import { createGateway, nodeGateway, readRules } from "smooth-limiter-gateway";
import { startRedis } from "../../test/support/redis/server.ts";

const INSTANCES = 2;
const RATE = 40;
const SECONDS = 3;

const rules = `
- url: /each
  rules: [{ actor: all, unit: second, rpu: ${RATE}, scope: local }]
- url: /together
  rules: [{ actor: all, unit: second, rpu: ${RATE}, scope: global }]
`;

const [, file, prefix] = process.argv;
if (prefix !== undefined) await serve(prefix);
else await lead();

/** Runs one instance. It needs the rules, the Redis, and the number of instances. */
async function serve(prefix: string): Promise<void> {
  const redis = new Redis(process.env.REDIS_URL ?? "");
  const gateway = await createGateway({
    rules: readRules(rules),
    redis,
    instances: INSTANCES, // for their shares while Redis is away: see gateway-outage.ts
    prefix,
  });
  const server = createServer(nodeGateway(gateway, (_, res) => res.end("done")));
  server.listen(0, () => process.send?.((server.address() as AddressInfo).port));
  process.on("disconnect", () => process.exit());
}

async function lead(): Promise<void> {
  const server = process.env.REDIS_URL ? undefined : await startRedis();
  const env = { ...process.env, REDIS_URL: process.env.REDIS_URL ?? server?.url };
  const instances = await Promise.all(
    Array.from({ length: INSTANCES }, async () => {
      const instance = fork(file ?? fileURLToPath(import.meta.url), [`${process.pid}:`], { env });
      const [port] = await once(instance, "message");
      return { instance, port };
    }),
  );

  console.log(
    `${INSTANCES} instances, each asked 200 times a second; ${RATE} a second are allowed`,
  );
  const passed = async (path: string) => {
    const startedAt = performance.now();
    const results = await Promise.all(
      instances.map(({ port }) =>
        autocannon({
          url: `http://localhost:${port}${path}`,
          connections: 4,
          overallRate: 200,
          duration: SECONDS,
        }),
      ),
    );
    const seconds = (performance.now() - startedAt) / 1000;
    const counts = results.map((result) => result["2xx"]);
    const sum = counts.reduce((all, count) => all + count, 0);
    const allowed = Math.floor(RATE + RATE * seconds);
    const marks = counts.map((count) => colors.green("■".repeat(Math.round(count / 10))));
    console.log(`\n${path}: ${sum} passed; one bucket allows ${allowed}`);
    for (const [i, count] of counts.entries()) console.log(`  ${marks[i]} ${count}`);
    return { sum, allowed };
  };

  const each = await passed("/each");
  const together = await passed("/together");
  assert.ok(together.sum <= together.allowed, "with scope global the instances share one limit");
  assert.ok(
    together.sum > 0.4 * together.allowed,
    "with scope global the instances use most of the limit",
  );
  assert.ok(each.sum > 1.2 * together.sum, "with scope local each instance has its own limit");

  for (const { instance } of instances) instance.kill();
  await server?.stop();
}
