import { Redis } from "ioredis";
import type { RedisClient, ScriptRunner } from "smooth-limiter/redis";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { connect, RemoteClock } from "../../test/support/limiter/remote.ts";
import { PATIENT } from "../../test/support/patient.ts";
import { freshUrl } from "../../test/support/redis/server.ts";
import { runs, suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  type Gateway,
  type GatewayOptions,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("filter with global rules");

let redis: Redis;
/** The number of round trips. Scripts that are sent before the reply to an earlier one count as one trip. */
let trips = 0;
let underWay = 0;
/** While set, Redis is away: each script fails with this error. */
let away: Error | undefined;
let watched: ScriptRunner;

test.before(async () => {
  redis = new Redis(await freshUrl());
  const runner = scriptRunner(redis as RedisClient);
  watched = {
    async runScript(...args) {
      if (underWay === 0) trips += 1;
      underWay += 1;
      try {
        if (away !== undefined) throw away;
        return await runner.runScript(...args);
      } finally {
        underWay -= 1;
      }
    },
  };
});
test.after(() => redis.disconnect());
test.before.each(async () => {
  await redis.flushdb();
  trips = 0;
  away = undefined;
});

function open(text: string, options: Partial<GatewayOptions> = {}): Promise<Gateway> {
  const rules = readRules(text);
  const actors = { account: fromHeader("account") };
  return createGateway({
    ...PATIENT,
    ...{ rules, redis: watched, clock: new FakeClock(), actors, whenUnavailable: "throw" },
    ...options,
  });
}

const brief = ({ allowed, outcomes }: Verdict) => [
  allowed,
  ...outcomes.map((one) => `${one.allowed ? "+" : "-"}${one.rule.name} ${one.decision.remaining}`),
];
const ask = async (gateway: Gateway, ...args: Parameters<typeof request>) =>
  brief(await gateway.check(request(...args)));

const MIXED = `
- url: /
  rules:
    - { actor: all, unit: day, rpu: 10, algo: W, scope: global, name: all }
    - { actor: device, unit: day, rpu: 3, algo: W, scope: global, name: device }
- url: /sample
  rules:
    - { actor: device, unit: day, rpu: 5, algo: W, name: local }
    - { actor: device, unit: day, rpu: 6, algo: SW, scope: global, name: sliding }
`;

test("all global rules of a request take one round trip, and a refused request is charged to none", async () => {
  const gateway = await open(MIXED);
  assert.equal(await ask(gateway, "/sample"), [
    true,
    "+all 9",
    "+device 2",
    "+local 4",
    "+sliding 5",
  ]);
  assert.is(trips, 1);
  await ask(gateway, "/");
  await ask(gateway, "/");
  trips = 0;
  const [allowed, , device] = await ask(gateway, "/sample");
  assert.is(allowed, false);
  assert.is(device, "-device 0");
  assert.is(trips, 1, "nothing was taken, so nothing is given back");
  const elsewhere = { remoteAddress: "192.0.2.2" };
  assert.equal(await ask(gateway, "/sample", elsewhere), [
    true,
    "+all 6",
    "+device 2",
    "+local 4",
    "+sliding 5",
  ]);
  for (let i = 0; i < 2; i++) await ask(gateway, "/sample", elsewhere);
  const first = { remoteAddress: "192.0.2.1" };
  for (let i = 0; i < 9; i++) {
    const [, , , local] = await ask(gateway, "/sample", first);
    assert.is(local, "+local 4", "the local rule was charged for the first request only");
  }
});

test("if a local rule refuses, global rules are only read, and the longest wait counts", async () => {
  const gateway = await open(`
url: /
rules:
  - { actor: all, unit: day, rpu: 1, name: local }
  - { actor: all, unit: day, rpu: 9, scope: global, name: global }
`);
  assert.equal(await ask(gateway, "/"), [true, "+local 0", "+global 8"]);
  trips = 0;
  assert.equal(await ask(gateway, "/"), [false, "-local 0", "+global 8"]);
  assert.is(trips, 1);
  const both = await open(`
url: /
rules:
  - { actor: all, unit: second, rpu: 1, algo: W, name: local }
  - { actor: all, unit: hour, rpu: 1, algo: W, scope: global, name: shared }
`);
  await ask(both, "/");
  assert.is((await both.check(request("/"))).retryMs, 3_600_000);
  away = new Error("connection refused");
  const { retryMs, outcomes } = await both.check(request("/"));
  assert.equal([retryMs, outcomes.length], [1000, 1], "Redis away: by the local rules alone");
});

test("50 a second globally are 50 a second for all instances", async () => {
  const clock = new FakeClock();
  const text = "url: /\nrules: [{ actor: all, unit: second, rpu: 50, algo: W, scope: global }]";
  const instances = await Promise.all(
    Array.from({ length: runs(100, 20) }, () => open(text, { clock })),
  );
  for (let second = 0; second < 2; second++) {
    let passed = 0;
    for (let tick = 0; tick < 5; tick++) {
      const verdicts = await Promise.all(instances.map((gateway) => gateway.check(request("/"))));
      passed += verdicts.filter(({ allowed }) => allowed).length;
      await clock.advance(200);
    }
    assert.is(passed, 50);
  }
});

test("all instances share the queue of a global leaky bucket", async () => {
  const text = `
url: /
rules:
  - { actor: account, unit: second, rpu: 20, algo: LB, burst: 2, scope: global, name: line }
  - { actor: all, unit: day, rpu: 9, algo: W, scope: global, name: day }
`;
  const remote = await connect();
  const clock = new RemoteClock();
  const options = { redis: remote.runner, clock };
  const [one, two] = await Promise.all([open(text, options), open(text, options)]);
  const ann = { headers: { account: "ann" } };
  const asked = [one, two, one, two].map((gateway) => gateway.check(request("/", ann)));
  await clock.advance(1000);
  const verdicts = await Promise.all(asked);
  const waits = verdicts.map(({ allowed, waitedMs }) => (allowed ? waitedMs : -1));
  assert.equal(
    waits.sort((a, b) => a - b),
    [-1, 0, 50, 100],
  );
  const bob = { headers: { account: "bob" } };
  assert.equal(await ask(one, "/", bob), [true, "+line 0", "+day 5"]);
  remote.redis.disconnect();
});

test("a request whose client disconnects leaves the global queue and is charged to no rule", async () => {
  const gateway = await open(
    `
url: /
rules:
  - { actor: account, unit: minute, rpu: 2, algo: LB, burst: 5, scope: global, name: line }
  - { actor: all, unit: day, rpu: 9, algo: W, scope: global, name: day }
  - { actor: all, unit: day, rpu: 9, algo: W, name: local }
`,
    { clock: undefined },
  );
  const ann = { headers: { account: "ann" } };
  await gateway.check(request("/", ann));
  const leaving = new AbortController();
  const waiting = Promise.resolve(
    gateway.check(request("/", { ...ann, signal: leaving.signal })),
  ).catch((error: Error) => error.message);
  setTimeout(() => leaving.abort(new Error("gone")), 30);
  assert.is(await waiting, "gone");
  const bob = { headers: { account: "bob" } };
  assert.equal(await ask(gateway, "/", bob), [true, "+line 0", "+day 7", "+local 7"]);
});

test("overrides and shadows on Redis", async () => {
  const gateway = await open(`
url: /
rules:
  - { actor: account, unit: day, rpu: 1, algo: W, scope: global, name: r, overrides: { gold: { rpu: 3 } } }
  - { actor: all, unit: day, rpu: 1, algo: W, scope: global, mode: shadow, name: s }
`);
  const from = (account: string) => ask(gateway, "/", { headers: { account } });
  assert.equal(await from("ann"), [true, "+r 0", "+s 0"]);
  assert.equal(await from("gold"), [true, "+r 2", "-s 0"]);
  assert.equal(await from("ann"), [false, "-r 0", "-s 0"]);
});

test("no secret is left on Redis, and the name of a rule is in its keys", async () => {
  const gateway = await open(
    "url: /\nrules: [{ actor: account, unit: day, rpu: 9, scope: global, name: by key }]",
  );
  await ask(gateway, "/", { headers: { account: "secret-api-key" } });
  const keys = await redis.keys("*");
  assert.is(keys.length, 1);
  assert.match(keys[0] ?? "", /^g:.*by key\[#[\w-]{43}/);
});

test("Redis unavailable: an error, local charges are given back, a shadow rule does not refuse", async () => {
  const gateway = await open(`
- url: /
  rules:
    - { actor: all, unit: day, rpu: 9, algo: W, name: local }
- url: /global
  rules: [{ actor: all, unit: day, rpu: 9, scope: global, name: global }]
- url: /line
  rules: [{ actor: all, unit: second, rpu: 9, algo: LB, scope: global, name: line }]
- url: /shadow
  rules: [{ actor: all, unit: day, rpu: 9, scope: global, mode: shadow, name: shadow }]
`);
  away = new Error("connection refused");
  for (const url of ["/global", "/line"]) {
    const fault = await Promise.resolve(gateway.check(request(url))).then(
      () => undefined,
      (error: { code: string }) => error.code,
    );
    assert.is(fault, "STORE_UNAVAILABLE", url);
  }
  assert.equal(await ask(gateway, "/shadow"), [true, "+local 8"]);
});

test("Redis unavailable: by option this instance's share passes, or all requests pass", async () => {
  const text = "url: /\nrules: [{ actor: device, unit: day, rpu: 10, algo: W, scope: global }]";
  const passed = async (options: Partial<GatewayOptions>) => {
    // a separate client, because an outage is a state of the client
    const runScript: ScriptRunner["runScript"] = () => Promise.reject(new Error("refused"));
    const gateway = await open(text, { redis: { runScript }, ...options });
    let count = 0;
    for (let i = 0; i < 20; i++) if ((await gateway.check(request("/"))).allowed) count += 1;
    await gateway.close();
    return count;
  };
  const byDefault = { whenUnavailable: undefined };
  assert.is(await passed({ ...byDefault, instances: 2 }), 5);
  assert.is(await passed({ ...byDefault, instances: () => 5 }), 2);
  // no other instance has been counted
  assert.is(await passed(byDefault), 10);
  assert.is(await passed({ whenUnavailable: "allow" }), 20);
});

test("a rule whose numbers change on Redis gives no client a fresh burst", async () => {
  const text = (rpu: number) =>
    `url: /\nrules: [{ actor: all, unit: day, rpu: ${rpu}, algo: W, scope: global, name: r }]`;
  const before = await open(text(3));
  for (let i = 0; i < 3; i++) await ask(before, "/");
  const after = await open(text(5));
  assert.equal(await ask(after, "/"), [true, "+r 1"]);
});

for (const [algo, decided] of [
  ["token bucket", 3],
  ["window", 3],
  ["sliding window", 3],
  ["sliding log", 3],
  ["gcra", 3],
] as const) {
  test(`limitKey: the key holds the rule's rpu, and 0 refuses all: ${algo}`, async () => {
    const gateway = await open(
      `url: /\nrules: [{ name: kept, actor: all, unit: minute, rpu: 5, algo: ${algo}, scope: global, limitKey: "limits:all" }]`,
    );
    const check = async () => (await gateway.check(request("/"))) as Verdict;
    assert.is((await check()).outcomes[0]?.decision.limit, 5);
    await redis.set("limits:all", "3");
    assert.is((await check()).outcomes[0]?.decision.limit, decided);
    await redis.set("limits:all", "0");
    const refused = await check();
    const { waitMs, limit } = refused.outcomes[0]?.decision ?? {};
    assert.equal([refused.allowed, refused.retryMs, waitMs, limit], [false, Infinity, Infinity, 0]);
    await redis.set("limits:all", "-1");
    assert.is((await check()).outcomes[0]?.decision.limit, 5);
    await gateway.close();
  });
}

test("limitKey: the queue of a leaky bucket moves at the key's rpu, and 0 refuses all", async () => {
  const gateway = await open(
    "url: /\nrules: [{ name: line, actor: all, unit: minute, rpu: 60, algo: LB, burst: 1, scope: global, limitKey: k }]",
  );
  const check = async () => (await gateway.check(request("/"))) as Verdict;
  await redis.set("k", "120");
  assert.is((await check()).allowed, true);
  const ready = check().catch(() => {});
  const full = await check();
  assert.equal([full.allowed, full.retryMs], [false, 500]);
  assert.is(full.outcomes[0]?.decision.waitMs, Infinity);
  await redis.set("k", "0");
  const refused = await check();
  assert.equal([refused.allowed, refused.retryMs], [false, Infinity]);
  await gateway.close();
  await ready;
});

test("count, block, peek and reset work on Redis, for all instances together", async () => {
  const text = `{ url: /, rules: [
    { actor: account, unit: hour, rpu: 2, algo: W, scope: global, name: login, count: failures, block: 15m } ] }`;
  const clock = new FakeClock();
  const [one, other] = [await open(text, { clock }), await open(text, { clock })];
  const send = async (gateway: Gateway, status: number) => {
    const ends: ((status?: number) => void)[] = [];
    const verdict = await gateway.check(
      request("/", { headers: { account: "ann" }, onAnswered: (closed) => ends.push(closed) }),
    );
    for (const end of ends) end(status);
    await new Promise((resolve) => setTimeout(resolve, 20));
    return verdict;
  };
  for (const status of [200, 401, 302, 500]) assert.ok((await send(one, status)).allowed);
  const ann = request("/", { headers: { account: "ann" } });
  assert.is((await other.peek(ann)).allowed, false);
  assert.is((await other.peek(ann)).retryMs, (await other.peek(ann)).outcomes[0]?.decision.waitMs);
  const refused = await send(other, 200);
  assert.equal([refused.allowed, refused.retryMs], [false, 900_000]);
  await clock.advance(300_000);
  assert.equal(
    await Promise.all([one, other].map(async (each) => (await each.peek(ann)).retryMs)),
    [600_000, 600_000],
  );
  await other.reset({ rule: "login", actor: "ann" });
  const allowed = [];
  for (const gateway of [one, other, one]) allowed.push((await send(gateway, 401)).allowed);
  assert.equal(allowed, [true, true, false]);
  await Promise.all([one.close(), other.close()]);
});

test("months, trials and rpu: 0 work on Redis", async () => {
  const text = (rpu: number) => `{ url: /, rules: [
    { actor: account, unit: month, rpu: 5, algo: W, scope: global, name: month },
    { actor: account, unit: ever, rpu: 2, scope: global, name: trial },
    { actor: account, unit: day, rpu: ${rpu}, scope: global, name: day } ] }`;
  const gateway = await open(text(9));
  const account = { headers: { account: "ann" } };
  assert.equal(await ask(gateway, "/", account), [true, "+month 4", "+trial 1", "+day 8"]);
  assert.equal(await ask(gateway, "/", account), [true, "+month 3", "+trial 0", "+day 7"]);
  const refused = await gateway.check(request("/", account));
  assert.equal([refused.allowed, refused.retryMs], [false, Infinity]);
  const closed = await open(text(0));
  const bob = await closed.check(request("/", { headers: { account: "bob" } }));
  assert.equal([brief(bob), bob.retryMs], [[false, "-day 0"], Infinity]);
  await Promise.all([gateway.close(), closed.close()]);
});

test("a refund that Redis does not answer ends in no error", async () => {
  const text = `{ url: /, rules: [
    { actor: all, unit: hour, rpu: 2, algo: W, scope: global, count: failures, block: 1h } ] }`;
  const gateway = await open(text);
  let end: (status?: number) => void = () => {};
  await gateway.check(
    request("/", {
      onAnswered: (closed) => {
        end = closed;
      },
    }),
  );
  away = new Error("ECONNREFUSED");
  end(200);
  await new Promise((resolve) => setTimeout(resolve, 20));
  away = undefined;
  await gateway.close();
});

test("a block that grows is one block for all instances, and as long on Redis as in a process", async () => {
  const clock = new FakeClock();
  const text = `{ url: /, rules: [{ actor: account, unit: hour, rpu: 1, scope: global, name: r,
    block: { for: 10m, times: 3, most: 1h } }] }`;
  const both = await Promise.all([open(text, { clock }), open(text, { clock })]);
  const [one, other] = both as [Gateway, Gateway];
  const ann = () => request("/", { headers: { account: "ann" } });
  const lengths = [];
  for (let i = 0; i < 4; i++) {
    const asked = [one, other, one, other, one].map((gateway) => gateway.check(ann()));
    const refused = (await Promise.all(asked)).filter(({ allowed }) => !allowed);
    assert.is(refused.length, 4);
    const { retryMs } = await other.check(ann());
    lengths.push(retryMs / 60_000);
    await clock.advance(retryMs - 1);
    assert.not((await one.check(ann())).allowed);
    await clock.advance(1);
  }
  assert.equal(lengths, [10, 30, 60, 60]);
  await Promise.all(both.map((gateway) => gateway.close()));
});

test.run();
