/** Two real processes on one Redis share a global rule, and each has its own local rule. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { PATIENT } from "../../test/support/patient.ts";
import { freshUrl } from "../../test/support/redis/server.ts";
import { suite } from "../../test/support/suite.ts";
import { createGateway, readRules } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const SECONDS = 4;
const RATE = 50;

const RULES = `
- url: /global
  rules: [{ actor: all, unit: second, rpu: ${RATE}, burst: 1, scope: global }]
- url: /local
  rules: [{ actor: all, unit: second, rpu: ${RATE}, burst: 1 }]
`;

interface Passed {
  readonly global: number;
  readonly local: number;
  /** The times of the first and the last request, Unix time, ms. */
  readonly from: number;
  readonly to: number;
}

/** Sends requests to both rules as fast as possible for a few seconds. */
async function hammer(url: string): Promise<Passed> {
  const redis = new Redis(url);
  const gateway = await createGateway({ rules: readRules(RULES), redis, ...PATIENT });
  const passes = async (path: string) => (await gateway.check(request(path))).allowed;
  await passes("/none");
  process.send?.("ready");
  await once(process, "message");
  const from = Date.now();
  const end = performance.now() + SECONDS * 1000;
  const passed = { global: 0, local: 0 };
  while (performance.now() < end) {
    if (await passes("/global")) passed.global += 1;
    if (await passes("/local")) passed.local += 1;
  }
  await gateway.close();
  redis.disconnect();
  return { ...passed, from, to: Date.now() };
}

if (process.send !== undefined) {
  const [, , url = ""] = process.argv;
  process.send(await hammer(url));
  process.disconnect();
} else {
  const test = suite("two processes");

  test("two gateways share a global rule, and each has its own local rule", async () => {
    const url = await freshUrl();
    const file = fileURLToPath(import.meta.url);
    const children = [1, 2].map(() => fork(file, [url], { execArgv: ["--import", "tsx"] }));
    const answer = async (child: ChildProcess) => (await once(child, "message"))[0];
    // they start together, however long a busy machine takes to load them
    await Promise.all(children.map(answer));
    for (const child of children) child.send("go");
    const counts: Passed[] = await Promise.all(children.map(answer));
    const total = (of: "global" | "local") => counts.reduce((sum, one) => sum + one[of], 0);
    const ends = counts.map(({ to }) => to);
    const seconds = (Math.max(...ends) - Math.min(...counts.map(({ from }) => from))) / 1000;
    assert.ok(total("global") <= seconds * RATE + 2, `${total("global")} in ${seconds} s`);
    // on a busy machine the processes send fewer requests, so only upper bounds are checked
    for (const { local, from, to } of counts) {
      assert.ok(local <= ((to - from) / 1000) * RATE + 2, `${local}`);
    }
    assert.ok(total("local") > 1.2 * total("global"), `${total("local")} ${total("global")}`);
  });

  test.run();
}
