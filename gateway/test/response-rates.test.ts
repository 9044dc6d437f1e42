import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  type Gateway,
  type GatewayOptions,
  type Pace,
  type UrlRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("rules for the bytes of responses");

const open = (rules: UrlRules["rules"], options: Partial<GatewayOptions> = {}) =>
  createGateway({
    rules: { url: "/films", rules },
    actors: { account: fromHeader("account") },
    ...options,
  });

function pacesOf(gateway: Gateway, account?: string, url = "/films/a", method = "GET") {
  const headers: Record<string, string> = account === undefined ? {} : { account };
  return (gateway.check(request(url, { headers, method })) as Verdict).paces;
}

/** Returns how long so many bytes take, ms. */
async function timeOf(pace: Pace | undefined, bytes: number, clock: FakeClock): Promise<number> {
  const startMs = clock.now();
  await pace?.limiter.acquire(1);
  const sent = pace?.limiter.acquire(bytes);
  const rest = pace?.limiter.acquire(1);
  let isSent = false;
  void Promise.all([sent, rest]).then(() => {
    isSent = true;
  });
  while (!isSent) await clock.advance(10);
  return clock.now() - startMs;
}

test("each response has the rate for itself, unless the rule has an actor", async () => {
  const clock = new FakeClock();
  const gateway = await open(
    [
      { bytesPerSecond: 1000, afterBytes: "1k" },
      { actor: "account", bytesPerSecond: "2k", overrides: { gold: { bytesPerSecond: "4k" } } },
    ],
    { clock },
  );
  const first = pacesOf(gateway, "ann");
  assert.equal(
    first?.map(({ afterBytes }) => afterBytes),
    [1024, 0],
  );
  const second = pacesOf(gateway, "ann");
  assert.is.not(first?.[0]?.limiter, second?.[0]?.limiter);
  assert.ok((await timeOf(first?.[0], 1000, clock)) >= 1000);
  const took = await Promise.all([
    timeOf(first?.[1], 2048, clock),
    timeOf(second?.[1], 2048, clock),
  ]);
  assert.ok(Math.max(...took) >= 1900, `${took}`);
  const gold = pacesOf(gateway, "gold");
  assert.ok((await timeOf(gold?.[1], 4096, clock)) < 1500);
});

test("where no rule applies there is no pace", async () => {
  const gateway = await open([
    { actor: "account", bytesPerSecond: 1, exempt: ["me"], whenActorMissing: "skip" },
    { actor: "account", unit: "hour", rpu: 1, exempt: ["me"], whenActorMissing: "skip" },
  ]);
  assert.is(pacesOf(gateway, "ann")?.length, 1);
  assert.is(pacesOf(gateway, "ann"), undefined, "a refusal is sent at once");
  assert.is(pacesOf(gateway, "me"), undefined);
  assert.is(pacesOf(gateway), undefined);
  assert.is(pacesOf(gateway, "bob", "/other"), undefined);
  assert.is(pacesOf(gateway, "bob", "/films/a", "HEAD"), undefined);
  const verdict = gateway.check(request("/films/b")) as Verdict;
  assert.equal([verdict.allowed, verdict.outcomes], [true, []]);
  assert.equal(Object.keys(gateway.stats), ["/films account per hour token bucket"]);
});

test("an actor that returns a promise, and a request without a value", async () => {
  const gateway = await open([{ actor: "account", bytesPerSecond: 1 }], {
    actors: { account: async ({ header }) => header("account") },
  });
  const limiterOf = async (account?: string) =>
    (await gateway.check(request("/films", { headers: account === undefined ? {} : { account } })))
      .paces?.[0]?.limiter;
  await (await limiterOf("ann"))?.acquire(5);
  assert.not.ok(await (await limiterOf("ann"))?.tryAcquire(1));
  assert.ok(await (await limiterOf())?.tryAcquire(1), "it has a count of its own");
  assert.not.ok(await (await limiterOf())?.tryAcquire(1));
});

test("a changed rate applies to new responses, and to those that share it", async () => {
  const clock = new FakeClock();
  let rate = 100;
  let changed = () => {};
  const gateway = await createGateway({
    clock,
    rules: {
      name: "text",
      load: async () =>
        `{ url: /, rules: [{ bytesPerSecond: ${rate} }, { actor: all, bytesPerSecond: ${rate}, overrides: { x: { afterBytes: 5 } } }] }`,
      watch: (change: () => void) => {
        changed = change;
        return () => {};
      },
    },
  });
  const before = pacesOf(gateway, undefined, "/");
  rate = 10_000;
  changed();
  for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  const after = pacesOf(gateway, undefined, "/");
  assert.ok((await timeOf(after?.[0], 10_000, clock)) <= 1500);
  assert.ok((await timeOf(before?.[1], 10_000, clock)) <= 1500);
  assert.ok((await timeOf(before?.[0], 300, clock)) >= 1900);
  await gateway.close();
});

test("a rule that a reload gives another actor begins anew", async () => {
  const clock = new FakeClock();
  const gate = { actor: "account", changed: () => {} };
  const gateway = await createGateway({
    clock,
    actors: { account: fromHeader("account"), tenant: fromHeader("account") },
    rules: {
      name: "text",
      load: async () =>
        `{ url: /, rules: [{ actor: ${gate.actor}, bytesPerSecond: 10, name: pace }] }`,
      watch: (change: () => void) => {
        gate.changed = change;
        return () => {};
      },
    },
  });
  const reload = async (actor: string) => {
    gate.actor = actor;
    gate.changed();
    for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  };
  const isFree = () => pacesOf(gateway, "ann", "/")?.[0]?.limiter.tryAcquire(50);
  assert.equal([isFree(), isFree()], [true, false]);
  await reload("account");
  assert.is(isFree(), false);
  await reload("tenant");
  assert.is(isFree(), true);
  await gateway.close();
});

test.run();
