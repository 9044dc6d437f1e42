import type { RedisClient } from "smooth-limiter/redis";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  functionSource,
  type Gateway,
  type GatewayOptions,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";
import { enter, type InFlightPermits, inFlight, open, type Rules } from "./support/in-flight.ts";

const test = suite("rules for connections");

test("as many requests of each actor at once as the rule says, until they are over", async () => {
  const gateway = await open([{ actor: "account", connections: 2, name: "conn" }]);
  const [one, two, three] = ["ann", "ann", "ann"].map((account) => inFlight({ account }));
  const first = enter(gateway, one as InFlightPermits);
  assert.equal([first.allowed, first.retryMs, first.waitedMs], [true, 0, 0]);
  assert.equal(
    first.outcomes.map(({ rule, actor, allowed, decision }) => [
      ...[rule.name, actor, allowed],
      ...[decision.limit, decision.remaining, decision.waitMs],
    ]),
    [["conn", "ann", true, 2, 1, 0]],
  );
  assert.ok(enter(gateway, two as InFlightPermits).allowed);
  const refused = enter(gateway, three as InFlightPermits);
  assert.equal([refused.allowed, refused.retryMs], [false, 1000]);
  assert.is(refused.outcomes[0]?.rule.quotaUnit, "concurrent-requests");
  assert.ok(enter(gateway, inFlight({ account: "bob" })).allowed);
  one?.end();
  one?.end();
  assert.ok(enter(gateway, three as InFlightPermits).allowed);
  assert.not.ok(enter(gateway, inFlight({ account: "ann" })).allowed);
  assert.equal(gateway.stats.conn, { passed: 4, waited: 0, refused: 2, refusedElsewhere: 0 });
});

test("a request without a value counts by its device, or as the rule says", async () => {
  const one = "192.0.2.1";
  const two = "192.0.2.2";
  for (const [whenActorMissing, allowed] of [
    ["device", [true, false, true]],
    ["shared", [true, false, false]],
    ["skip", [true, true, true]],
  ] as const) {
    const gateway = await open([{ actor: "account", connections: 1, whenActorMissing }]);
    assert.equal(
      [one, one, two].map((remoteAddress) => enter(gateway, inFlight({ remoteAddress })).allowed),
      allowed,
      whenActorMissing,
    );
  }
});

test("behind a proxy a request without a value counts by its client's address", async () => {
  const gateway = await open([{ actor: "account", connections: 1 }], { trustedProxies: 1 });
  const from = (address: string) => {
    const { request: base } = inFlight();
    return gateway.check({
      ...base,
      header: (name) => (name === "x-forwarded-for" ? address : undefined),
    }) as Verdict;
  };
  assert.equal(
    ["192.0.2.1", "192.0.2.2", "192.0.2.1"].map((address) => from(address).allowed),
    [true, true, false],
  );
});

test("overrides, exemptions, methods and paths", async () => {
  const gateway = await createGateway({
    rules: {
      url: "/films",
      except: "/films/trailers",
      rules: [
        {
          ...{ actor: "account", connections: 1, methods: ["GET"], exempt: ["me"] },
          overrides: { gold: { connections: 2 } },
        },
      ],
    },
    actors: { account: fromHeader("account") },
  });
  const passes = (account: string, url = "/films/a", method = "GET") =>
    [1, 2, 3].map(() => enter(gateway, inFlight({ account, url, method })).allowed);
  assert.equal(passes("ann"), [true, false, false]);
  assert.equal(passes("gold"), [true, true, false]);
  for (const every of [
    passes("me"),
    passes("ann", "/films/trailers/b"),
    passes("ann", "/films/a", "POST"),
    passes("ann", "/other"),
  ]) {
    assert.equal(every, [true, true, true]);
  }
});

test("a shadow rule reports what it would refuse, and refuses nothing", async () => {
  const gateway = await open([
    { actor: "all", connections: 1, mode: "shadow", name: "dry" },
    { actor: "all", connections: 3 },
  ]);
  const verdicts = [1, 2, 3, 4].map(() => enter(gateway, inFlight()));
  assert.equal(
    verdicts.map(({ allowed, outcomes }) => [allowed, outcomes[0]?.allowed]),
    [
      [true, true],
      [true, false],
      [true, false],
      [false, false],
    ],
  );
  assert.equal(gateway.stats.dry, { passed: 1, waited: 0, refused: 3, refusedElsewhere: 0 });
});

