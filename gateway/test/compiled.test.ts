/** What rules in force do with a request beyond asking their limiter. */
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  type GatewayOptions,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("rules in force");

const HOUR = 3_600_000;

async function open(rules: string, options: Partial<GatewayOptions> = {}) {
  const clock = new FakeClock();
  const actors = { account: fromHeader("account") };
  const costs = Object.keys(options.costs ?? {});
  const read = readRules(rules, { actors: Object.keys(actors), costs });
  return { clock, gateway: await createGateway({ rules: read, clock, actors, ...options }) };
}

const decisionOf = (verdict: Verdict) => verdict.outcomes[0]?.decision;

test("a month states its end and its length, and waits for the next one", async () => {
  const { clock, gateway } = await open(
    "{ url: /, rules: [{ actor: all, unit: month, rpu: 1, algo: W, name: m }] }",
  );
  await clock.advance(24 * HOUR);
  const [untouched, first, second] = [
    await gateway.peek(request("/")),
    await gateway.check(request("/")),
    await gateway.check(request("/")),
  ].map(decisionOf);
  const [whole, left] = [31 * 24 * HOUR, 30 * 24 * HOUR];
  assert.equal([untouched?.waitMs, untouched?.resetMs], [0, 0]);
  for (const decision of [first, second]) {
    const status = decision?.policies[String(decision?.policy)];
    assert.equal([decision?.resetMs, status?.resetMs, status?.windowMs], [left, left, whole]);
  }
  assert.equal([first?.waitMs, second?.waitMs], [0, left]);
  await clock.advance(left);
  const next = decisionOf(await gateway.check(request("/")));
  assert.equal([next?.allowed, next?.policies.default?.windowMs], [true, 28 * 24 * HOUR]);
});

test("a trial that never ends has no window", async () => {
  const { gateway } = await open(
    "{ url: /, rules: [{ actor: all, unit: ever, rpu: 1, count: failures, name: t }] }",
  );
  const decision = decisionOf(await gateway.check(request("/")));
  assert.is(decision?.policies[String(decision?.policy)]?.windowMs, 0);
});

test("what a cost turns out to be is charged or refunded, also when the answer comes late", async () => {
  const settled: Record<string, number> = { "/more": 5, "/less": 1, "/same": 2 };
  const costs = {
    tokens: { estimate: () => 2, settle: ({ url }: { url: string }) => settled[url] ?? 0 },
  };
  const { clock, gateway } = await open(
    "{ url: /, rules: [{ actor: all, unit: hour, rpu: 10, algo: W, cost: tokens }] }",
    { costs },
  );
  const left = async () => decisionOf(await gateway.peek(request("/")))?.remaining;
  const ask = async (url: string, lateMs = 0) => {
    let answer: (status?: number) => void = () => {};
    const onAnswered = (ended: typeof answer) => {
      answer = ended;
    };
    await gateway.check(request(url, { onAnswered }));
    await clock.advance(lateMs);
    answer(200);
    return left();
  };
  assert.equal([await ask("/more"), await ask("/less"), await ask("/same")], [5, 4, 2]);
  // the window from which it was taken has ended
  assert.is(await ask("/less", HOUR), 10);
  assert.is(await ask("/more", HOUR), 7);
});

test("hosts, methods and exceptions select the requests of a rule", async () => {
  const { gateway } = await open(`
url: /
except: /free
host: [a.test, "*.b.test"]
rules: [{ actor: all, unit: hour, rpu: 9, algo: W, methods: [POST] }]
`);
  const applies = async (host: string, url = "/", method = "POST") =>
    (await gateway.peek(request(url, { method, headers: { host } }))).outcomes.length;
  assert.equal([await applies("a.test"), await applies("x.b.test")], [1, 1]);
  assert.equal([await applies("c.test"), await applies("a.test", "/", "GET")], [0, 0]);
  assert.equal([await applies("a.test", "/free"), await applies("a.test", "/free/x")], [0, 0]);
  assert.is(await applies("a.test", "/other"), 1);
  assert.is(await applies("c.test", "http://a.test/"), 1, "one of the hosts that it names");
});

test("a rule selects by hosts alone, or by exceptions alone", async () => {
  const { gateway } = await open(`
- { url: /host, host: a.test, rules: [{ actor: all, unit: hour, rpu: 9 }] }
- { url: /except, except: /except/free, rules: [{ actor: all, unit: hour, rpu: 9 }] }
`);
  const applies = async (url: string, host = "a.test") =>
    (await gateway.peek(request(url, { headers: { host } }))).outcomes.length;
  assert.equal([await applies("/host"), await applies("/host", "c.test")], [1, 0]);
  assert.equal([await applies("/except"), await applies("/except/free")], [1, 0]);
});

test("a device is exempt by its address, and another actor by its value", async () => {
  const { gateway } = await open(`
url: /
rules:
  - { actor: device, unit: hour, rpu: 9, exempt: [192.0.2.0/24], name: device }
  - { actor: account, unit: hour, rpu: 9, exempt: [192.0.2.1, 198.51.100.0/24], name: account }
`);
  const names = async (account: string, remoteAddress: string) =>
    (await gateway.peek(request("/", { headers: { account }, remoteAddress }))).outcomes.map(
      ({ rule }) => rule.name,
    );
  assert.equal(await names("ann", "192.0.2.7"), ["account"]);
  assert.equal(await names("192.0.2.1", "198.51.100.1"), ["device"]);
  assert.equal(await names("192.0.2.7", "198.51.100.1"), ["device", "account"]);
  assert.equal(await names("198.51.100.7", "198.51.100.1"), ["device", "account"], "a text");
});

test("a device that the application finds is exempt by its address, too", async () => {
  const { gateway } = await open(
    "{ url: /, rules: [{ actor: device, unit: hour, rpu: 9, exempt: [192.0.2.0/24] }] }",
    { actors: { device: fromHeader("client") } },
  );
  const applies = async (client: string) =>
    (await gateway.peek(request("/", { headers: { client } }))).outcomes.length;
  assert.equal([await applies("192.0.2.7"), await applies("198.51.100.7")], [0, 1]);
});

test.run();
