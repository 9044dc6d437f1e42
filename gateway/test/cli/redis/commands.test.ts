import { Redis } from "ioredis";
import { fixedWindow, gcra, smoothBursty } from "smooth-limiter";
import { RedisConcurrencyLimiter, RedisLimiter, RedisRateLimiter } from "smooth-limiter/redis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../../../scripts/redis/server.ts";
import { suite } from "../../../../test/support/suite.ts";
import { cli } from "../../support/cli/run.ts";

const test = suite("command line: redis");

let url: string;
let redis: Redis;
let subscriber: Redis;

test.before(async () => {
  url = await freshUrl();
  redis = new Redis(url);
  subscriber = new Redis(url);
});
test.before.each(() => redis.flushdb().then(() => {}));
test.after(async () => {
  await Promise.all([redis.quit(), subscriber.quit()]);
});

const run = (...args: readonly string[]) => cli(["redis", ...args], { env: { REDIS_URL: url } });

async function readJson(...args: readonly string[]) {
  const { code, out, err } = await run(...args, "--json");
  assert.is(code, 0, err);
  return JSON.parse(out);
}

/** Everything that is stored, byte for byte. */
async function dump(): Promise<Record<string, string>> {
  const keys = (await redis.keys("*")).sort();
  const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
  return Object.fromEntries(keys.map((key, i) => [key, `${dumps[i]?.toString("hex")}`]));
}

test("ls lists limiters of every kind, and changes nothing", async () => {
  await RedisRateLimiter.create(redis, "github", 10).acquire(100);
  const users = RedisLimiter.create(redis, "api[x%", gcra({ limit: 100, periodMs: 60_000 }));
  await users.for("ann[1]").tryAcquire(3);
  const both = {
    second: gcra({ limit: 5, periodMs: 1000 }),
    day: smoothBursty({ permitsPerSecond: 1 }),
  };
  await RedisLimiter.create(redis, "both", both).tryAcquire();
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 2);
  const lease = await reports.acquire();
  await redis.set("l:other", "no limiter");
  await redis.hset("l:hash", { a: 1 });
  await redis.set("unrelated", "1");

  const before = await dump();
  const { out, code } = await run("ls");
  assert.is(code, 0);
  assert.match(out, /l:github +smooth +10\/s +0 of 11/);
  assert.match(out, /l:api%5Bx%25\[ann\[1\] +gcra +1\.667\/s +97(\.\d+)? of 100 +now/);
  assert.match(out, /l:both +gcra +5\/s/);
  assert.match(out, /c:reports +at once +2 +1 held/);
  assert.match(out, /l:other +no limiter/);
  assert.match(out, /6 limiters/);
  assert.is.not(out.includes("unrelated"), true);
  const listed = await readJson("ls");
  assert.equal(
    listed.map(({ kind, key }: { kind: string; key: string }) => `${kind} ${key}`),
    [
      "concurrency c:reports",
      "rate l:api%5Bx%25[ann[1]",
      "rate l:both",
      "rate l:github",
      "foreign l:hash",
      "foreign l:other",
    ],
  );
  assert.ok(listed[3].waitMs > 0 && listed[3].waitMs <= 10_000, `${listed[3].waitMs}`);
  assert.equal(await dump(), before);
  await lease.release();
  await reports.close();
});

test("ls shows only what is asked for", async () => {
  for (const name of ["a", "b", "c"]) await RedisRateLimiter.create(redis, name, 1).acquire();
  await RedisRateLimiter.create(redis, "a", 1, { prefix: "own*:" }).acquire();
  assert.match((await run("ls", "--top", "2")).out, "3 limiters, 1 not shown");
  assert.equal((await readJson("ls", "--prefix", "own*:")).length, 1);
  assert.is((await run("ls", "--prefix", "x")).out, "no limiters\n");
});

test("show says who holds leases and who waits", async () => {
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 1, { subscriber });
  const lease = await reports.acquire();
  const waiting = reports.acquire();
  await reports.setLimit(1);
  while ((await readJson("show", "c:reports")).waiting.length === 0);
  const { out } = await run("show", "c:reports");
  assert.match(out, /held by process [\w-]+, lapses in [\d.]+ s unless renewed/);
  assert.match(out, /waited for by process/);
  await lease.release();
  await (await waiting).release();
  await reports.setLimit(3);
  assert.match((await run("show", "c:reports")).out, "code that declares 1 has 3, set at run time");
  await reports.close();
});

test("show of nothing has exit code 1", async () => {
  const { code, out } = await run("show", "l:none");
  assert.equal([code, out], [1, "l:none: nothing is stored\n"]);
  assert.equal((await run("show", "l:none", "--json")).out, "null\n");
});

