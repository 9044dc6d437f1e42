import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type ConnectionRule,
  type RateRule,
  type Rule,
  RulesError,
  readRules,
  type UrlRules,
} from "../../src/index.ts";

const test = suite("rules for connections and bytes");

const read = (rule: string) => readRules(`{ url: /films, rules: [${rule}] }`)[0] as Rule;

function mistake(rule: string): string {
  try {
    read(rule);
  } catch (error) {
    if (error instanceof RulesError) return error.message;
  }
  return "";
}

test("a rule for connections", () => {
  const plain = read("{ actor: device, connections: 10 }") as ConnectionRule;
  assert.is(plain.quotaUnit, "concurrent-requests");
  assert.equal(
    [plain.name, plain.connections, plain.scope, plain.mode, plain.maxAgeMs],
    ["/films device connections", 10, "local", "enforce", undefined],
  );
  const full = read(
    "{ name: n, actor: { header: X-Tenant }, connections: 1, maxAge: 15m, scope: global, mode: shadow, methods: [GET], overrides: { gold: { connections: 50 } }, exempt: [me], whenActorMissing: skip }",
  ) as ConnectionRule;
  assert.equal(
    [full.name, full.actor, full.connections, full.maxAgeMs, full.scope, full.mode],
    ["n", "header:X-Tenant", 1, 900_000, "global", "shadow"],
  );
  assert.equal(
    [full.methods, full.overrides, full.exempt, full.whenActorMissing],
    [["GET"], [{ value: "gold", connections: 50 }], ["me"], "skip"],
  );
});

test("a rule for the bytes of responses", () => {
  const plain = read("{ bytesPerSecond: 500k }") as RateRule;
  assert.equal(
    [plain.quotaUnit, plain.name, plain.actor, plain.bytesPerSecond, plain.afterBytes],
    ["content-bytes", "/films bytes", undefined, 500 * 1024, 0],
  );
  const full = read(
    "{ actor: account, bytesPerSecond: 1m, afterBytes: 1.5G, methods: [GET], overrides: { gold: { bytesPerSecond: 2048 }, slow: { afterBytes: 0 } } }",
  ) as RateRule;
  const mega = 2 ** 20;
  assert.equal(
    [full.name, full.bytesPerSecond, full.afterBytes, full.overrides],
    [
      "/films GET account bytes",
      mega,
      1536 * mega,
      [
        { value: "gold", bytesPerSecond: 2048, afterBytes: 1536 * mega },
        { value: "slow", bytesPerSecond: mega, afterBytes: 0 },
      ],
    ],
  );
});

test("the same as objects, with the path of a mistake", () => {
  const objects: UrlRules = {
    url: "/films",
    rules: [
      { actor: "device", connections: 10 },
      { bytesPerSecond: "500k", afterBytes: 1024 },
      { actor: "device", unit: "second", rpu: 5 },
    ],
  };
  assert.equal(
    readRules(objects).map(({ name, place }) => [name, place.source]),
    [
      ["/films device connections", "rules.rules[0]"],
      ["/films bytes", "rules.rules[1]"],
      ["/films device per second token bucket", "rules.rules[2]"],
    ],
  );
  const wrong = { url: "/", rules: [{ actor: "device", connections: 1.5 }] };
  assert.throws(
    () => readRules(wrong),
    /rules\.rules\[0\]\.connections: found 1\.5, allowed: how many requests at once, a whole number, 1 or more/,
  );
});

test("mistakes are named with their place", () => {
  const rows: readonly (readonly [string, RegExp])[] = [
    [
      "{ actor: device, connections: 0 }",
      /connections: found 0, allowed: how many requests at onc/,
    ],
    ["{ actor: device, connections: x }", /connections: found "x", allowed: how many/],
    ["{ connections: 5 }", /rules:1:\d+: rules\.0\.actor: found nothing, allowed: all, account/],
    [
      "{ actor: device, connections: 5, rpu: 1 }",
      /found "rpu", allowed: name, .*connections, maxAg/,
    ],
    ["{ actor: device, connections: 5, bytesPerSecond: 1 }", /found "bytesPerSecond", allowed/],
    [
      "{ actor: device, connections: 5, maxAge: soon }",
      /maxAge: found "soon", allowed: a duration/,
    ],
    [
      "{ actor: device, connection: 5 }",
      /found "connection", .*; or, in rules of other kinds, conn/,
    ],
    [
      "{ actor: device, connections: 5, overrides: { a: 1 } }",
      /overrides\.a: found 1, allowed: a map/,
    ],
    ["{ bytesPerSecond: 0 }", /bytesPerSecond: found 0, allowed: bytes per second: a number above/],
    [`{ bytesPerSecond: ${"9".repeat(400)}k }`, /bytesPerSecond: found "9/],
    ["{ bytesPerSecond: 0k }", /bytesPerSecond: found "0k"/],
    ["{ bytesPerSecond: 5 kB }", /bytesPerSecond: found "5 kB", .*a text such as 500k or 1m/],
    ["{ bytesPerSecond: .inf }", /bytesPerSecond: found/],
    ["{ bytesPerSecond: 5, afterBytes: -1 }", /afterBytes: found -1, allowed: .* 0 or more/],
    ["{ afterBytes: 5 }", /bytesPerSecond: found nothing, allowed: bytes per second/],
    ["{ bytesPerSecond: 5, mode: shadow }", /found "mode", allowed: name, .*bytesPerSecond, after/],
    ["{ bytesPerSecond: 5, exempt: [a] }", /found exempt, which needs an actor/],
    ["{ bytesPerSecond: 5, overrides: { a: {} } }", /found overrides, which needs an actor/],
    [
      "{ bytesPerSecond: 5, whenActorMissing: skip }",
      /found whenActorMissing, which needs an actor/,
    ],
    ["5", /rules\.0: found 5, allowed: a map of name/],
    ["{ bytesPerSecond: 5 }, { bytesPerSecond: 6 }", /found a second rule "\/films bytes"/],
  ];
  for (const [rule, message] of rows) assert.match(mistake(rule), message, rule);
});

test.run();
