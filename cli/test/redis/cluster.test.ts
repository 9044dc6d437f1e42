import { Cluster } from "ioredis";
import { RedisConcurrencyLimiter, RedisRateLimiter } from "smooth-limiter/redis";
import * as assert from "uvu/assert";
import { PATIENT } from "../../../test/support/patient.ts";
import { type RedisCluster, startCluster } from "../../../test/support/redis/cluster.ts";
import { suite } from "../../../test/support/suite.ts";
import { cli } from "../support/run.ts";

const test = suite("command line: redis on a Cluster");

let cluster: RedisCluster;
let client: Cluster;

test.before(async () => {
  cluster = await startCluster(3, { clockOffsetsMs: [0, 20_000, -20_000] });
  client = new Cluster(cluster.masters.map(({ host, port }) => ({ host, port })));
});
test.after(async () => {
  client.disconnect();
  await cluster.stop();
});

test("ls finds the limiters of all masters, and a limiter is changed on its own", async () => {
  const names = Array.from({ length: 12 }, (_, i) => `api-${i}`);
  const limiters = names.map((name) => RedisRateLimiter.create(client, name, 10, PATIENT));
  await Promise.all(limiters.map((limiter) => limiter.acquire(100)));
  const reports = RedisConcurrencyLimiter.create(client, "reports", 2, PATIENT);
  const lease = await reports.acquire();
  const sizes = await Promise.all(client.nodes("master").map((node) => node.dbsize()));
  assert.ok(
    sizes.every((size) => size > 0),
    `the keys are on all masters: ${sizes}`,
  );
  for (const [i, { url }] of cluster.masters.entries()) {
    const run = (...args: string[]) => cli(["redis", ...args, "--url", url]);
    const { code, out, err } = await run("ls", "--json");
    assert.is(code, 0, err);
    const keys = JSON.parse(out).map(({ key }: { key: string }) => key);
    assert.equal(keys, ["c:reports", ...names.map((name) => `l:${name}`).sort()]);
    for (const name of names.slice(4 * i, 4 * i + 4)) {
      assert.is((await run("set-rate", `l:${name}`, "20")).code, 0);
      assert.match((await run("show", `l:${name}`)).out, "20/s, set; declared 10/s");
    }
    assert.is((await run("set-limit", "c:reports", "5")).code, 0);
    assert.is((await run("set-limit-key", "limits:api", "5")).code, 0);
  }
  assert.is((await reports.peek()).limit, 5);
  await limiters[0]?.peek();
  assert.is(limiters[0]?.getRate(), 20);
  assert.is(await client.get("limits:api"), "5");
  await lease.release();
  await reports.close();
});

test("each key is shown by the clock of its own node", async () => {
  const names = Array.from({ length: 12 }, (_, i) => `clock-${i}`);
  const limiters = names.map((name) => RedisRateLimiter.create(client, name, 10, PATIENT));
  await Promise.all(limiters.map((limiter) => limiter.acquire()));
  const url = cluster.masters[0]?.url ?? "";
  const { out } = await cli(["redis", "ls", "--json", "--prefix", "l:clock", "--url", url]);
  const ages = JSON.parse(out).map(
    ({ nowMs, writtenMs }: Record<"nowMs" | "writtenMs", number>) => nowMs - writtenMs,
  );
  assert.is(ages.length, names.length);
  assert.ok(
    ages.every((ms: number) => ms >= 0 && ms < 10_000),
    `${ages}`,
  );
});

test("a node that hangs ends the command with an error that names the node", async () => {
  const [first, last] = [cluster.masters[0], cluster.masters.at(-1)];
  last?.suspend();
  const { code, err } = await cli(["redis", "ls", "--timeout", "2000", "--url", `${first?.url}`]);
  last?.resume();
  assert.is(code, 2);
  assert.match(err, `Redis: no answer of 127.0.0.1:${last?.port} within 2 s: it hangs`);
});

test.run();
