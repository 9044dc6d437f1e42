import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../test/support/redis/server.ts";
import { suite } from "../../test/support/suite.ts";
import { createGateway } from "../src/index.ts";
import { inFlight, open, type Rules } from "./support/in-flight.ts";

const test = suite("rules for connections, on Redis");

test("a global rule counts the requests of all instances, and closes what it opened", async () => {
  const redis = new Redis(await freshUrl());
  try {
    const rules: Rules = [
      { actor: "all", connections: 100, scope: "global", name: "whole" },
      { actor: "device", connections: 2, scope: "global", name: "conn" },
      { actor: "all", unit: "hour", rpu: 3, name: "rate" },
    ];
    const [one, two] = await Promise.all([open(rules, { redis }), open(rules, { redis })]);
    const [first, second] = [inFlight(), inFlight()];
    assert.ok((await one.check(first.request)).allowed);
    assert.is((await two.peek(inFlight().request)).outcomes[0]?.decision.remaining, 1);
    assert.ok((await two.check(second.request)).allowed);
    const refused = await one.check(inFlight().request);
    assert.equal(
      [refused.allowed, refused.retryMs, refused.outcomes.map(({ rule }) => rule.name)],
      [false, 1000, ["conn"]],
    );
    assert.not.ok((await one.peek(inFlight().request)).allowed);
    assert.ok((await one.check(inFlight({ remoteAddress: "192.0.2.9" }).request)).allowed);
    second.end();
    const isFree = async () => (await one.peek(inFlight().request)).outcomes[0]?.allowed === true;
    for (let i = 0; i < 100 && !(await isFree()); i++) await new Promise((go) => setTimeout(go, 5));
    assert.ok((await one.check(inFlight().request)).allowed);
    await Promise.all([one.close(), two.close()]);
    const late = await Promise.resolve(one.check(inFlight().request)).catch(
      (error: Error) => error.name,
    );
    assert.is(late, "LimiterClosedError");
  } finally {
    redis.disconnect();
  }
});

test("a rule that a reload makes global counts with the other instances from then on", async () => {
  const redis = new Redis(await freshUrl());
  try {
    const text = { scope: "local", changed: () => {} };
    const reloaded = await createGateway({
      redis,
      rules: {
        name: "text",
        load: async () =>
          `{ url: /, rules: [{ actor: all, connections: 1, scope: ${text.scope}, name: conn }] }`,
        watch: (change: () => void) => {
          text.changed = change;
          return () => {};
        },
      },
    });
    text.scope = "global";
    text.changed();
    for (let i = 0; i < 5; i++) await new Promise(setImmediate);
    const other = await open([{ actor: "all", connections: 1, scope: "global", name: "conn" }], {
      redis,
    });
    assert.ok((await reloaded.check(inFlight().request)).allowed);
    assert.not.ok((await other.check(inFlight().request)).allowed);
    await Promise.all([reloaded.close(), other.close()]);
  } finally {
    redis.disconnect();
  }
});

test("while Redis is away each instance gives its share, or rejects; a shadow rule says nothing", async () => {
  const redis = new Redis(await freshUrl());
  redis.on("error", () => {});
  redis.disconnect();
  const options = { redis, timeoutMs: 50 };
  const rule = { actor: "all", connections: 1, scope: "global" } as const;
  const local = await open([rule], { ...options, instances: 1 });
  assert.ok((await local.check(inFlight().request)).allowed);
  assert.not.ok((await local.check(inFlight().request)).allowed);
  const strict = await open([{ actor: "all", connections: 1, name: "near" }, rule], {
    ...options,
    whenUnavailable: "throw",
  });
  for (let i = 0; i < 2; i++) {
    const failed = await Promise.resolve(strict.check(inFlight().request)).catch(
      (error: Error) => error.name,
    );
    assert.is(failed, "StoreUnavailableError", "the place of the local rule is free again");
  }
  const shadow = await open([{ ...rule, mode: "shadow" }], {
    ...options,
    whenUnavailable: "throw",
  });
  const { allowed, outcomes } = await shadow.check(inFlight().request);
  assert.equal([allowed, outcomes.length], [true, 0]);
  await Promise.all([local.close(), strict.close(), shadow.close()]);
});

test.run();
