import { Limiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  addressKey,
  isAddressOrRange,
  policiesOfRule,
  type RequestRule,
  readRules,
  segmentsOf,
} from "../../src/rules/index.ts";

const test = suite("what tools ask about rules");

const requestRule = (fields: string) =>
  readRules(`{ url: /, rules: [{ actor: device, ${fields} }] }`)[0] as RequestRule;

test("policiesOfRule: the rule's own first, then those of its overrides", () => {
  const rule = requestRule(
    "unit: second, rpu: 5, burst: 7, overrides: { none: { rpu: 0 }, more: { rpu: 9, burst: 20 } }",
  );
  const found = policiesOfRule(rule).map(({ numbers, policy, isOnCalendar }) => {
    const limit = policy && Limiter.create(policy).peek().limit;
    return [numbers.rpu, limit, isOnCalendar];
  });
  assert.equal(found, [
    [5, 7, false],
    [0, undefined, false],
    [9, 20, false],
  ]);
});

test("policiesOfRule: windows of a calendar are marked, also one without an end", () => {
  const isOnCalendar = (fields: string) =>
    policiesOfRule(requestRule(`rpu: 5, algo: W, ${fields}`)).map((each) => each.isOnCalendar);
  assert.equal(isOnCalendar("unit: month"), [true]);
  assert.equal(isOnCalendar("unit: ever"), [true]);
  assert.equal(isOnCalendar("unit: day"), [false]);
});

test("policiesOfRule: an algorithm of an application is refused with those that are known", () => {
  const rule = { ...requestRule("unit: second, rpu: 5"), algo: "toString" };
  assert.throws(() => policiesOfRule(rule), /rule\.algo must be one of token bucket, .*"toString"/);
});

test("segmentsOf: paths with equal segments apply to the same requests", () => {
  assert.equal(segmentsOf("/Users/:id/"), ["users", undefined]);
  assert.equal(segmentsOf("/users/*"), segmentsOf("/Users/{id}"));
  assert.equal(segmentsOf("/"), []);
});

test("addressKey and isAddressOrRange: addresses, networks, and what is neither", () => {
  assert.is(addressKey("[2001:DB8::1]:80"), "2001:db8:0:0::/56");
  assert.is(addressKey("2001:db8::1", 128), "2001:db8:0:0:0:0:0:1/128");
  assert.is(addressKey("web-1"), undefined);
  const texts = ["192.0.2.1", "192.0.2.0/24", "2001:db8::/32", "192.0.2.0/33", "web-1"];
  assert.equal(texts.map(isAddressOrRange), [true, true, true, false, false]);
});

test.run();
