import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { createGateway, fromHeader, readRules, type VerdictMessage } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("operators");

const TEXT = `{ url: /, rules: [
  { actor: account, unit: hour, rpu: 2, algo: W, name: login, block: 15m },
  { actor: all, unit: hour, rpu: 5, algo: W, name: all },
  { actor: all, unit: hour, rpu: 1, algo: W, name: trial, mode: shadow } ] }`;

const actors = { account: fromHeader("account") };

async function open(text = TEXT) {
  const clock = new FakeClock();
  const gateway = await createGateway({ rules: readRules(text), clock, actors });
  const of = (account: string) => request("/", { headers: { account } });
  return { clock, gateway, of };
}

test("peek says what check would say, and charges and counts nothing", async () => {
  const { gateway, of } = await open();
  for (let i = 0; i < 4; i++) {
    const seen = await gateway.peek(of("ann"));
    assert.equal([seen.allowed, seen.retryMs], [true, 0]);
    assert.equal(
      seen.outcomes.map(({ decision }) => decision.remaining),
      [2, 5, 1],
    );
  }
  assert.is(gateway.stats.login?.passed, 0);
  for (let i = 0; i < 3; i++) await gateway.check(of("ann"));
  const seen = await gateway.peek(of("ann"));
  assert.equal([seen.allowed, seen.retryMs], [false, 15 * 60_000]);
  assert.equal(await gateway.peek({ ...of("ann"), url: "*" }), seen);
  const free = await createGateway({ rules: [] });
  assert.equal((await free.peek(of("ann"))).outcomes, []);
});

test("peek at a line says how long the request would wait", async () => {
  const { gateway, of } = await open(
    "{ url: /, rules: [{ actor: all, unit: second, rpu: 1, algo: LB, burst: 1 }] }",
  );
  await gateway.check(of("ann"));
  const { allowed, outcomes } = await gateway.peek(of("ann"));
  assert.equal([allowed, outcomes[0]?.decision.waitMs], [true, 1000]);
});

test("reset lets an actor start anew, ends its block, and leaves others alone", async () => {
  const { gateway, of } = await open();
  const long = "key-".repeat(30);
  for (const account of ["ann", "bob", long]) {
    for (let i = 0; i < 3; i++) await gateway.check(of(account));
  }
  const isAllowed = async (account: string) =>
    (await gateway.peek(of(account))).outcomes.find(({ rule }) => rule.name === "login")?.allowed;
  assert.equal([await isAllowed("ann"), await isAllowed(long)], [false, true]);
  await gateway.reset({ rule: "login", actor: "ann" });
  await gateway.reset({ rule: "login", actor: long });
  assert.equal([await isAllowed("ann"), await isAllowed("bob")], [true, false]);
  await gateway.reset({ rule: "all" });
  assert.is((await gateway.peek(of("ann"))).outcomes[1]?.decision.remaining, 5);
});

test("reset finds the requests of a device that had no value for the actor", async () => {
  const { gateway } = await open();
  for (let i = 0; i < 3; i++) await gateway.check(request("/"));
  assert.not.ok((await gateway.peek(request("/"))).allowed);
  await gateway.reset({ rule: "login", actor: "192.0.2.1" });
  assert.ok((await gateway.peek(request("/"))).allowed);
});

test("reset names what is wrong", async () => {
  const { gateway } = await open();
  for (const [which, says] of [
    [
      { rule: "log" },
      /RangeError: rule must be the name of a rule for requests per time: "login", "all"/,
    ],
    [{ rule: 1 }, /TypeError: rule must be a string, got 1/],
    [{ rule: "login", actor: 1 }, /TypeError: actor must be a string, got 1/],
    [{ rule: "login", key: "x" }, /TypeError: reset has no "key"; expected one of rule, actor/],
  ] as const) {
    try {
      await gateway.reset(which as unknown as { rule: string });
      assert.unreachable();
    } catch (error) {
      assert.match(String(error), says);
    }
  }
});

test("stats count each request once for each rule, and the sums agree", async () => {
  const { gateway, of } = await open();
  for (const account of ["ann", "ann", "ann", "bob", "bob", "eve", "eve"]) {
    await gateway.check(of(account));
  }
  assert.equal(gateway.stats, {
    login: { passed: 5, waited: 0, refused: 1, refusedElsewhere: 1 },
    all: { passed: 5, waited: 0, refused: 1, refusedElsewhere: 1 },
    trial: { passed: 1, waited: 0, refused: 6, refusedElsewhere: 0 },
  });
});

test("stats tell a wait from a pass, and survive a reload", async () => {
  const clock = new FakeClock();
  let text = "{ url: /, rules: [{ actor: all, unit: second, rpu: 1, algo: LB, name: line }] }";
  let changed = () => {};
  const gateway = await createGateway({
    clock,
    rules: {
      name: "test",
      load: async () => text,
      watch: (change) => {
        changed = change;
        return () => {};
      },
    },
  });
  const all = [gateway.check(request("/")), gateway.check(request("/"))];
  await clock.advance(1000);
  await Promise.all(all);
  const line = { passed: 1, waited: 1, refused: 0, refusedElsewhere: 0 };
  assert.equal(gateway.stats, { line });
  text = text.replace("rules: [", "rules: [{ actor: all, unit: day, rpu: 9, name: new }, ");
  changed();
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  const none = { passed: 0, waited: 0, refused: 0, refusedElsewhere: 0 };
  assert.equal(gateway.stats, { line, new: none });
  text = "[]";
  changed();
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  assert.equal(gateway.stats, {});
  await gateway.close();
});

test("each verdict is published, refusals and those of shadow rules included", async () => {
  const name = "smooth-limiter-gateway:verdict";
  const seen: unknown[] = [];
  const listen = (message: unknown) => {
    const { request, verdict } = message as VerdictMessage;
    const refusing = verdict.outcomes.filter(({ allowed }) => !allowed);
    seen.push([request.header("account"), verdict.allowed, refusing.map(({ rule }) => rule.name)]);
  };
  const received: boolean[] = [];
  const gateway = await createGateway({
    rules: readRules(TEXT),
    actors,
    clock: new FakeClock(),
    onVerdict: ({ allowed }) => {
      received.push(allowed);
      throw new Error("ignored");
    },
  });
  subscribe(name, listen);
  for (let i = 0; i < 3; i++) await gateway.check(request("/", { headers: { account: "ann" } }));
  unsubscribe(name, listen);
  assert.equal(seen, [
    ["ann", true, []],
    ["ann", true, ["trial"]],
    ["ann", false, ["login", "trial"]],
  ]);
  assert.equal(received, [true, true, false]);
});

test.run();
