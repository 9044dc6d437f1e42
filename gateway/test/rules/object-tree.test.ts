/** Rules as plain objects: the same schema, and the same errors by path. */
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, RulesError, readRules, type UrlRules } from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("rules as objects");

const api: UrlRules = {
  url: "/api",
  rules: [{ actor: "account", unit: "minute", rpu: 100, algo: "window" }],
};

test("are what the same rules in YAML are", () => {
  const text = "url: /api\nrules: [{ actor: account, unit: minute, rpu: 100, algo: window }]";
  const [fromText] = readRules(text);
  const [fromObject] = readRules(api);
  assert.equal({ ...fromObject, place: 0 }, { ...fromText, place: 0 });
  assert.equal(fromObject?.place, { source: "rules.rules[0]", line: 0, column: 0 });
  assert.equal(readRules([]), []);
});

test("limit requests", async () => {
  const one = { actor: "all", unit: "day", rpu: 1, algo: "window" };
  for (const rules of [{ url: "/", rules: [one] }, [{ url: "/", rules: [one] }]]) {
    const gateway = await createGateway({ rules });
    assert.is((await gateway.check(request("/"))).allowed, true);
    assert.is((await gateway.check(request("/"))).allowed, false);
    await gateway.close();
  }
});

test("may name the actors and algorithms of their gateway", async () => {
  const rules = [{ url: "/", rules: [{ actor: "tenant", unit: "minute", rpu: 1 }] }];
  const gateway = await createGateway({ rules, actors: { tenant: () => "t" } });
  assert.is(gateway.rules[0]?.actor, "tenant");
  await gateway.close();
});

const problems = (rules: unknown): readonly string[] => {
  try {
    readRules(rules as UrlRules);
  } catch (error) {
    assert.instance(error, RulesError);
    return (error as RulesError).message.split("\n");
  }
  return [];
};

test("report what is wrong by its path", () => {
  const wrong = [
    api,
    { url: "api", rules: [{ actor: "account", unit: "minutes", rpu: -1, rpm: 5 }, { rpu: 1 }] },
    { url: "/", rules: [] },
    5,
  ];
  const found = problems(wrong);
  assert.ok(found.some((line) => /^rules\[1\]\.url: found "api", allowed: a path/.test(line)));
  assert.ok(
    found.some((line) => /^rules\[1\]\.rules\[0\]\.unit: found "minutes", allowed: /.test(line)),
  );
  assert.ok(
    found.includes(
      "rules[1].rules[0].rpu: found -1, allowed: requests per unit, a number, 0 or more: 0 refuses all",
    ),
  );
  assert.ok(
    found.some((line) => /^rules\[1\]\.rules\[0\]\.rpm: found "rpm", allowed: /.test(line)),
  );
  assert.ok(found.some((line) => /^rules\[1\]\.rules\[1\]: actor: found nothing/.test(line)));
  assert.ok(found.some((line) => /^rules\[2\]\.rules: found an array, allowed: /.test(line)));
  assert.ok(found.some((line) => /^rules\[3\]: found 5, allowed: a map of url, exact/.test(line)));
});

test("report a second name, numbers that cannot work, and values that no text has", () => {
  const twice = { ...api, rules: [...api.rules, ...api.rules] };
  assert.match(
    problems(twice)[0] ?? "",
    /^rules\.rules\[1\]: found a second rule ".*", the first is rules\.rules\[0\]: give one/,
  );
  const numbers = { actor: "all", unit: "minute", rpu: 1, algo: "window", burst: 5 };
  assert.match(
    problems([{ url: "/", rules: [numbers] }])[0] ?? "",
    /^rules\[0\]\.rules\[0\]: found burst, which the algorithm "window" does not know/,
  );
  for (const rpu of [Number.NaN, () => 5, 5n, new Date(0), Promise.resolve(5)]) {
    const [line] = problems([{ url: "/", rules: [{ ...numbers, rpu }] }]);
    assert.match(line ?? "", /^rules\[0\]\.rules\[0\]\.rpu: found /);
  }
});

test("that contain themselves, or too much, are refused", () => {
  const circle: { with?: unknown } = {};
  circle.with = circle;
  assert.equal(problems(circle), ["rules: found more than 32 levels in one another"]);
  assert.equal(problems(Array(400_001).fill(0)), ["rules: found more than 400000 parts"]);
});

test("with undefined properties are those without them", () => {
  const [rule] = readRules({
    url: "/",
    rules: [{ actor: "all", unit: "minute", rpu: 1, burst: undefined, methods: undefined }],
  });
  assert.is(rule?.methods, undefined);
});

test("that are no rules at all are refused when the gateway is created", async () => {
  for (const rules of [5, "rules", [5], [api, { load: async () => "" }], undefined]) {
    let received: unknown;
    await createGateway({ rules: rules as never }).catch((error) => {
      received = error;
    });
    assert.match(
      String(received),
      /rules must be a source, sources, plain objects, or the result of/,
    );
  }
  const received = await createGateway({ rules: [{ url: "x", rules: [] }] }).catch(String);
  assert.match(String(received), /rules\[0\]\.url: found "x", allowed: a path/);
});

test.run();
