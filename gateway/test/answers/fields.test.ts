import * as fc from "fast-check";
import { FakeClock } from "smooth-limiter/testing";
import { type Item, parseDictionary, parseItem, parseList } from "structured-headers";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { refusal } from "../../src/answers/answer.ts";
import { type Dialect, fieldsOf } from "../../src/answers/fields.ts";
import {
  type CheckResult,
  createGateway,
  type PolicyOutcome,
  readRules,
  type Verdict,
} from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("fields");

interface Numbers {
  readonly name?: string;
  readonly cost?: number;
  readonly mode?: "enforce" | "shadow";
  readonly report?: boolean;
  readonly allowed?: boolean;
  readonly limit?: number;
  readonly remaining?: number;
  readonly resetMs?: number;
  readonly waitMs?: number;
  readonly windowMs?: number;
}

function outcome(numbers: Numbers): PolicyOutcome {
  const { name = "r", cost = 1, mode = "enforce", allowed = true, limit = 10, report } = numbers;
  const { remaining = 5, resetMs = 1000, waitMs = 0, windowMs = 60_000 } = numbers;
  const policies = { p: { allowed, limit, remaining, resetMs, windowMs } };
  const decision = { allowed, waitMs, limit, remaining, resetMs, policy: "p", policies };
  return { rule: { name, mode, cost, report }, allowed, decision };
}

function screened(...outcomes: readonly PolicyOutcome[]): CheckResult {
  const refusing = outcomes.filter(({ allowed }) => !allowed);
  const retryMs = Math.max(0, ...refusing.map(({ decision }) => decision.waitMs));
  return { allowed: refusing.length === 0, retryMs, outcomes };
}

const write = (result: CheckResult, ...dialects: Dialect[]) =>
  Object.fromEntries(fieldsOf(result, dialects));

/** A list as plain data, read by a library that is not ours. */
function list(field: string | undefined) {
  return (parseList(field ?? "") as Item[]).map(([item, parameters]) => [
    item,
    Object.fromEntries(parameters),
  ]);
}

test("a quota that never refills has no reset, in any dialect", () => {
  const never = { remaining: 0, resetMs: Infinity, windowMs: 0 };
  for (const numbers of [never, { ...never, allowed: false, waitMs: Infinity }]) {
    const result = screened(outcome(numbers));
    assert.is(write(result, "draft-11").RateLimit, '"r";r=0');
    assert.is(write(result, "draft-7").RateLimit, "limit=10, remaining=0");
    const named = { ...write(result, "draft-6"), ...write(result, "x-ratelimit") };
    assert.equal(
      Object.keys(named).filter((name) => name.endsWith("Reset")),
      [],
    );
    assert.is(named["X-RateLimit-Remaining"], "0");
  }
});

test("the current draft: lists of strings with parameters", () => {
  const result = screened(
    outcome({ name: 'the "big" \\ one', limit: 100, remaining: 41.9, resetMs: 1001 }),
    outcome({ name: "day", windowMs: 86_400_000, remaining: 0, resetMs: 500 }),
  );
  const fields = write(result, "draft-11");
  assert.equal(list(fields["RateLimit-Policy"]), [
    ['the "big" \\ one', { q: 100, w: 60 }],
    ["day", { q: 10, w: 86_400 }],
  ]);
  assert.equal(list(fields.RateLimit), [
    ['the "big" \\ one', { r: 41, t: 2 }],
    ["day", { r: 0, t: 1 }],
  ]);
});

test("for a refused request, t is when it would pass, not when the whole quota is back", () => {
  const result = screened(
    outcome({ allowed: false, remaining: 0, waitMs: 2500.001, resetMs: 60_000 }),
  );
  assert.equal(list(write(result, "draft-11").RateLimit), [["r", { r: 0, t: 3 }]]);
  const { RateLimit } = write(result, "draft-7");
  assert.equal(Object.fromEntries(parseDictionary(RateLimit ?? "")), {
    limit: [10, new Map()],
    remaining: [0, new Map()],
    reset: [3, new Map()],
  });
});

