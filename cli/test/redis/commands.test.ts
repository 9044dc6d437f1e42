import { PassThrough, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { fixedWindow, gcra, smoothBursty } from "smooth-limiter";
import { RedisConcurrencyLimiter, RedisLimiter, RedisRateLimiter } from "smooth-limiter/redis";
import { RegionalLimiter } from "smooth-limiter/regions";
import * as assert from "uvu/assert";
import { PATIENT } from "../../../test/support/patient.ts";
import { startProxy } from "../../../test/support/redis/proxy.ts";
import { freshUrl, startRedis } from "../../../test/support/redis/server.ts";
import { suite } from "../../../test/support/suite.ts";
import { run as program } from "../../src/program.ts";
import { cli } from "../support/run.ts";

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
  await RedisRateLimiter.create(redis, "github", 10, PATIENT).acquire(100);
  const users = RedisLimiter.create(
    redis,
    "api[x%",
    gcra({ limit: 100, periodMs: 3_600_000 }),
    PATIENT,
  );
  await users.for("ann[1]").tryAcquire(3);
  const both = {
    second: gcra({ limit: 5, periodMs: 1000 }),
    hour: gcra({ limit: 1, periodMs: 3_600_000 }),
  };
  await RedisLimiter.create(redis, "both", both, PATIENT).tryAcquire();
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 2, PATIENT);
  const lease = await reports.acquire();
  await redis.set("l:other", "no limiter");
  await redis.hset("l:hash", { a: 1 });
  await redis.set("unrelated", "1");

  const before = await dump();
  const { out, code } = await run("ls");
  assert.is(code, 0);
  assert.match(out, /l:github +smooth +10\/s +0 of 11/);
  assert.match(out, /l:api%5Bx%25\[ann\[1\] +gcra +0\.02778\/s +97(\.\d+)? of 100 +now/);
  assert.match(out, /l:both +gcra +5\/s.*\n +gcra +0\.0002778\/s +0 of 1/);
  assert.match(out, /c:reports +at once +2 +1 held/);
  assert.match(out, /l:other +not a limiter/);
  assert.match(out, /4 limiters, 2 other keys\n/);
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
  for (const name of ["a", "b", "c"])
    await RedisRateLimiter.create(redis, name, 1, PATIENT).acquire();
  await RedisRateLimiter.create(redis, "a", 1, { ...PATIENT, prefix: "own*:" }).acquire();
  assert.match((await run("ls", "--top", "2")).out, "3 limiters, 1 not shown");
  assert.equal((await readJson("ls", "--prefix", "own*:")).length, 1);
  assert.is((await run("ls", "--prefix", "x")).out, "no limiters\n");
});

test("show says who holds leases and who waits", async () => {
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 1, { ...PATIENT, subscriber });
  const lease = await reports.acquire();
  const waiting = reports.acquire();
  await reports.setLimit(1);
  while ((await readJson("show", "c:reports")).waiting.length === 0);
  const { out } = await run("show", "c:reports");
  assert.match(out, /held by process [\w-]+, expires in [\d.]+ s unless renewed/);
  assert.match(out, /waited for by process/);
  await lease.release();
  await (await waiting).release();
  await reports.setLimit(3);
  assert.match((await run("show", "c:reports")).out, "code that declares 1 has 3, set at run time");
  await reports.close();
});

test("keys are printed so that they can be passed on, whatever they contain", async () => {
  const names = ["a\nb", "\u0000", "\u202e", "\\u{a}", "\\", "\ud83d\ude00"];
  for (const key of names) {
    await RedisLimiter.create(redis, "odd", gcra({ limit: 11, periodMs: 3_600_000 }), PATIENT)
      .for(key)
      .acquire();
  }
  const { out } = await run("ls", "--prefix", "l:odd");
  const printed = out.split("\n").flatMap((line) => /^l:odd\S+/.exec(line)?.[0] ?? []);
  assert.is(printed.length, names.length, out);
  const keys = [];
  for (const key of printed) keys.push((await readJson("show", key)).key.slice("l:odd[".length));
  assert.equal(keys.sort(), names.sort());
  // no character that moves the cursor, or changes the order of others
  const text = (await run("ls", "--prefix", "l:odd", "--json")).out;
  assert.not.match(text.replaceAll("\n", ""), /[\p{Cc}\p{Cf}]/u);
});

