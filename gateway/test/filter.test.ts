import * as fc from "fast-check";
import type { RedisClient } from "smooth-limiter/redis";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { runs, suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  type Gateway,
  type GatewayOptions,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { anyText } from "./support/any-text.ts";
import { request } from "./support/http/request.ts";

const test = suite("filter");

type Extra = Partial<GatewayOptions> & { clock?: FakeClock };

/** Opens a gateway on a FakeClock. The account is in a header. */
function open(text: string, options: Extra = {}): Promise<Gateway> {
  const actors = { account: fromHeader("account"), ...options.actors };
  const rules = readRules(text, { actors: Object.keys(actors) });
  return createGateway({ rules, clock: new FakeClock(), ...options, actors });
}

/** Calls `check`, which must not return a promise. */
function now(answer: Verdict | Promise<Verdict>): Verdict {
  assert.not.instance(answer, Promise);
  return answer as Verdict;
}

const ask = (gateway: Gateway, ...args: Parameters<typeof request>) =>
  now(gateway.check(request(...args)));

const brief = ({ allowed, outcomes }: Verdict) => [
  allowed,
  ...outcomes.map((one) => `${one.allowed ? "+" : "-"}${one.rule.name} ${one.decision.remaining}`),
];

test("all rules of all matching URLs apply, and a refused request is charged to none", async () => {
  const gateway = await open(`
- url: /
  rules: [{ actor: all, unit: minute, rpu: 5, algo: W, name: root }]
- url: /sample
  rules:
    - { actor: all, unit: minute, rpu: 2, algo: W, name: sample }
    - { actor: device, unit: minute, rpu: 9, algo: W, name: device }
`);
  assert.equal(brief(ask(gateway, "/sample")), [true, "+root 4", "+sample 1", "+device 8"]);
  assert.equal(brief(ask(gateway, "/sample/x")), [true, "+root 3", "+sample 0", "+device 7"]);
  const refused = ask(gateway, "/sample");
  assert.equal(brief(refused), [false, "+root 3", "-sample 0", "+device 7"]);
  assert.is(refused.retryMs, 60_000);
  assert.equal(brief(ask(gateway, "/other")), [true, "+root 2"]);
  assert.equal(brief(ask(gateway, "//SAMPLE")), [false, "+root 2", "-sample 0", "+device 7"]);
});

test("if several rules refuse, all are reported, and the longest wait counts", async () => {
  const gateway = await open(`
url: /
rules:
  - { actor: all, unit: second, rpu: 1, algo: W, name: short }
  - { actor: all, unit: hour, rpu: 1, algo: W, name: long }
`);
  ask(gateway, "/");
  const refused = ask(gateway, "/");
  assert.equal(brief(refused), [false, "-short 0", "-long 0"]);
  assert.is(refused.retryMs, 3_600_000);
});

test("a request without a rule passes with no outcomes", async () => {
  const gateway = await open("url: /a\nrules: [{ actor: all, unit: day, rpu: 1 }]");
  const passed = { allowed: true, retryMs: 0, waitedMs: 0, outcomes: [] };
  assert.equal(ask(gateway, "/b"), passed);
  assert.equal(ask(await open("[]"), "/"), passed);
});

test("peek says what check would, and charges no rule", async () => {
  const gateway = await open(`
- { url: /window, rules: [{ actor: all, unit: minute, rpu: 1, algo: W, name: window }] }
- { url: /line, rules: [{ actor: all, unit: second, rpu: 1, algo: LB, burst: 1, name: line }] }
`);
  const look = (url: string) => {
    const verdict = now(gateway.peek(request(url)));
    return [verdict.allowed, verdict.retryMs, verdict.outcomes[0]?.decision.waitMs];
  };
  assert.equal(
    [look("/window"), look("/window")],
    [
      [true, 0, 0],
      [true, 0, 0],
    ],
  );
  ask(gateway, "/window");
  assert.equal(look("/window"), [false, 60_000, 60_000]);
  ask(gateway, "/line");
  assert.equal(look("/line"), [true, 0, 1000], "it would wait");
  const waiting = Promise.resolve(gateway.check(request("/line"))).catch(() => {});
  assert.equal(look("/line"), [false, 1000, Infinity], "no more may wait");
  await gateway.close();
  await waiting;
});

test("a shadow rule that cannot be asked is not reported, and refuses nothing", async () => {
  const broken = {
    runScript: async () => {
      throw new Error("gone");
    },
  } as unknown as RedisClient;
  const gateway = await open(
    `
url: /
rules:
  - { actor: all, unit: day, rpu: 9, scope: global, mode: shadow, count: failures, name: shadow }
  - { actor: all, unit: day, rpu: 1, algo: W, name: local }
`,
    { redis: broken, whenUnavailable: "throw" },
  );
  assert.equal(brief(await gateway.check(request("/"))), [true, "+local 0"]);
  assert.equal(brief(await gateway.check(request("/"))), [false, "-local 0"]);
  await gateway.close();
});

test("a request that waits in several lines has waited as long as in the longest", async () => {
  const clock = new FakeClock();
  const line = (rpu: number) =>
    `{ actor: all, unit: second, rpu: ${rpu}, algo: LB, burst: 9, name: r${rpu} }`;
  const gateway = await open(`{ url: /, rules: [${line(1)}, ${line(2)}] }`, { clock });
  ask(gateway, "/");
  const waiting = gateway.check(request("/"));
  await clock.advance(1000);
  assert.is((await waiting).waitedMs, 1000);
});

test("the request passes exactly after retryMs, and not earlier", async () => {
  const clock = new FakeClock();
  const text = `
url: /
rules:
  - { actor: all, unit: second, rpu: 4, burst: 1, name: fast }
  - { actor: all, unit: minute, rpu: 2, burst: 2, name: slow }
`;
  const gateway = await open(text, { clock });
  assert.ok(ask(gateway, "/").allowed);
  const { retryMs } = ask(gateway, "/");
  assert.is(retryMs, 250);
  await clock.advance(249.999);
  assert.not.ok(ask(gateway, "/").allowed);
  await clock.advance(0.001);
  assert.ok(ask(gateway, "/").allowed);
  const later = ask(gateway, "/").retryMs;
  assert.is(later, 30_000 - 250);
  await clock.advance(later);
  assert.ok(ask(gateway, "/").allowed);
});

test("the four algorithms behave as documented", async () => {
  const passed = async (algo: string) => {
    const clock = new FakeClock();
    const text = `url: /\nrules: [{ actor: all, unit: second, rpu: 10, algo: ${algo} }]`;
    const gateway = await open(text, { clock });
    let count = 0;
    for (let i = 0; i < 40; i++) {
      await clock.advance(50);
      if (ask(gateway, "/").allowed) count += 1;
    }
    return count;
  };
  // from 50 ms to 2 s: a burst of 10 and 19 refilled; two windows of 10, and the edge of the next
  assert.is(await passed("TB"), 29);
  assert.is(await passed("W"), 21);
  assert.is(await passed("SW"), 21);
  assert.is(await passed("SL"), 20);
});

test("methods: GET includes HEAD, and the case of the request does not matter", async () => {
  const gateway = await open(
    "url: /\nrules: [{ actor: all, unit: day, rpu: 2, methods: [GET], name: r }]",
  );
  assert.equal(brief(ask(gateway, "/", { method: "POST" })), [true]);
  assert.equal(brief(ask(gateway, "/", { method: "get" })), [true, "+r 1"]);
  assert.equal(brief(ask(gateway, "/", { method: "HEAD" })), [true, "+r 0"]);
  assert.equal(brief(ask(gateway, "/")), [false, "-r 0"]);
});

test("each actor has its own count", async () => {
  const tenants: string[] = [];
  const gateway = await open(
    `
url: /
rules:
  - { actor: account, unit: day, rpu: 2, name: account }
  - { actor: tenant, unit: day, rpu: 3, name: tenant }
`,
    { actors: { tenant: ({ raw }) => tenants[Number(raw)] } },
  );
  tenants.push("t0", "t1");
  const from = (account: string, raw: number) =>
    brief(ask(gateway, "/", { headers: { account }, raw }));
  assert.equal(from("ann", 0), [true, "+account 1", "+tenant 2"]);
  assert.equal(from("bob", 0), [true, "+account 1", "+tenant 1"]);
  assert.equal(from("ann", 1), [true, "+account 0", "+tenant 2"]);
  assert.equal(from("ann", 0), [false, "-account 0", "+tenant 1"]);
});

test("an actor may return a promise", async () => {
  const gateway = await open("url: /\nrules: [{ actor: tenant, unit: day, rpu: 1 }]", {
    actors: { tenant: async () => "t" },
  });
  const [first, second] = await Promise.all([1, 2].map(() => gateway.check(request("/"))));
  assert.ok(first?.allowed);
  assert.not.ok(second?.allowed);
  assert.is(second?.outcomes[0]?.actor, "t");
});

test("a request without a value counts by its device, separately from requests with one", async () => {
  const text = "url: /\nrules: [{ actor: account, unit: day, rpu: 1 }]";
  const gateway = await open(text);
  const passes = (account: string | undefined, remoteAddress: string | undefined) =>
    ask(gateway, "/", { headers: account === undefined ? {} : { account }, remoteAddress }).allowed;
  assert.ok(passes(undefined, "192.0.2.1"));
  assert.not.ok(passes(undefined, "192.0.2.1"));
  assert.not.ok(passes("", "192.0.2.1"));
  assert.ok(passes(undefined, "192.0.2.2"));
  // an account named like an address does not share the quota of that address
  assert.ok(passes("192.0.2.3", "192.0.2.9"));
  assert.ok(passes(undefined, "192.0.2.3"));
  assert.ok(passes(undefined, undefined));
  assert.not.ok(passes(undefined, undefined));
  // nor does an account that is spelled like a key
  for (const account of ["192.0.2.4", "?192.0.2.4", "=192.0.2.4", "=?192.0.2.4", "?", "="]) {
    assert.ok(passes(account, "192.0.2.9"), account);
    assert.not.ok(passes(account, "192.0.2.9"), account);
  }
  assert.ok(passes(undefined, "192.0.2.4"));

  const shared = await open(text, { whenActorMissing: "shared" });
  assert.ok(ask(shared, "/").allowed);
  assert.not.ok(ask(shared, "/", { remoteAddress: "192.0.2.2" }).allowed);

  const skip = await open(text, { whenActorMissing: "skip" });
  assert.equal(brief(ask(skip, "/")), [true]);
});

test("overrides and exemptions by the actor's value", async () => {
  const gateway = await open(`
url: /
rules:
  - actor: account
    name: r
    unit: day
    rpu: 1
    overrides: { gold: { rpu: 3 }, __: { rpu: 2 } }
    exempt: [root]
  - { actor: device, name: d, unit: day, rpu: 100, exempt: [192.0.2.0/24] }
`);
  const from = (account: string) => brief(ask(gateway, "/", { headers: { account } }));
  assert.equal(from("ann"), [true, "+r 0"]);
  assert.equal(from("ann"), [false, "-r 0"]);
  assert.equal(from("gold"), [true, "+r 2"]);
  assert.equal(from("__"), [true, "+r 1"]);
  for (let i = 0; i < 5; i++) assert.equal(from("root"), [true]);
  const outside = { headers: { account: "root" }, remoteAddress: "198.51.100.1" };
  assert.equal(brief(ask(gateway, "/", outside)), [true, "+d 99"]);
});

test("a shadow rule is counted and reported, and refuses no request", async () => {
  const gateway = await open(`
url: /
rules:
  - { actor: all, unit: day, rpu: 1, mode: shadow, name: shadow }
  - { actor: all, unit: day, rpu: 3, name: real }
`);
  assert.equal(brief(ask(gateway, "/")), [true, "+shadow 0", "+real 2"]);
  const second = ask(gateway, "/");
  assert.equal(brief(second), [true, "-shadow 0", "+real 1"]);
  assert.is(second.retryMs, 0);
  ask(gateway, "/");
  assert.equal(brief(ask(gateway, "/")), [false, "-shadow 0", "-real 0"]);

  const alone = await open(
    "url: /\nrules: [{ actor: all, unit: day, rpu: 1, mode: shadow, name: s }]",
  );
  assert.equal(brief(ask(alone, "/")), [true, "+s 0"]);
  assert.equal(brief(ask(alone, "/")), [true, "-s 0"]);
});

test("a leaky bucket in shadow mode delays no request, and reports a refusal when it would be full", async () => {
  const gateway = await open(
    "url: /\nrules: [{ actor: all, unit: second, rpu: 1, algo: LB, burst: 2, mode: shadow, name: s }]",
  );
  const said = [1, 2, 3, 4].map(() => ask(gateway, "/").outcomes[0]?.allowed);
  assert.equal(said, [true, true, true, false]);
});

test("a request takes as many permits as the rule's cost", async () => {
  const gateway = await open(
    "url: /\nrules: [{ actor: all, unit: day, rpu: 5, cost: 2, name: r }]",
  );
  assert.equal(brief(ask(gateway, "/")), [true, "+r 3"]);
  assert.equal(brief(ask(gateway, "/")), [true, "+r 1"]);
  assert.equal(brief(ask(gateway, "/")), [false, "-r 1"]);
});

const LINE = `
url: /
rules:
  - { actor: account, unit: second, rpu: 10, algo: LB, burst: 2, name: line }
  - { actor: all, unit: day, rpu: 5, algo: W, name: day }
`;
const ann = { headers: { account: "ann" } };

test("in a leaky bucket requests wait, and those beyond its capacity are refused", async () => {
  const clock = new FakeClock();
  const gateway = await open(LINE, { clock });
  const first = now(gateway.check(request("/", ann)));
  assert.is(first.waitedMs, 0);
  const waiting = [1, 2].map(() => gateway.check(request("/", ann)));
  const refused = now(gateway.check(request("/", ann)));
  assert.not.ok(refused.allowed);
  assert.ok(refused.retryMs >= 100);
  // refused by the leaky bucket, charged to no rule
  assert.is(refused.outcomes[1]?.decision.remaining, 2);
  const result: string[] = [];
  waiting.forEach((one, i) => {
    void (one as Promise<Verdict>).then((verdict) => {
      result.push(`${i} at ${clock.now()}: ${verdict.allowed} ${verdict.waitedMs}`);
      assert.is(verdict.outcomes[0]?.decision.waitMs, 100 * (i + 1));
    });
  });
  await clock.advance(99);
  assert.equal(result, []);
  await clock.advance(500);
  assert.equal(result, ["0 at 100: true 100", "1 at 200: true 200"]);
});

test("a request whose client disconnects leaves the queue, and is charged to no rule", async () => {
  const clock = new FakeClock();
  const gateway = await open(LINE, { clock });
  await gateway.check(request("/", ann));
  const leaving = new AbortController();
  const gone = gateway.check(request("/", { ...ann, signal: leaving.signal }));
  const behind = gateway.check(request("/", ann));
  leaving.abort(new Error("gone"));
  let why: unknown;
  await Promise.resolve(gone).catch((error: unknown) => {
    why = error;
  });
  assert.is((why as Error).message, "gone");
  await clock.advance(100);
  const { waitedMs, outcomes } = await behind;
  assert.is(waitedMs, 100);
  assert.is(outcomes[1]?.decision.remaining, 2);
  assert.is(ask(gateway, "/", { headers: { account: "bob" } }).outcomes[1]?.decision.remaining, 2);

  // a request that is over before the check takes nothing
  const early = gateway.check(request("/", { ...ann, signal: leaving.signal }));
  await Promise.resolve(early).then(
    () => {},
    (error: Error) => assert.is(error.message, "gone"),
  );
});

test("closing ends the waiting of all requests", async () => {
  const gateway = await open(LINE);
  await gateway.check(request("/", ann));
  const waiting = Promise.resolve(gateway.check(request("/", ann)));
  const ended = waiting.then(
    () => "passed",
    (error: { code: string }) => error.code,
  );
  await gateway.close();
  assert.is(await ended, "RESERVATION_CANCELLED");
  assert.ok(ask(gateway, "/", { headers: { account: "bob" } }).allowed);
  const later = await Promise.resolve(gateway.check(request("/", ann))).catch(({ code }) => code);
  assert.is(later, "RESERVATION_CANCELLED", "a later request does not wait");
});

test("keys are bounded, however long or many the values are", async () => {
  const text = "url: /\nrules: [{ actor: account, unit: day, rpu: 1 }]";
  const gateway = await open(text, { maxKeys: 100 });
  const long = "x".repeat(16_000);
  const passes = (account: string) => ask(gateway, "/", { headers: { account } }).allowed;
  assert.ok(passes(`${long}1`));
  assert.not.ok(passes(`${long}1`));
  assert.ok(passes(`${long}2`));
  for (let i = 0; i < 1000; i++) assert.ok(passes(`invented ${i}`));

  const strict = await open(text, { maxKeys: 2, whenFull: "refuse" });
  const said = ["a", "b", "c"].map((account) => ask(strict, "/", { headers: { account } }).allowed);
  assert.equal(said, [true, true, false]);
});

test("if there is no room for a key, no other rule is charged", async () => {
  const gateway = await open(
    `
url: /
rules:
  - { actor: all, unit: day, rpu: 9, name: all }
  - { actor: account, unit: day, rpu: 9, name: account }
`,
    { maxKeys: 1, whenFull: "refuse" },
  );
  const from = (account: string) => ask(gateway, "/", { headers: { account } });
  assert.equal(brief(from("a")), [true, "+all 8", "+account 8"]);
  const refused = from("b");
  assert.not.ok(refused.allowed);
  assert.ok(refused.retryMs > 0);
  assert.equal(brief(from("a")), [true, "+all 7", "+account 7"]);
});

test("a refused request leaves no trace, not even a key", async () => {
  const gateway = await open(
    `
url: /
rules:
  - { actor: account, unit: day, rpu: 9, name: account }
  - { actor: all, unit: day, rpu: 1, name: all }
`,
    { maxKeys: 1, whenFull: "refuse" },
  );
  const from = (account: string) => brief(ask(gateway, "/", { headers: { account } }));
  assert.equal(from("a"), [true, "+account 8", "+all 0"]);
  // a key for the refused request would leave no room for b's key
  assert.equal(from("b"), [false, "+account 9", "-all 0"]);
});

test("any request gets a verdict", async () => {
  const gateway = await open(
    `
- url: /
  rules: [{ actor: account, unit: day, rpu: 3 }, { actor: device, unit: day, rpu: 3 }]
- url: /a
  rules: [{ actor: device, unit: day, rpu: 2, algo: SW, methods: [GET, POST] }]
`,
    { trustedProxies: 2, maxKeys: 50 },
  );
  const text = fc.oneof(anyText, fc.constantFrom("/a", "/%", "GET", "::1"));
  const asked = fc.record({ url: text, method: text, remoteAddress: fc.option(text) });
  const headers = fc.record({ account: text, "x-forwarded-for": text }, { requiredKeys: [] });
  await fc.assert(
    fc.property(asked, headers, ({ url, method, remoteAddress }, sent) => {
      const verdict = ask(gateway, url, {
        method,
        headers: sent,
        remoteAddress: remoteAddress ?? undefined,
      });
      assert.ok(verdict.outcomes.length >= 2);
      const refusing = verdict.outcomes.filter(({ allowed }) => !allowed);
      assert.is(verdict.allowed, refusing.length === 0);
      assert.is(verdict.retryMs > 0, !verdict.allowed);
    }),
    { numRuns: runs(400) },
  );
});

test("many instances at 50 a second each let 50 times their number through", async () => {
  const clock = new FakeClock();
  const text = "url: /\nrules: [{ actor: all, unit: second, rpu: 50, algo: W }]";
  const instances = await Promise.all(
    Array.from({ length: runs(100, 20) }, () => open(text, { clock })),
  );
  let passed = 0;
  for (let tick = 0; tick < 20; tick++) {
    for (const gateway of instances) {
      for (let i = 0; i < 10; i++) if (ask(gateway, "/").allowed) passed += 1;
    }
    await clock.advance(50);
  }
  assert.is(passed, 50 * instances.length);
});

test("property: each rule keeps its bound, and the verdicts agree with a simple count", async () => {
  const clock = new FakeClock();
  const limits: Record<string, number> = { "/": 12, "/a": 7, "/a/b": 4, "/c": 5 };
  const text = Object.entries(limits)
    .map(
      ([url, rpu]) =>
        `- { url: ${url}, rules: [{ actor: device, unit: day, rpu: ${rpu}, algo: W, name: ${url} }] }`,
    )
    .join("\n");
  const path = fc.constantFrom("/", "/a", "/a/b", "/a/b/c", "/A//b", "/c", "/x");
  const device = fc.constantFrom("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2");
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(path, device), { maxLength: 60 }), async (asked) => {
      const gateway = await open(text, { clock });
      const counts = new Map<string, number>();
      for (const [url, remoteAddress] of asked) {
        const plain = url.toLowerCase().replace("//", "/");
        const holding = Object.keys(limits).filter(
          (each) => each === "/" || plain === each || plain.startsWith(`${each}/`),
        );
        const keys = holding.map((each) => `${each} ${remoteAddress.replace("::ffff:", "")}`);
        const room = holding.every(
          (each, i) => (counts.get(keys[i] ?? "") ?? 0) < (limits[each] ?? 0),
        );
        assert.is(ask(gateway, url, { remoteAddress }).allowed, room);
        if (room) for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
      }
    }),
    { numRuns: runs(50) },
  );
});

test.run();