test("drafts 6 and 7 report the binding rule, and list all policies", () => {
  const result = screened(
    outcome({ name: "a", remaining: 7, limit: 9 }),
    outcome({ name: "b", remaining: 2, limit: 4, windowMs: 1500, resetMs: 700 }),
    outcome({ name: "c", remaining: 3, limit: 3 }),
  );
  const fields = write(result, "draft-6");
  assert.equal(list(fields["RateLimit-Policy"]), [
    [9, { w: 60 }],
    [4, { w: 2 }],
    [3, { w: 60 }],
  ]);
  const numbers = ["Limit", "Remaining", "Reset"].map(
    (field) => parseItem(fields[`RateLimit-${field}`] ?? "")[0],
  );
  assert.equal(numbers, [4, 2, 1]);

  const refused = screened(
    outcome({ name: "a", remaining: 0 }),
    outcome({ name: "b", allowed: false, remaining: 1, waitMs: 2000, limit: 20 }),
    outcome({ name: "c", allowed: false, remaining: 2, waitMs: 9000, limit: 30 }),
  );
  assert.is(write(refused, "draft-7").RateLimit, "limit=30, remaining=2, reset=9");
});

test("X-RateLimit-Reset is an instant, of the epoch's seconds", () => {
  const before = Math.ceil(Date.now() / 1000);
  const fields = write(screened(outcome({ resetMs: 30_000 })), "x-ratelimit");
  const after = Math.ceil(Date.now() / 1000);
  assert.equal([fields["X-RateLimit-Limit"], fields["X-RateLimit-Remaining"]], ["10", "5"]);
  const reset = Number(fields["X-RateLimit-Reset"]);
  assert.ok(reset >= before + 30 && reset <= after + 30, `${reset}`);
});

test("fields count requests, not permits, where a request costs 5", () => {
  const result = screened(outcome({ cost: 5, limit: 100, remaining: 24 }));
  assert.equal(list(write(result, "draft-11")["RateLimit-Policy"]), [["r", { q: 20, w: 60 }]]);
  assert.equal(list(write(result, "draft-11").RateLimit), [["r", { r: 4, t: 1 }]]);
});

test("the fields do not show shadow rules", () => {
  const shadow = outcome({ name: "s", mode: "shadow", allowed: false, remaining: 0, waitMs: 1e9 });
  assert.equal(write(screened(shadow), "draft-11"), {});
  const both = { ...screened(outcome({}), shadow), allowed: true, retryMs: 0 };
  assert.equal(list(write(both, "draft-11").RateLimit), [["r", { r: 5, t: 1 }]]);
  assert.is(write(both, "draft-7").RateLimit, "limit=10, remaining=5, reset=1");
});

test("a rule with report: false is in no field, and in no refusal", () => {
  const hidden = outcome({ name: "h", report: false, allowed: false, remaining: 0, waitMs: 5000 });
  const result = screened(outcome({}), hidden);
  assert.equal(list(write(result, "draft-11").RateLimit), [["r", { r: 5, t: 1 }]]);
  assert.equal(list(write(result, "draft-11")["RateLimit-Policy"]), [["r", { q: 10, w: 60 }]]);
  assert.is(write(result, "draft-7")["RateLimit-Policy"], "10;w=60");
  assert.is(write(result, "x-ratelimit")["X-RateLimit-Remaining"], "5");
  const { headers, body } = refusal(result, 429, []);
  assert.is(headers["Retry-After"], "5");
  assert.equal(JSON.parse(body)["violated-policies"], []);
  assert.equal(write(screened(hidden), "draft-11", "draft-6", "x-ratelimit"), {});
});