test("ls and show say what regions have of a limit", async () => {
  const names = ["eu", "us west"];
  const policy = gcra({ limit: 1000, periodMs: 1000 });
  const limiters = names.map((region) => {
    const timing = { everyMs: 100, leaseMs: 1000 };
    return RegionalLimiter.create("a[b", policy, {
      home: redis,
      region,
      regions: names,
      ...timing,
    });
  });
  const key = "l:a%5Bb%regions[ann";
  /** What the command prints while both regions call more than they may, once it is that. */
  const printed = async (wanted: RegExp, ...args: readonly string[]) => {
    for (;;) {
      for (const limiter of limiters) {
        for (let i = 0; i < 300; i++) await limiter.for("ann").tryAcquire();
      }
      const { out } = await run(...args);
      if (wanted.test(out)) return out;
    }
  };
  await printed(/ann +regions +eu [1-9][\d.]* %, us west [1-9][\d.]* % *\n1 limiter\n/, "ls");
  await printed(
    /^ {2}eu, process \w+: [1-9][\d.]* %.*, asks for [\d.,]+ %, expires in /m,
    "show",
    key,
  );
  const { kind, parts } = JSON.parse(await printed(/us west/, "show", key, "--json"));
  assert.is(kind, "regions");
  for (const { held } of parts) assert.ok(held >= 0 && held <= 1, `${held}`);
  const { out, code } = await run("show", "l:a%5Bb%regions");
  assert.is(code, 0);
  assert.match(out, "their parts are under l:a%5Bb%regions[, of .for(key) with the key behind it");
  assert.not.match(out, "each region has its reserve");
  for (const limiter of limiters) await limiter.close();
});

for (const clockOffsetMs of [-20_000, 20_000]) {
  test(`ls and show go by the clock of Redis, which differs by ${clockOffsetMs} ms`, async () => {
    const server = await startRedis({ clockOffsetMs });
    const home = new Redis(server.url);
    const ask = async (...args: readonly string[]) => {
      const { code, out, err } = await cli(["redis", ...args, "--url", server.url]);
      assert.is(code, 0, err);
      return out;
    };
    const timing = { everyMs: 100, leaseMs: 2000 };
    const regions = ["eu", "us"];
    const policy = gcra({ limit: 1000, periodMs: 1000 });
    const limiters = regions.map((region) =>
      RegionalLimiter.create("api", policy, { home, region, regions, ...timing }),
    );
    const key = "l:api%regions[";
    const held = /regions +eu [1-9][\d.]* %, us [1-9][\d.]* % *\n/;
    const endsAt = Date.now() + 30_000;
    // on a busy machine they would be idle, and give their parts back, while a command runs
    let isBusy = true;
    const calls = (async () => {
      while (isBusy) {
        for (const limiter of limiters) for (let i = 0; i < 300; i++) await limiter.tryAcquire();
        await sleep(20);
      }
    })();
    // that they hold parts is seen without the command
    while (limiters.some(({ fraction }) => fraction < 0.3) && Date.now() < endsAt) await sleep(20);
    const listed = await ask("ls");
    const shown = await ask("show", key);
    assert.match(listed, held);
    assert.match(shown, /eu, process .*, expires in (\d+(\.\d+)? ms|\d(\.\d+)? s) unless/);
    assert.not.match(shown, /its lease is over|no process gets more/);
    const { nowMs, parts } = JSON.parse(await ask("show", key, "--json"));
    for (const { lapsesMs } of parts) {
      assert.ok(lapsesMs > nowMs && lapsesMs < nowMs + 10_000, `${lapsesMs - nowMs}`);
    }

    isBusy = false;
    await calls;
    // regions that are gone keep their rows for a while
    const row = await home.get(key);
    for (const limiter of limiters) await limiter.close();
    await home.set(key, row ?? "");
    while (/expires in/.test(await ask("show", key)) && Date.now() < endsAt);
    assert.match(await ask("show", key), /eu, process .*, its lease is over/);
    assert.match(await ask("ls"), /regions +reserves *\n/);

    const reports = RedisConcurrencyLimiter.create(home, "reports", 1, {
      ...PATIENT,
      leaseMs: 10_000,
    });
    const lease = await reports.acquire();
    assert.match(await ask("show", "c:reports"), /expires in ([5-9](\.\d+)?|10) s unless renewed/);
    await RedisRateLimiter.create(home, "github", 10, PATIENT).acquire();
    const { nowMs: readMs, writtenMs } = JSON.parse(await ask("show", "l:github", "--json"));
    assert.ok(readMs >= writtenMs && readMs < writtenMs + 5000, `${readMs - writtenMs}`);
    assert.match(await ask("show", "l:github"), /last written (\d[\d.]* ms|[1-4](\.\d+)? s) ago/);
    await lease.release();
    await reports.close();
    home.disconnect();
    await server.stop();
  });
}

