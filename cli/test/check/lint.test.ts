import * as fc from "fast-check";
import { FakeClock } from "smooth-limiter/testing";
import { createGateway, fromHeader, readRules } from "smooth-limiter-gateway";
import * as assert from "uvu/assert";
import { request } from "../../../gateway/test/support/http/request.ts";
import { runs, suite } from "../../../test/support/suite.ts";
import { lint } from "../../src/check/lint.ts";

const test = suite("lint");

type Written = Readonly<Record<string, unknown>>;
type Entry = readonly [url: string, ...rules: Written[]];

const rulesOf = (...entries: Entry[]) =>
  readRules(
    JSON.stringify(
      entries.map(([url, ...rules]) => ({
        url,
        rules: rules.map((rule) => ({ actor: "all", ...rule })),
      })),
    ),
  );

/** "code rule" of each finding. */
const found = (...entries: Entry[]) =>
  lint(rulesOf(...entries), false).map(({ code, rule }) => `${code} ${rule}`);

const slow = { name: "slow", unit: "minute", rpu: 60 };
const fast = { name: "fast", unit: "second", rpu: 100 };

test("rules for connections and for bytes", () => {
  const conn = (name: string, connections: number, more = {}) => ({ name, connections, ...more });
  const bytes = (name: string, bytesPerSecond: number, more = {}) => ({
    ...{ name, bytesPerSecond },
    ...more,
  });
  assert.equal(found(["/", conn("c", 10), bytes("b", 10), slow]), []);
  assert.equal(found(["/", conn("few", 5)], ["/a", conn("many", 5)]), [
    "never-binds many",
    "shadowed-url many",
  ]);
  assert.equal(found(["/", conn("few", 5, { maxAge: "1m" }), conn("many", 9)]), []);
  assert.equal(
    found(["/", conn("few", 5), conn("many", 9, { overrides: { x: { connections: 4 } } })]),
    ["no-such-value many"],
  );
  assert.equal(found(["/", bytes("slow", 5), bytes("quick", 9)]), ["never-binds quick"]);
  assert.equal(found(["/", bytes("slow", 5, { afterBytes: 1 }), bytes("quick", 9)]), []);
  assert.equal(found(["/", conn("c", 10, { scope: "global" })]), ["global-without-redis c"]);
  const [finding] = lint(rulesOf(["/", conn("few", 5), conn("many", 9)]), true);
  assert.match(
    finding?.message ?? "",
    /^9 at once can never bind: .* 5 at once, which lets no more/,
  );
  const [slower] = lint(rulesOf(["/", bytes("slow", 5), bytes("quick", 9)]), true);
  assert.match(slower?.message ?? "", /^9 bytes a second can never bind/);
});

test("nothing to say about rules that all can bind", () => {
  assert.equal(found(), []);
  assert.equal(found(["/", { ...slow }, { ...fast, rpu: 10 }]), []);
  assert.equal(found(["/a", slow], ["/b", fast]), []);
});

test("a rule behind a stricter one can never bind", () => {
  assert.equal(found(["/", slow, fast]), ["never-binds fast"]);
  assert.equal(found(["/", { ...slow, actor: "device" }, { ...fast, actor: "device" }]), [
    "never-binds fast",
  ]);
  assert.equal(found(["/", { ...slow, algo: "SL" }, { ...fast, algo: "SW" }]), [
    "never-binds fast",
  ]);
  assert.equal(found(["/", { ...slow, algo: "W", rpu: 50 }, { ...fast, algo: "SL" }]), [
    "double-burst slow",
    "never-binds fast",
  ]);
});

test("a sliding window may hold more than its limit, by what is in one bucket", () => {
  const ten = { unit: "second", rpu: 10 };
  const log = { ...ten, algo: "SL", name: "log" };
  const window = { ...ten, algo: "SW", name: "window" };
  assert.equal(found(["/", window], ["/a", log]), []);
  assert.equal(found(["/", window], ["/a", { ...log, rpu: 20 }]), [
    "never-binds log",
    "shadowed-url log",
  ]);
  assert.equal(found(["/", log], ["/a", window]), ["never-binds window", "shadowed-url window"]);
});

test("of two that are alike the second", () => {
  assert.equal(found(["/", slow, { ...slow, name: "again" }]), ["never-binds again"]);
});

test("windows that begin together: the longer one cannot be reached behind the shorter", () => {
  const windows = (rpu: number) =>
    found(
      ["/", { name: "s", unit: "second", rpu: 1, algo: "W" }],
      ["/a", { name: "m", unit: "minute", rpu, algo: "W" }],
    ).filter((each) => !each.startsWith("double"));
  assert.equal(windows(60), ["never-binds m", "shadowed-url m"]);
  assert.equal(windows(59), []);
});