test("a request takes a place under all rules or under none", async () => {
  const gateway = await open([
    { actor: "all", connections: 3, name: "all" },
    { actor: "device", connections: 1, name: "device" },
  ]);
  const from = (remoteAddress: string) => inFlight({ remoteAddress });
  assert.ok(enter(gateway, from("192.0.2.1")).allowed);
  for (let i = 0; i < 10; i++) assert.not.ok(enter(gateway, from("192.0.2.1")).allowed);
  assert.ok(enter(gateway, from("192.0.2.2")).allowed);
  assert.ok(enter(gateway, from("192.0.2.3")).allowed);
  assert.not.ok(enter(gateway, from("192.0.2.4")).allowed);
  assert.is(gateway.stats.all?.refusedElsewhere, 10);
});

test("a request that another rule refuses leaves its place at once, and is charged to none", async () => {
  const gateway = await open([
    { actor: "all", connections: 1, name: "conn" },
    { actor: "all", unit: "hour", rpu: 2, algo: "window", name: "rate" },
  ]);
  const first = inFlight();
  assert.ok(enter(gateway, first).allowed);
  const second = enter(gateway, inFlight());
  assert.equal(
    second.outcomes.map(({ rule }) => rule.name),
    ["conn"],
  );
  first.end();
  const last = inFlight();
  assert.ok(enter(gateway, last).allowed);
  last.end();
  for (let i = 0; i < 3; i++) {
    const { allowed, outcomes } = enter(gateway, inFlight());
    assert.equal([allowed, outcomes.map(({ allowed }) => allowed)], [false, [true, false]]);
  }
  assert.equal(gateway.stats.conn, { passed: 2, waited: 0, refused: 1, refusedElsewhere: 3 });
  await gateway.reset({ rule: "rate" });
  assert.ok(enter(gateway, inFlight()).allowed);
});

test("a request that waits for its turn keeps its place, and a client that leaves frees it", async () => {
  const clock = new FakeClock();
  const gateway = await open(
    [
      { actor: "all", connections: 2 },
      { actor: "all", unit: "second", rpu: 1, algo: "leaky bucket", burst: 5 },
    ],
    { clock },
  );
  const first = inFlight();
  assert.ok((await gateway.check(first.request)).allowed);
  const second = inFlight();
  const controller = new AbortController();
  const waiting = Promise.resolve(
    gateway.check({ ...second.request, signal: controller.signal }),
  ).catch((error: Error) => error.name);
  assert.not.ok(enter(gateway, inFlight()).allowed);
  controller.abort();
  assert.is(await waiting, "AbortError");
  assert.ok((gateway.peek(inFlight().request) as Verdict).allowed);
  first.end();
  second.end();
  const third = Promise.resolve(gateway.check(inFlight().request)).catch(
    (error: Error) => error.name,
  );
  await gateway.close();
  assert.is(await third, "ReservationCancelledError");
  assert.ok((gateway.peek(inFlight().request) as Verdict).allowed, "a failure frees the place");
});

test("peek takes no place, and reset is for rules that count requests per time", async () => {
  const gateway = await open([{ actor: "all", connections: 1, name: "conn" }]);
  const peek = () => gateway.peek(inFlight().request) as Verdict;
  assert.equal(
    [peek(), peek()].map(({ allowed, outcomes }) => [allowed, outcomes[0]?.decision.remaining]),
    [
      [true, 1],
      [true, 1],
    ],
  );
  const several = await open([
    { actor: "all", connections: 5, name: "all" },
    { actor: "device", connections: 1, name: "device" },
    { actor: "all", unit: "hour", rpu: 9, name: "rate" },
  ]);
  const look = () => {
    const { allowed, outcomes } = several.peek(inFlight().request) as Verdict;
    return [allowed, ...outcomes.map(({ rule, decision }) => `${rule.name} ${decision.remaining}`)];
  };
  assert.equal(look(), [true, "all 5", "device 1", "rate 9"]);
  enter(several, inFlight());
  assert.equal(look(), [false, "all 4", "device 0"], "the rule behind is not asked");
  enter(gateway, inFlight());
  assert.equal([peek().allowed, peek().retryMs], [false, 1000]);
  let message = "";
  await gateway.reset({ rule: "conn" }).catch((error: Error) => {
    message = error.message;
  });
  assert.match(
    message,
    /rule must be the name of a rule for requests per time: there is none, got "conn"/,
  );
});

