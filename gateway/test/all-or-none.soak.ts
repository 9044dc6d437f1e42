/**
 * Two processes keep 1000 requests of a device in flight whose limit is used up, through `allOf` and
 * through the gateway. Requests of new devices in this process all pass, and no permit is lost.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { allOf, fixedWindow } from "smooth-limiter";
import { RedisLimiter } from "smooth-limiter/redis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../test/support/redis/server.ts";
import { suite } from "../../test/support/suite.ts";
import { createGateway, readRules } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const DAY = 86_400_000;
const LIMIT = 200;
const IN_FLIGHT = 1000;
const RULES = `
url: /
rules:
  - { actor: all, unit: day, rpu: ${LIMIT}, algo: W, scope: global }
  - { actor: device, unit: day, rpu: 1, algo: W, scope: global }
`;

interface Subject {
  ask(device: number): Promise<boolean>;
  close(): Promise<unknown>;
}

async function open(kind: string, redis: Redis): Promise<Subject> {
  if (kind === "gateway") {
    const gateway = await createGateway({ rules: readRules(RULES), redis, timeoutMs: 60_000 });
    const addressOf = (device: number) => `10.0.${device >> 8}.${device & 255}`;
    return {
      ask: async (device) =>
        (await gateway.check(request("/", { remoteAddress: addressOf(device) }))).allowed,
      close: () => gateway.close(),
    };
  }
  const options = { timeoutMs: 60_000 };
  const common = RedisLimiter.create(
    ...([redis, "common", fixedWindow({ limit: LIMIT, windowMs: DAY }), options] as const),
  );
  const devices = RedisLimiter.create(
    ...([redis, "devices", fixedWindow({ limit: 1, windowMs: DAY }), options] as const),
  );
  return {
    ask: (device) => allOf(common, devices.for(String(device))).tryAcquire() as Promise<boolean>,
    close: () => Promise.all([common.close(), devices.close()]),
  };
}

/** Sends requests of a device whose limit is used up, a thousand at a time, until a message comes. */
async function flood(url: string, kind: string): Promise<number> {
  const redis = new Redis(url);
  const subject = await open(kind, redis);
  let isOver = false;
  process.once("message", () => {
    isOver = true;
  });
  let passed = 0;
  const ask = async () => {
    while (!isOver) if (await subject.ask(0)) passed += 1;
  };
  process.send?.("ready");
  await Promise.all(Array.from({ length: IN_FLIGHT }, ask));
  await subject.close();
  redis.disconnect();
  return passed;
}

if (process.send !== undefined) {
  const [, , url = "", kind = ""] = process.argv;
  process.send({ passed: await flood(url, kind) });
  process.disconnect();
} else {
  const test = suite("all or none, two processes", { timeoutMs: 300_000 });

  for (const kind of ["allOf", "gateway"]) {
    test(`2 × ${IN_FLIGHT} refused requests in flight keep no permit from others: ${kind}`, async () => {
      const url = await freshUrl();
      const redis = new Redis(url);
      const subject = await open(kind, redis);
      assert.ok(await subject.ask(0));
      const file = fileURLToPath(import.meta.url);
      const children = [1, 2].map(() => fork(file, [url, kind], { execArgv: ["--import", "tsx"] }));
      await Promise.all(children.map((child) => once(child, "message")));
      let passed = 0;
      for (let device = 1; device < LIMIT; device++) if (await subject.ask(device)) passed += 1;
      assert.is(passed, LIMIT - 1, "every new device passes");
      assert.not(await subject.ask(LIMIT), "and not one more");
      const ended = children.map((child) => once(child, "message"));
      for (const child of children) child.send("stop");
      const counts = (await Promise.all(ended)).map(
        ([message]) => (message as { passed: number }).passed,
      );
      assert.equal(counts, [0, 0]);
      await subject.close();
      redis.disconnect();
    });
  }

  test.run();
}