test("what a stricter rule does not see is no reason", () => {
  const first = (rule: Written) => found(["/", { ...slow, ...rule }, fast]);
  assert.equal(first({ mode: "shadow" }), []);
  assert.equal(first({ methods: ["GET"] }), []);
  assert.equal(first({ actor: "device" }), []);
  assert.equal(first({ actor: "device", exempt: ["192.0.2.1"] }), []);
  assert.equal(found(["/", slow, { ...fast, scope: "global" }]), ["global-without-redis fast"]);
  assert.equal(found(["/a", slow], ["/", fast]), []);
  const over = { overrides: { "192.0.2.1": { rpu: 1 } } };
  assert.equal(found(["/", slow, { ...fast, actor: "device", ...over }]), []);
});

test("GET holds for HEAD", () => {
  const methods = (...list: string[]) => ({ methods: list });
  assert.equal(
    found(["/", { ...slow, ...methods("GET") }, { ...fast, ...methods("HEAD", "GET") }]),
    ["never-binds fast"],
  );
  assert.equal(found(["/", { ...slow, ...methods("HEAD") }, { ...fast, ...methods("GET") }]), []);
});

test("a smaller window with a larger limit, although bursts can reach it", () => {
  const burst = { burst: 200 };
  assert.equal(found(["/", { ...slow, ...burst }, fast]), ["larger-limit-in-smaller-window fast"]);
  assert.equal(found(["/", { ...slow, ...burst }, { ...fast, rpu: 59 }]), []);
  assert.equal(found(["/", { ...slow, ...burst }, { ...fast, cost: 2 }]), []);
});

test("a leaky bucket delays requests before it refuses", () => {
  const line = { name: "line", unit: "second", rpu: 100, algo: "LB" };
  assert.equal(found(["/", slow, line]), ["larger-limit-in-smaller-window line"]);
  assert.equal(found(["/", slow, { ...line, burst: 60, nodelay: true }]), ["never-binds line"]);
  // waiting requests count for other rules at once, before they pass
  assert.equal(found(["/", { ...line, rpu: 1, burst: 59 }, { ...slow, burst: 60 }]), [
    "never-binds slow",
  ]);
  assert.equal(found(["/", { ...line, rpu: 1, burst: 60 }, { ...slow, burst: 60 }]), []);
});

test("URLs: shadowed by others, and written twice", () => {
  assert.equal(found(["/", slow], ["/api", fast]), ["never-binds fast", "shadowed-url fast"]);
  assert.equal(found(["/", slow], ["/api", fast, { ...fast, rpu: 1, name: "one" }]), [
    "never-binds fast",
  ]);
  assert.equal(found(["/api", slow], ["/API/", { ...slow, rpu: 6, name: "six" }]), [
    "never-binds slow",
    "same-url six",
  ]);
});

test("overrides and exemptions that no actor can equal", () => {
  const over = (value: string) => ({ overrides: { [value]: { rpu: 1 } }, name: "r" });
  const device = { ...slow, actor: "device" };
  assert.equal(found(["/", { ...device, ...over("2001:db8::1") }]), ["no-such-value r"]);
  assert.equal(found(["/", { ...device, ...over("2001:db8:0:0::/56") }]), []);
  assert.equal(found(["/", { ...device, ...over("2001:db8:0:1::/64") }]), ["no-such-value r"]);
  assert.equal(found(["/", { ...device, ...over("192.0.2.1") }]), []);
  const exempt = (...values: string[]) => found(["/", { ...device, exempt: values, name: "r" }]);
  assert.equal(exempt("192.0.2.0/24", "::1", "2001:db8::/32", "phone", "a.example"), []);
  for (const wrong of ["192.0.2.0/33", "192.0.2", "010.0.0.1", "2001:db8/32", "::1/129"]) {
    assert.equal(exempt(wrong), ["no-such-value r"], wrong);
  }
  assert.equal(found(["/", { ...slow, ...over("x"), exempt: ["y"] }]), [
    "no-such-value r",
    "no-such-value r",
  ]);
});

test("scope global is a warning without Redis, and none with it", () => {
  const rules = rulesOf(["/", { ...slow, scope: "global" }]);
  assert.equal(
    lint(rules, false).map(({ code }) => code),
    ["global-without-redis"],
  );
  assert.equal(lint(rules, true), []);
});