test("eight rules are reported at most: those that bind most, in their order", () => {
  const many = Array.from({ length: 500 }, (_, i) =>
    outcome({ name: `n${i}`, remaining: 900 - i }),
  );
  const names = (result: CheckResult, field: string) =>
    list(write(result, "draft-11")[field]).map(([name]) => name);
  const least = ["n492", "n493", "n494", "n495", "n496", "n497", "n498", "n499"];
  assert.equal(names(screened(...many), "RateLimit"), least);
  assert.equal(names(screened(...many), "RateLimit-Policy"), least);
  assert.is(write(screened(...many), "draft-7")["RateLimit-Policy"]?.split(",").length, 8);
  assert.match(write(screened(...many), "draft-7").RateLimit ?? "", /remaining=401/);
  // refusals come before what is left, and the longest wait before others
  const refused = many.map((each, i) =>
    i < 10 ? outcome({ name: `n${i}`, allowed: false, remaining: 0, waitMs: 1000 + i }) : each,
  );
  const longest = ["n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
  assert.equal(names(screened(...refused), "RateLimit"), longest);
  const { body } = refusal(screened(...refused), 429, []);
  assert.equal(JSON.parse(body)["violated-policies"], longest);
});

test("numbers that no field can hold are capped, and unknown ones are left out", () => {
  const vast = screened(
    outcome({ limit: 1e300, remaining: 1e17, windowMs: 1e30, resetMs: Infinity }),
    outcome({ windowMs: 0, resetMs: 0, remaining: -3 }),
  );
  assert.equal(list(write(vast, "draft-11")["RateLimit-Policy"]), [
    ["r", { q: 999_999_999_999_999, w: 999_999_999_999_999 }],
    ["r", { q: 10 }],
  ]);
  assert.equal(list(write(vast, "draft-11").RateLimit), [
    ["r", { r: 999_999_999_999_999 }],
    ["r", { r: 0 }],
  ]);
  assert.equal(list(write(vast, "draft-7")["RateLimit-Policy"]), [
    [999_999_999_999_999, { w: 999_999_999_999_999 }],
    [10, {}],
  ]);
});

test("a changed limit under the same name updates the fields", () => {
  const small = outcome({ limit: 1 });
  const large = { ...small, decision: outcome({ limit: 2 }).decision };
  const longer = { ...small, decision: outcome({ limit: 2, windowMs: 1000 }).decision };
  const items = [small, large, longer, small].map(
    (each) => write(screened(each), "draft-11")["RateLimit-Policy"],
  );
  assert.equal(items, ['"r";q=1;w=60', '"r";q=2;w=60', '"r";q=2;w=1', '"r";q=1;w=60']);
});

test("the fields of every verdict can be parsed, and no retry time is too early", async () => {
  const clock = new FakeClock();
  const algo = fc.constantFrom("TB", "W", "SW", "SL", "gcra");
  const rule = fc.record({
    algo,
    rpu: fc.integer({ min: 1, max: 5 }),
    unit: fc.constantFrom("second", "minute"),
    name: fc.stringMatching(/^[!-~][ -~]{0,20}[!-~]$/),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(rule, { minLength: 1, maxLength: 3 }),
      fc.array(fc.nat(2000), { maxLength: 12 }),
      async (specs, pauses) => {
        const rules = specs.map((spec, i) => ({
          ...spec,
          name: `${spec.name}${i}`,
          actor: "all",
        }));
        const text = JSON.stringify({ url: "/", rules });
        const gateway = await createGateway({ rules: readRules(text), clock });
        for (const pause of pauses) {
          await clock.advance(pause);
          const verdict = gateway.check(request("/")) as Verdict;
          const fields = write(verdict, "draft-11");
          const names = verdict.outcomes.map((one) => one.rule.name);
          const policies = list(fields["RateLimit-Policy"]);
          const limits = list(fields.RateLimit);
          assert.equal(
            policies.map(([item]) => item),
            names,
          );
          assert.equal(
            limits.map(([item]) => item),
            names,
          );
          parseDictionary(write(verdict, "draft-7").RateLimit ?? "");
          if (verdict.allowed) continue;
          // after the longest retry time of the refusing rules the request passes
          const seconds = limits.map(([, { t = 0 }], i) =>
            verdict.outcomes[i]?.allowed ? 0 : Number(t),
          );
          await clock.advance(1000 * Math.max(...seconds));
          assert.ok((gateway.check(request("/")) as Verdict).allowed);
        }
      },
    ),
    { numRuns: runs(60) },
  );
});

test.run();