test("without the right to read the clock of Redis ls and show name it, and show nothing wrong", async () => {
  const server = await startRedis();
  const rights = [
    "~l:*",
    "~c:*",
    "+scan",
    "+type",
    "+get",
    "+zrange",
    "+info",
    "+eval",
    "+evalsha",
  ];
  await server.ask("ACL", "SETUSER", "operator", "on", ">secret", ...rights);
  const client = new Redis(server.url);
  await RedisRateLimiter.create(client, "github", 10, PATIENT).acquire();
  const reports = RedisConcurrencyLimiter.create(client, "reports", 1, PATIENT);
  const lease = await reports.acquire();
  const ask = (...args: readonly string[]) =>
    cli(["redis", ...args, "--url", server.url.replace("//", "//operator:secret@")]);
  for (const args of [["ls"], ["show", "l:github"], ["show", "c:reports"]]) {
    const { code, out, err } = await ask(...args);
    assert.is(code, 2);
    assert.is(out, "");
    assert.match(err, /^Redis: NOPERM .*'time'.*\n$/);
  }
  await server.ask("ACL", "SETUSER", "operator", "+time");
  assert.match(
    (await ask("ls")).out,
    /c:reports +at once +1 .*\n.*l:github +smooth +10\/s .*\n2 limiters\n/,
  );
  assert.match((await ask("show", "c:reports")).out, "held by process");
  await lease.release();
  await reports.close();
  client.disconnect();
  await server.stop();
});

test("only a value that no limiter has written is no limiter: any other error of Redis ends the command", async () => {
  const server = await startRedis();
  const client = new Redis(server.url);
  await RedisRateLimiter.create(client, "github", 10, PATIENT).acquire();
  const reports = RedisConcurrencyLimiter.create(client, "reports", 1, PATIENT);
  const lease = await reports.acquire();
  const rights = ["~l:*", "~c:*", "+info", "+scan", "+type", "+time", "+get"];
  await server.ask("ACL", "SETUSER", "operator", "on", ">secret", ...rights);
  const ask = (...args: readonly string[]) =>
    cli(["redis", ...args, "--url", server.url.replace("//", "//operator:secret@")]);
  const refused = async (right: string, ...args: readonly string[]) => {
    const { code, out, err } = await ask(...args);
    assert.equal([code, out], [2, ""], args.join(" "));
    assert.match(err, new RegExp(`^Redis: NOPERM .*'${right}'.*\\n$`));
  };
  await refused("evalsha", "ls", "--prefix", "l:");
  await refused("evalsha", "show", "l:github");
  await refused("zrange", "ls", "--prefix", "c:");
  await refused("zrange", "set-limit", "c:reports", "3", "--declared", "1");
  await server.ask("ACL", "SETUSER", "operator", "-get", "+zrange", "+eval", "+evalsha");
  await refused("get", "ls");
  await refused("get", "set-rate", "l:github", "5");
  await server.ask("ACL", "SETUSER", "operator", "+get");

  // a state without its end, which only the script refuses
  const state = await client.getBuffer("l:github");
  await client.set("l:cut", state?.subarray(0, -8) ?? "");
  await client.set("l:cut%regions[", "no regions");
  await client.zadd("c:other", 1, "a member");
  const { code, out } = await ask("ls");
  assert.is(code, 0);
  for (const key of ["c:other", "l:cut", "l:cut%regions["]) {
    assert.ok(out.includes(`\n${key.padEnd(14)}  not a limiter`), out);
  }
  assert.match(out, /\n2 limiters, 3 other keys\n$/);
  await lease.release();
  await reports.close();
  client.disconnect();
  await server.stop();
});

