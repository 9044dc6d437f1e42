/** Rules in this process and on Redis together: all or none. */
import { Redis } from "ioredis";
import { diagnostics } from "smooth-limiter";
import * as assert from "uvu/assert";
import { contest } from "../../test/support/limiter/contest.ts";
import { PATIENT } from "../../test/support/patient.ts";
import { freshUrl } from "../../test/support/redis/server.ts";
import { runs, suite } from "../../test/support/suite.ts";
import { createGateway, readRules } from "../src/index.ts";
import { request } from "./support/http/request.ts";

let redis: Redis;
let other: Redis;

const test = suite("rules on Redis together", { timeoutMs: 180_000 });

test.before(async () => {
  const url = await freshUrl();
  redis = new Redis(url);
  other = new Redis(url);
});
test.before.each(async () => {
  await redis.flushdb();
});
test.after(() => {
  redis.disconnect();
  other.disconnect();
});

for (const [inFlight, good] of [
  [100, 15],
  [runs(1000), 2],
] as const) {
  test(`${inFlight} refused requests in flight keep no permit from others`, async () => {
    const rules = readRules(`
url: /
rules:
  - { actor: all, unit: day, rpu: ${good + 5}, algo: SL, scope: global }
  - { actor: device, unit: day, rpu: 1, algo: SL, scope: global }
  - { actor: device, unit: day, rpu: 1, algo: SL, scope: global, mode: shadow, name: shadow }
`);
    const gateways = await Promise.all(
      [redis, other].map((client) => createGateway({ rules, redis: client, timeoutMs: 30_000 })),
    );
    const addressOf = (device: string) =>
      device === "bad" ? "10.0.0.1" : `10.0.1.${device.split(" ")[1]}`;
    await contest(redis, inFlight, good, async (client, device) => {
      const verdict = await gateways[client]?.check(
        request("/", { remoteAddress: addressOf(device) }),
      );
      return verdict?.allowed === true;
    });
    await Promise.all(gateways.map((gateway) => gateway.close()));
  });
}

test("refusals are published by the rules that refuse, and only where the request is refused", async () => {
  const refused: string[] = [];
  const listener = (message: unknown) => {
    refused.push(String((message as { limiter: string }).limiter));
  };
  diagnostics.refused.subscribe(listener);
  const gateway = await createGateway({
    ...{ redis, ...PATIENT },
    rules: readRules(`
- url: /
  rules:
    - { actor: all, unit: day, rpu: 1, mode: shadow, name: shadow }
    - { actor: all, unit: day, rpu: 1, mode: shadow, scope: global, name: shared shadow }
    - { actor: all, unit: day, rpu: 2, name: local }
    - { actor: all, unit: day, rpu: 9, scope: global, name: shared }
- url: /shadow
  rules: [{ actor: all, unit: day, rpu: 1, mode: shadow, name: lone }]
`),
  });
  await gateway.check(request("/"));
  await gateway.check(request("/"));
  await gateway.check(request("/shadow"));
  assert.equal(refused, ["local"]);
  const verdict = await gateway.check(request("/"));
  assert.equal([verdict.allowed, refused], [false, ["local", "local"]]);
  diagnostics.refused.unsubscribe(listener);
  await gateway.close();
});

test.run();