test("a rule that is reported as never binding refuses and delays no request, whatever comes", async () => {
  const algo = fc.constantFrom("TB", "W", "SW", "LB", "SL", "gcra");
  const numbers = fc.record(
    {
      algo,
      rpu: fc.integer({ min: 1, max: 6 }),
      units: fc.integer({ min: 1, max: 3 }),
      burst: fc.integer({ min: 1, max: 8 }),
      cost: fc.integer({ min: 1, max: 2 }),
    },
    { requiredKeys: ["algo", "rpu", "units"] },
  );
  const gaps = fc.array(fc.integer({ min: 0, max: 900 }), { minLength: 20, maxLength: 60 });
  let judged = 0;
  await fc.assert(
    fc.asyncProperty(numbers, numbers, gaps, async (one, other, steps) => {
      const written = [one, other].map(({ burst, cost = 1, ...rest }, i) => ({
        ...rest,
        name: `r${i}`,
        unit: "second",
        rpu: Math.max(rest.rpu, cost),
        cost,
        ...(burst !== undefined && !/W|SL/.test(rest.algo) && { burst: Math.max(burst, cost) }),
      }));
      const rules = rulesOf(["/", ...written]);
      const idle = lint(rules, true).flatMap(({ code, rule }) =>
        code === "never-binds" && rule !== undefined ? [rule] : [],
      );
      if (idle.length === 0) return;
      judged += 1;
      const clock = new FakeClock(500);
      const gateway = await createGateway({ rules, clock, actors: { account: fromHeader("a") } });
      const bound: string[] = [];
      for (const step of steps) {
        const answer = Promise.resolve(gateway.check(request("/")));
        void answer.then(({ allowed, outcomes }) => {
          // what both refuse, the other one would have refused alone
          const acts = outcomes.filter(
            (one) => !one.allowed || (allowed && one.decision.waitMs > 0),
          );
          if (acts.length > 0 && acts.every(({ rule }) => idle.includes(rule.name))) {
            bound.push(...acts.map(({ rule }) => rule.name));
          }
        });
        if (step > 300) await clock.advance(step);
      }
      await clock.advance(60_000);
      await gateway.close();
      assert.equal(bound, [], JSON.stringify(written));
    }),
    {
      numRuns: runs(80, 20),
      // a request that waits in a line is charged to other rules before it passes
      examples: [
        [
          { algo: "LB", rpu: 1, units: 1 },
          { algo: "gcra", rpu: 1, units: 1, burst: 1 },
          Array.from({ length: 20 }, () => 0),
        ],
      ],
    },
  );
  assert.ok(judged > 5);
});

test("thousands of URLs are checked in one pass over each URL and those around it", () => {
  const many = Array.from(
    { length: runs(4000, 2000) },
    (_, i): Entry => [`/u${i}/x`, { ...slow, name: `r${i}` }],
  );
  const findings = found(["/u7", { ...slow, rpu: 1, name: "outer" }], ...many);
  assert.equal(findings, ["never-binds r7", "shadowed-url r7"]);
});

test("rules that count less than all requests of a URL make no other rule ineffective", () => {
  const read = (entry: string, more = "") =>
    lint(
      readRules(
        `- { url: /, ${entry} rules: [{ actor: all, unit: minute, rpu: 1, name: strict${more} }] }
- { url: /a, rules: [{ actor: all, unit: minute, rpu: 100, name: wide }] }`,
        { costs: ["c"] },
      ),
      true,
    ).map(({ code }) => code);
  assert.equal(read(""), ["never-binds", "shadowed-url"]);
  for (const entry of ["exact: true,", "except: /a/b,", "host: x.org,"]) {
    assert.equal(read(entry), [], entry);
  }
  for (const more of [", count: failures", ", cost: { GET: 0.5 }", ", cost: c"]) {
    assert.equal(read("", more), [], more);
  }
});

test("lists, patterns, trials and months", () => {
  const codes = (text: string) => lint(readRules(text), true).map(({ code }) => code);
  assert.equal(
    codes(`- { url: [/a, /b], rules: [{ actor: all, unit: ever, rpu: 9, name: a }] }
- { url: "/u/:a", rules: [{ actor: all, unit: month, rpu: 9, name: b }] }
- { url: "/u/{b}", rules: [{ actor: all, unit: month, rpu: 9, name: c }] }`),
    // the third rule counts the same requests as the second
    ["never-binds", "same-url"],
  );
  assert.equal(
    codes(`- { url: /, rules: [{ actor: all, unit: month, rpu: 9, algo: W, align: epoch, name: a }] }
- { url: [/b, /c], rules: [{ actor: all, unit: day, rpu: 100, name: b }] }`),
    ["double-burst"],
  );
  const hourly = readRules("{ url: /, rules: [{ actor: all, unit: hour, rpu: 9, algo: W }] }");
  assert.match(lint(hourly, true)[0]?.message ?? "", /it says 9 an hour:/);
  assert.equal(
    codes(`url: /
rules:
  - { actor: all, unit: minute, rpu: 10, algo: W, align: first, name: a }
  - { actor: all, unit: hour, rpu: 600, algo: W, name: b }`).filter(
      (code) => code === "never-binds",
    ),
    [],
  );
});

test("an exception that exempts nothing", () => {
  const messages = (text: string) =>
    lint(readRules(text), false).map(({ code, message }) => `${code}: ${message}`);
  const rules =
    "rules: [{ actor: all, unit: hour, rpu: 1 }, { actor: device, unit: hour, rpu: 1 }]";
  assert.equal(messages(`{ url: [/api, /v2], except: [/api/free, /helth], ${rules} }`), [
    "useless-exception: except /helth exempts nothing: it is not below /api or /v2",
  ]);
  for (const [url, except] of [
    ["/", "/health"],
    ["/api", "/api"],
    ["/api/:id/posts", "/api/7"],
    ["/api/users", "/API/:id/x"],
    ["/*/x", "/api"],
  ]) {
    assert.equal(messages(`{ url: "${url}", except: "${except}", ${rules} }`), [], except);
  }
  assert.equal(messages(`{ url: /api, exact: true, except: /api/free, ${rules} }`), [
    "useless-exception: except /api/free exempts nothing: it is not below /api",
  ]);
});

test.run();