test("no command writes where regions divide a limit, whether or not they do so now", async () => {
  const stored = "l:api%regions[";
  await redis.set(stored, "1 1 1\n");
  const before = await dump();
  for (const key of [stored, "l:api%regions[ann", "l:idle%regions[", "l:idle%regions"]) {
    for (const args of [
      ["set-rate", key, "5"],
      ["reset-rate", key],
      ["reset", key],
      ["pause", key, "9"],
      ["set-limit", key, "5", "--declared", "2"],
      ["reset-limit", key, "--declared", "2"],
      ["set-limit-key", key, "5"],
      ["reset-limit-key", key],
    ]) {
      const { code, err } = await run(...args);
      assert.is(code, 2, args.join(" "));
      assert.match(
        err,
        `${key}: it says how regions divide a limit, whose numbers are in their code`,
      );
    }
  }
  assert.equal(await dump(), before);
  // in the name of a concurrency limiter "%" is not encoded
  const reports = RedisConcurrencyLimiter.create(redis, "a%regions", 2, PATIENT);
  const lease = await reports.acquire();
  assert.is((await run("set-limit", "c:a%regions", "5")).code, 0);
  await lease.release();
  await reports.close();
  // a limit that was written there by mistake can be removed
  await redis.set(stored, "20");
  assert.match((await run("reset-limit-key", stored)).out, "removes the limit 20");
  assert.match((await run("set-limit-key", stored, "-1")).err, "It must be 0 or a number above 0");
  assert.is(await redis.exists(stored), 0);
});

test("show says in sentences when permits are back", async () => {
  const github = RedisRateLimiter.create(redis, "github", 10, PATIENT);
  await github.acquire();
  await github.pause(60_000);
  const paused = (await run("show", "l:github")).out;
  assert.match(paused, /0 of 11 permits left now, all of them in [\d.]+ (s|min)\n/);
  assert.match(paused, /a request for one permit passes in [\d.]+ (s|min)\n/);
  // the second policy keeps the key alive
  const hour = fixedWindow({ limit: 5, windowMs: 3_600_000 });
  const policies = { instant: gcra({ limit: 11, periodMs: 1 }), hour };
  await RedisLimiter.create(redis, "full", policies, PATIENT).acquire();
  const full = (await run("show", "l:full")).out;
  assert.match(full, "11 of 11 permits left now, all of them now\n");
  assert.match(full, "a request for one permit passes now\n");
});

test("a command that puts back what was never set says so, and reports no change", async () => {
  await RedisRateLimiter.create(redis, "github", 10, PATIENT).acquire();
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 2, PATIENT);
  const lease = await reports.acquire();
  const before = await dump();
  for (const [command, key, words] of [
    ["reset-rate", "l:github", "nothing is set over the declared 10"],
    ["reset-limit", "c:reports", "nothing is set over the declared 2"],
    ["reset-limit-key", "limits:none", "holds no limit"],
  ] as const) {
    assert.is((await readJson(command, key)).changed, false, command);
    assert.match((await run(command, key)).out, words);
  }
  assert.equal(await dump(), before);
  await lease.release();
  await reports.close();
});

test("show of nothing has exit code 1", async () => {
  const { code, out } = await run("show", "l:none");
  assert.equal([code, out], [1, 'l:none: nothing is stored; "redis ls" lists the keys\n']);
  assert.equal((await run("show", "l:none", "--json")).out, "null\n");
});

test("set-rate holds for all code that declares the same numbers, until reset-rate", async () => {
  const [here, there] = [1, 2].map(() => RedisRateLimiter.create(redis, "github", 10, PATIENT));
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
  const limiter = RedisLimiter.create(
    redis,
    "api",
    gcra({ limit: 10, periodMs: 1000, burst: 4 }),
    PATIENT,
  );
  await limiter.tryAcquire();
  await run("set-rate", "l:api", "20");
  const { limit, policies } = await limiter.peek();
  assert.equal([limit, policies.default.windowMs], [10, 500]);

  const windows = RedisLimiter.create(
    redis,
    "w",
    fixedWindow({ limit: 60, windowMs: 60_000 }),
    PATIENT,
  );
  await windows.tryAcquire();
  await run("set-rate", "l:w", "0.5");
  assert.is((await windows.peek()).limit, 30);
});