test("set-rate holds for all code that declares the same numbers, until reset-rate", async () => {
  const [here, there] = [1, 2].map(() => RedisRateLimiter.create(redis, "github", 10));
  await here?.acquire();
  const { out, code } = await run("set-rate", "l:github", "20");
  assert.is(code, 0);
  assert.match(out, "l:github: from 10 to 20 permits per second, for all code that declares 10");
  await there?.acquire();
  assert.is(there?.getRate(), 20);
  assert.match((await run("ls")).out, "20/s, set; declared 10/s");
  assert.match((await run("show", "l:github")).out, "20/s, set; declared 10/s");
  // what is set is read as such, whichever code wrote last
  assert.match((await run("set-rate", "l:github", "5")).out, "from 20 to 5");
  await here?.acquire();
  assert.is(here?.getRate(), 5);
  assert.match((await run("reset-rate", "l:github")).out, "back to the declared 10");
  await there?.peek();
  assert.is(there?.getRate(), 10);
  assert.match((await run("reset-rate", "l:github")).out, "nothing is set");
});

test("set-rate of other algorithms scales what comes at once", async () => {
  const limiter = RedisLimiter.create(redis, "api", gcra({ limit: 10, periodMs: 1000, burst: 4 }));
  await limiter.tryAcquire();
  await run("set-rate", "l:api", "20");
  const { limit, policies } = await limiter.peek();
  assert.equal([limit, policies.default.windowMs], [10, 500]);

  const windows = RedisLimiter.create(redis, "w", fixedWindow({ limit: 60, windowMs: 60_000 }));
  await windows.tryAcquire();
  await run("set-rate", "l:w", "0.5");
  assert.is((await windows.peek()).limit, 30);
});

test("set-rate of several policies asks which", async () => {
  const both = {
    second: gcra({ limit: 5, periodMs: 1000 }),
    slow: smoothBursty({ permitsPerSecond: 1 }),
  };
  const limiter = RedisLimiter.create(redis, "both", both);
  await limiter.tryAcquire();
  const { code, err } = await run("set-rate", "l:both", "3");
  assert.is(code, 2);
  assert.match(err, "add --policy 1 (gcra) or 2 (smooth)");
  assert.is((await run("set-rate", "l:both", "3", "--policy", "3")).code, 2);
  assert.is((await run("set-rate", "l:both", "3", "--policy", "2")).code, 0);
  await limiter.peek();
  assert.equal(
    limiter.policies.map(({ numbers }) => numbers[0]),
    [5, 3],
  );
});

test("reset and pause act on the limiter of a key", async () => {
  const users = RedisLimiter.create(redis, "api", gcra({ limit: 2, periodMs: 60_000 }));
  const [ann, bob] = ["ann", "bob"].map((key) => users.for(key));
  await ann?.tryAcquire(2);
  await bob?.tryAcquire(2);
  assert.match((await run("reset", "l:api[ann")).out, "l:api[ann: forgets what was used");
  assert.is(await ann?.tryAcquire(2), true);
  assert.is(await bob?.tryAcquire(1), false);
  await run("reset", "l:api[bob");
  assert.match((await run("pause", "l:api[bob", "5000")).out, "lets no call in for 5 s");
  const { waitMs = 0 } = (await bob?.peek()) ?? {};
  assert.ok(waitMs > 3000 && waitMs <= 5000, `${waitMs}`);
});

test("--dry-run says what would be done, and changes nothing", async () => {
  await RedisRateLimiter.create(redis, "github", 10).acquire();
  const before = await dump();
  for (const args of [
    ["set-rate", "l:github", "5"],
    ["reset-rate", "l:github"],
    ["reset", "l:github"],
    ["pause", "l:github", "9"],
  ]) {
    const { code, out } = await run(...args, "--dry-run");
    assert.is(code, 0);
    assert.match(out, "would change l:github: ");
    assert.is((await readJson(...args, "--dry-run")).changed, false);
  }
  assert.equal(await dump(), before);
  assert.is((await readJson("set-rate", "l:github", "5")).changed, true);
});

test("what cannot be changed is an error that says why, with code 2", async () => {
  await redis.set("l:other", "no limiter");
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 1);
  const lease = await reports.acquire();
  for (const [key, why] of [
    ["l:never-used", "no code is known to declare it"],
    ["l:other", "10 bytes that no limiter has written"],
    ["c:reports", "it has no pace"],
  ] as const) {
    const { code, err } = await run("set-rate", key, "5");
    assert.is(code, 2);
    assert.match(err, why);
  }
  await lease.release();
  await reports.close();
  for (const rate of ["0", "-1", "x", "Infinity"]) {
    assert.is((await run("set-rate", "l:x", rate)).code, 2);
  }
});

test("watch draws again, and prints a line of JSON for each look", async () => {
  await RedisRateLimiter.create(redis, "github", 10).acquire();
  const env = { REDIS_URL: url };
  const args = ["redis", "watch", "--every", "1", "--count", "2"];
  const { out } = await cli(args, { env, isTTY: true });
  assert.is(out.split("\u001b[H\u001b[J").length, 3);
  assert.match(out, "l:github");
  const lines = (await cli([...args, "--json"], { env })).out.trim().split("\n");
  assert.equal(
    lines.map((line) => JSON.parse(line).limiters[0].key),
    ["l:github", "l:github"],
  );
});

test("a server that cannot be reached is an error in one line", async () => {
  const { code, err } = await cli(["redis", "ls", "--url", "redis://127.0.0.1:1"]);
  assert.is(code, 2);
  assert.match(err, /^Redis: .*ECONNREFUSED.*\n$/);
});

test.run();