test("a changed number applies to new requests, and those in progress keep their places", async () => {
  let rules = "[{ actor: all, connections: 2, name: conn }]";
  let changed = () => {};
  const gateway = await createGateway({
    rules: {
      ...functionSource(() => ""),
      name: "text",
      load: async () => `{ url: /, rules: ${rules} }`,
      watch: (change: () => void) => {
        changed = change;
        return () => {};
      },
    },
  });
  const apply = async (text: string) => {
    rules = text;
    changed();
    for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  };
  const [one, two] = [inFlight(), inFlight()];
  assert.ok(enter(gateway, one).allowed && enter(gateway, two).allowed);
  await apply("[{ actor: all, connections: 3, name: conn }]");
  assert.ok(enter(gateway, inFlight()).allowed);
  assert.not.ok(enter(gateway, inFlight()).allowed);
  await apply("[{ actor: all, connections: 2, name: conn }]");
  one.end();
  assert.not.ok(enter(gateway, inFlight()).allowed, "two are in progress");
  two.end();
  assert.ok(enter(gateway, inFlight()).allowed);
  await apply("[{ actor: device, connections: 1, name: conn }]");
  assert.ok(enter(gateway, inFlight()).allowed, "another actor is another count");
  await apply("[{ actor: all, unit: hour, rpu: 1, name: conn }]");
  assert.equal(
    [1, 2].map(() => enter(gateway, inFlight()).allowed),
    [true, false],
  );
  assert.equal(Object.keys(gateway.stats), ["conn"]);
  await gateway.close();
});

test("maxAge frees a place; without it a request whose end is not reported is not counted", async () => {
  const clock = new FakeClock();
  const unreported = request("/");
  const aged = await open([{ actor: "all", connections: 1, maxAge: "1m" }], { clock });
  const passes = (gateway: Gateway) => (gateway.check(unreported) as Verdict).allowed;
  assert.equal([passes(aged), passes(aged)], [true, false]);
  await clock.advance(60_000);
  assert.ok(passes(aged));
  const endless = await open([{ actor: "all", connections: 1 }], { clock });
  assert.equal([passes(endless), passes(endless)], [true, true]);
});

test("rules behind one whose actor returns a promise count, too", async () => {
  const gateway = await open(
    [
      { actor: "account", connections: 9 },
      { actor: "all", connections: 1 },
    ],
    { actors: { account: async () => "ann" } },
  );
  const passes = async () => (await gateway.check(inFlight().request)).allowed;
  assert.equal([await passes(), await passes()], [true, false]);
});

test("an actor that returns a promise, and one that fails", async () => {
  const gateway = await open([{ actor: "account", connections: 1 }], {
    actors: {
      account: async ({ header }) => {
        const account = header("account");
        if (account === "bad") throw new Error("no token");
        return account;
      },
    },
  });
  const errors: unknown[] = [];
  const passes = async (account: string) =>
    (await gateway.check(inFlight({ account }).request, (error) => errors.push(error))).allowed;
  assert.equal([await passes("ann"), await passes("ann")], [true, false]);
  assert.equal([await passes("bad"), await passes("bad")], [true, false]);
  assert.is(errors.length, 2);
});

test("what the gateway lacks is an error at the start", async () => {
  const fails = (rules: Rules, options?: Partial<GatewayOptions>) =>
    open(rules, options).then(
      () => "",
      (error: Error) => error.message,
    );
  assert.match(
    await fails([{ actor: "all", connections: 1, scope: "global" }]),
    /the gateway has no options\.redis, which scope global needs/,
  );
  const unsubscribed = { runScript: async () => [] } as unknown as RedisClient;
  assert.match(
    await fails([{ actor: "all", connections: 1, scope: "global" }], { redis: unsubscribed }),
    /redis cannot be duplicated/,
  );
  assert.match(
    await fails([{ actor: "account", connections: 1 }], { actors: {} }),
    /the gateway has no options\.actors\.account/,
  );
});

test.run();