test("set-rate of several policies asks which", async () => {
  const both = {
    second: gcra({ limit: 5, periodMs: 1000 }),
    slow: smoothBursty({ permitsPerSecond: 1 }),
  };
  const limiter = RedisLimiter.create(redis, "both", both, PATIENT);
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
  const users = RedisLimiter.create(redis, "api", gcra({ limit: 2, periodMs: 60_000 }), PATIENT);
  const [ann, bob] = ["ann", "bob"].map((key) => users.for(key));
  await ann?.tryAcquire(2);
  await bob?.tryAcquire(2);
  assert.match((await run("reset", "l:api[ann")).out, "l:api[ann: clears what was used");
  assert.is(await ann?.tryAcquire(2), true);
  assert.is(await bob?.tryAcquire(1), false);
  await run("reset", "l:api[bob");
  assert.match((await run("pause", "l:api[bob", "5000")).out, "grants no call for 5 s");
  const { waitMs = 0 } = (await bob?.peek()) ?? {};
  assert.ok(waitMs > 3000 && waitMs <= 5000, `${waitMs}`);
});

test("--dry-run says what would be done, and changes nothing", async () => {
  await RedisRateLimiter.create(redis, "github", 10, PATIENT).acquire();
  const before = await dump();
  for (const args of [
    ["set-rate", "l:github", "5"],
    ["reset-rate", "l:github"],
    ["reset", "l:github"],
    ["pause", "l:github", "9"],
  ]) {
    const { code, out } = await run(...args, "--dry-run");
    assert.is(code, 0);
    assert.match(out, "dry run, nothing changes: l:github: ");
    assert.is((await readJson(...args, "--dry-run")).changed, false);
  }
  assert.equal(await dump(), before);
  assert.is((await readJson("set-rate", "l:github", "5")).changed, true);
});

test("what cannot be changed is an error that says why, with code 2", async () => {
  await redis.set("l:other", "no limiter");
  const reports = RedisConcurrencyLimiter.create(redis, "reports", 1, PATIENT);
  const lease = await reports.acquire();
  for (const [key, why] of [
    ["l:never-used", "the declared numbers are unknown"],
    ["l:other", "10 bytes that no limiter has written"],
    ["c:reports", "it has no rate, and its leases expire by themselves. See: redis set-limit"],
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

test("set-limit holds for all code that declares the same limit, until reset-limit", async () => {
  const reports = RedisConcurrencyLimiter.create(redis, "re[ports", 1, { ...PATIENT, subscriber });
  const lease = await reports.acquire();
  const waiting = reports.acquire();
  while ((await readJson("show", "c:re[ports")).waiting.length === 0);
  const { out } = await run("set-limit", "c:re[ports", "2");
  assert.match(
    out,
    /^c:re\[ports: from 1 to 2 at once, for all code that declares 1; running calls/,
  );
  // a higher limit lets the waiting caller in
  const second = await waiting;
  assert.is((await reports.peek()).limit, 2);
  assert.match((await run("set-limit", "c:re[ports", "5")).out, "from 2 to 5 at once");
  assert.match(
    (await run("reset-limit", "c:re[ports")).out,
    "from 5 back to the declared 1 at once",
  );
  assert.is((await reports.peek()).limit, 1);
  assert.match((await run("reset-limit", "c:re[ports")).out, "nothing is set over the declared 1");

  const other = RedisConcurrencyLimiter.create(redis, "re[ports", 9, PATIENT);
  await other.setLimit(7);
  assert.match((await run("set-limit", "c:re[ports", "3")).err, "add --declared 1 or 9");
  assert.equal(await readJson("set-limit", "c:re[ports", "3", "--declared", "9", "--dry-run"), {
    ...{ key: "c:re[ports", was: 7, declared: 9, limit: 3, changed: false },
  });
  assert.is((await other.peek()).limit, 7);
  await run("set-limit", "c:re[ports", "3", "--declared", "9");
  assert.is((await other.peek()).limit, 3);
  for (const each of [lease, second]) await each.release();
  for (const each of [reports, other]) await each.close();
});

test("set-limit of an idle limiter needs the declared limit, and other keys are errors", async () => {
  const idle = await run("set-limit", "c:idle", "3");
  assert.is(idle.code, 2);
  assert.match(idle.err, "c:idle: no lease is held, so no code is known to declare a limit");
  assert.is((await run("set-limit", "c:idle", "3", "--declared", "2")).code, 0);
  const limiter = RedisConcurrencyLimiter.create(redis, "idle", 2, PATIENT);
  assert.is((await limiter.peek()).limit, 3);
  await limiter.close();
  await RedisRateLimiter.create(redis, "github", 10, PATIENT).acquire();
  await redis.set("limits:api", "5");
  for (const [key, why] of [
    [
      "l:github",
      /l:github does not limit how many run at once: it limits a rate\. See: redis set-rate/,
    ],
    ["limits:api", /holds no limiter: 1 bytes? .*, see: redis set-limit-key/s],
  ] as const) {
    for (const args of [
      ["set-limit", key, "1"],
      ["reset-limit", key],
    ]) {
      const { code, err } = await run(...args);
      assert.is(code, 2);
      assert.match(err, why);
    }
  }
  for (const limit of ["0", "-1", "1.5", "x"]) {
    assert.is((await run("set-limit", "c:idle", limit)).code, 2);
  }
});

test("set-limit-key changes a limit that is kept in a key, and reset-limit-key removes it", async () => {
  const options = { limitKey: "limits:api" };
  const limiter = RedisRateLimiter.create(redis, "api", 10, options);
  const rate = async () => {
    await limiter.peek();
    return limiter.getRate();
  };
  assert.match(
    (await run("set-limit-key", "limits:api", "25")).out,
    "limits:api: from no limit to 25, for all limiters with this limitKey, from their next request on",
  );
  assert.is(await rate(), 25);
  const dry = await readJson("set-limit-key", "limits:api", "2.5", "--dry-run");
  assert.equal(dry, { key: "limits:api", was: 25, limit: 2.5, changed: false });
  assert.is(await rate(), 25);
  assert.match((await run("set-limit-key", "limits:api", "0")).out, "which refuse all requests");
  assert.is(await rate(), 0);
  assert.match(
    (await run("reset-limit-key", "limits:api", "--dry-run")).out,
    "dry run, nothing changes: limits",
  );
  assert.match((await run("reset-limit-key", "limits:api")).out, "removes the limit 0; limiters");
  assert.is(await rate(), 10);
  assert.match((await run("reset-limit-key", "limits:api")).out, "limits:api: holds no limit");

  await limiter.acquire();
  await redis.set("other", "a text");
  await redis.hset("hash", { a: 1 });
  for (const [key, why] of [
    ["l:api", /l:api holds no limit, which is a number as text, but another text/],
    ["other", /but another text/],
    ["hash", /but a hash/],
  ] as const) {
    for (const args of [
      ["set-limit-key", key, "1"],
      ["reset-limit-key", key],
    ]) {
      const { code, err } = await run(...args);
      assert.is(code, 2);
      assert.match(err, why);
    }
  }
  assert.is(await redis.get("other"), "a text");
  for (const limit of ["-1", "x", "Infinity"]) {
    assert.is((await run("set-limit-key", "limits:api", limit)).code, 2);
  }
});

test("numbers that code has set over a limit in a key are shown and changed as such", async () => {
  await redis.set("limits:api", "25");
  const limiter = RedisRateLimiter.create(redis, "api", 10, { ...PATIENT, limitKey: "limits:api" });
  await limiter.setRate(30);
  await limiter.acquire();
  assert.match((await run("show", "l:api")).out, "30/s, set; declared 10/s");
  const [listed] = await readJson("ls");
  assert.equal([listed.policies[0].limit, listed.policies[0].rate], [31, 30]);
  assert.is((await run("set-rate", "l:api", "60")).code, 0);
  await limiter.acquire();
  assert.is(limiter.getRate(), 60);
  assert.is((await run("reset-rate", "l:api")).code, 0);
  await limiter.acquire();
  assert.is(limiter.getRate(), 25);
});

test("watch draws again, and prints a line of JSON for each look", async () => {
  await RedisRateLimiter.create(redis, "github", 10, PATIENT).acquire();
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

test("watch connects again after an outage", async () => {
  const server = await startRedis();
  const client = new Redis(server.url);
  await RedisRateLimiter.create(client, "github", 10, PATIENT).acquire();
  const looks: { limiters?: object[]; error?: string }[] = [];
  const stdout = Object.assign(new PassThrough(), { isTTY: false });
  const stderr = Object.assign(new PassThrough(), { isTTY: false });
  stdout.on("data", (line: Buffer) => {
    looks.push(JSON.parse(line.toString()));
    // an outage of one connection is enough
    if (looks.length === 1) void server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  });
  const args = ["redis", "watch", "--json", "--every", "50", "--count", "5", "--url", server.url];
  const code = await program(args, { stdin: Readable.from([]), stdout, stderr, env: {} });
  await new Promise(setImmediate);
  assert.is(code, 0);
  assert.is(looks.length, 5);
  assert.equal(looks.filter(({ error }) => error !== undefined).length, 1);
  assert.equal(looks.at(-1)?.limiters?.length, 1);
  client.disconnect();
  await server.stop();
  assert.is((await cli([...args.slice(0, -1), "redis://127.0.0.1:1"])).code, 2);
});

test("watch ends when nobody reads any more", async () => {
  const stdout = Object.assign(new PassThrough(), { isTTY: false });
  const stderr = Object.assign(new PassThrough(), { isTTY: false });
  stdout.once("data", () => stdout.emit("error", new Error("EPIPE")));
  stdout.resume();
  const args = ["redis", "watch", "--every", "1", "--url", url];
  assert.is(await program(args, { stdin: Readable.from([]), stdout, stderr, env: {} }), 0);
});

test("watch that ends while the server is away has code 2", async () => {
  const server = await startRedis();
  const stdout = Object.assign(new PassThrough(), { isTTY: false });
  const stderr = Object.assign(new PassThrough(), { isTTY: false });
  let out = "";
  const args = ["redis", "watch", "--every", "300", "--count", "2", "--url", server.url];
  stdout.on("data", (chunk: Buffer) => {
    if (out === "") void server.kill9();
    out += chunk;
  });
  const code = await program(args, { stdin: Readable.from([]), stdout, stderr, env: {} });
  await server.stop();
  assert.is(code, 2);
  assert.match(out, /no limiters\n.*; trying again\n$/s);
});

const SILENT = (server: { readonly host: string; readonly port: number }, seconds: string) =>
  `Redis: no answer of ${server.host}:${server.port} within ${seconds} s: it hangs or is too busy, or the network`;

test("a server that hangs and a network that drops all bytes end every command, also between two of its calls", async () => {
  const server = await startRedis();
  const proxy = await startProxy(server.port);
  const client = new Redis(server.url);
  await RedisRateLimiter.create(client, "github", 10, PATIENT).acquire();
  // scripts and writes get no answer, and all other commands do
  await client.call("CLIENT", "PAUSE", "60000", "WRITE");
  const commands = [
    ["ls"],
    ["show", "l:github"],
    ["set-rate", "l:github", "5"],
    ["set-limit", "c:reports", "5", "--declared", "2"],
    ["set-limit-key", "limits:api", "5"],
  ];
  const check = async (at: { host: string; port: number; url: string }) => {
    const ran = commands.map(async (args) => {
      const { code, err } = await cli(["redis", ...args, "--timeout", "800", "--url", at.url]);
      assert.is(code, 2, args.join(" "));
      assert.match(err, SILENT(at, "0.8"));
      assert.is(err.split("\n").length, 2);
    });
    await Promise.all(ran);
  };
  await check(server);
  server.suspend();
  await proxy.halfOpen();
  const byDefault = cli(["redis", "ls", "--url", server.url]);
  await Promise.all([check(server), check(proxy)]);
  const { code, err } = await byDefault;
  assert.is(code, 2);
  assert.match(err, SILENT(server, "5"));
  server.resume();
  client.disconnect();
  await proxy.stop();
  await server.stop();
});

test("watch goes on after a time without an answer", async () => {
  const server = await startRedis();
  const stdout = Object.assign(new PassThrough(), { isTTY: false });
  const stderr = Object.assign(new PassThrough(), { isTTY: false });
  const looks: { limiters?: object[]; error?: string }[] = [];
  stdout.on("data", (line: Buffer) => {
    looks.push(JSON.parse(line.toString()));
    if (looks.length === 1) server.suspend();
    // one look lost its answers, and the next one did not connect
    if (looks.length === 3) server.resume();
  });
  const args = [
    "--json",
    "--every",
    "50",
    "--count",
    "5",
    "--timeout",
    "1500",
    "--url",
    server.url,
  ];
  const io = { stdin: Readable.from([]), stdout, stderr, env: {} };
  assert.is(await program(["redis", "watch", ...args], io), 0);
  await new Promise(setImmediate);
  for (const { error = "" } of looks.slice(1, 3)) assert.match(error, SILENT(server, "1.5"));
  assert.equal(looks.at(-1)?.limiters, []);
  await server.stop();
});

test("a server that cannot be reached is an error in one line", async () => {
  const { code, err } = await cli(["redis", "ls", "--url", "redis://127.0.0.1:1"]);
  assert.is(code, 2);
  assert.match(err, /^Redis: .*ECONNREFUSED.*\n$/);
});

test.run();
