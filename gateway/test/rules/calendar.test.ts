import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, type RequestRule, readRules } from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("calendar");

/** A clock that begins at a date. */
class DatedClock extends FakeClock {
  readonly epochMs: number;

  constructor(date: string) {
    super();
    this.epochMs = Date.parse(date) - this.now();
  }
}

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

async function open(fields: string, date: string) {
  const clock = new DatedClock(date);
  const rules = readRules(`{ url: /, rules: [{ actor: all, rpu: 2, algo: W, ${fields} }] }`);
  const gateway = await createGateway({ rules, clock });
  const ask = async () => {
    const { allowed, retryMs, outcomes } = await gateway.check(request("/"));
    const { resetMs = 0, remaining, policies = {}, policy = "" } = outcomes[0]?.decision ?? {};
    return { allowed, retryMs, resetMs, remaining, windowMs: policies[policy]?.windowMs };
  };
  return { clock, gateway, ask };
}

test("a month is as long as the calendar says", async () => {
  const { clock, ask } = await open("unit: month", "2024-02-28T12:00:00Z");
  await ask();
  const left = 1.5 * DAY;
  assert.equal(await ask(), {
    ...{ allowed: true, retryMs: 0, resetMs: left, remaining: 0, windowMs: 29 * DAY },
  });
  assert.equal(await ask(), {
    ...{ allowed: false, retryMs: left, resetMs: left, remaining: 0, windowMs: 29 * DAY },
  });
  await clock.advance(left - 1);
  assert.not.ok((await ask()).allowed);
  await clock.advance(1);
  const fresh = await ask();
  assert.equal([fresh.allowed, fresh.remaining, fresh.windowMs], [true, 1, 31 * DAY]);
});

test("a day begins at midnight of its time zone, also where clocks change", async () => {
  const zone = "unit: day, timeZone: Europe/Berlin";
  const rows: [date: string, leftHours: number, dayHours: number][] = [
    ["2024-01-15T22:00:00Z", 1, 24],
    ["2024-07-15T21:00:00Z", 1, 24],
    ["2024-03-31T00:00:00Z", 22, 23],
    ["2024-10-27T00:00:00Z", 23, 25],
  ];
  for (const [date, left, day] of rows) {
    const { ask } = await open(zone, date);
    const { resetMs, windowMs } = await ask();
    assert.equal([resetMs / HOUR, (windowMs ?? 0) / HOUR], [left, day], date);
  }
  const { ask } = await open("unit: day, timeZone: Asia/Kathmandu", "2024-01-15T18:00:00Z");
  assert.is((await ask()).resetMs, HOUR / 4);
});

test("a trial quota is never refilled", async () => {
  const { clock, ask } = await open("unit: ever", "2024-01-01T00:00:00Z");
  assert.ok((await ask()).allowed);
  await clock.advance(400 * DAY);
  assert.ok((await ask()).allowed);
  await clock.advance(4000 * DAY);
  const refused = await ask();
  assert.equal(refused, {
    allowed: false,
    retryMs: Infinity,
    resetMs: Infinity,
    remaining: 0,
    windowMs: 0,
  });
});

test("a trial needs no algorithm, and knows only the window", () => {
  const read = (fields: string) =>
    readRules(
      `{ url: /, rules: [{ actor: all, rpu: 5, unit: ever, ${fields} }] }`,
    )[0] as RequestRule;
  assert.is(read("").algo, "window");
  assert.throws(() => read("algo: TB"), /found unit "ever", which needs algo: window/);
  assert.throws(() => read("units: 2"), /found units 2, allowed: 1, because windows follow/);
});

test("windows that begin with a request, and parts of a sliding window", async () => {
  const { clock, ask } = await open("unit: minute, align: first", "2024-01-01T00:00:59Z");
  assert.is((await ask()).resetMs, 60_000);
  await ask();
  await clock.advance(59_000);
  assert.not.ok((await ask()).allowed);
  await clock.advance(1000);
  assert.ok((await ask()).allowed);
  const grid = await open("unit: minute, align: epoch", "2024-01-01T00:00:59Z");
  assert.is((await grid.ask()).resetMs, 1000);
});

test("fields that contradict one another are refused", () => {
  const says = (fields: string) => () =>
    readRules(`{ url: /, rules: [{ actor: all, rpu: 5, ${fields} }] }`);
  const rows: [fields: string, says: RegExp][] = [
    ["unit: hour, algo: W, timeZone: UTC", /found timeZone with unit "hour", allowed: day, month/],
    ["unit: day, algo: W, timeZone: UTC, align: first", /found timeZone with align first/],
    ["unit: day, algo: W, timeZone: UTC, units: 2", /found units 2, allowed: 1/],
    [
      "unit: day, algo: W, timeZone: Mars/Base",
      /timeZone: found "Mars\/Base", allowed: a time zone/,
    ],
    [
      "unit: day, timeZone: UTC",
      /found timeZone, which the algorithm "token bucket" does not know/,
    ],
    ["unit: day, algo: TB, slack: 1", /found slack, which the algorithm "token bucket" does not/],
    ["unit: day, algo: W, buckets: 3", /found buckets, which the algorithm "window" does not know/],
    ["unit: minute, algo: SW, buckets: 0.5", /buckets must be a whole number/],
    ["unit: day, algo: SW, align: sideways", /align: found "sideways", allowed: epoch, first/],
  ];
  for (const [fields, message] of rows) assert.throws(says(fields), message, fields);
  const [months] = readRules("{ url: /, rules: [{ actor: all, rpu: 5, unit: month, units: 2 }] }");
  assert.is((months as RequestRule).periodMs, 2 * 2_629_746_000);
});

test("the slack and the buckets reach the policy", async () => {
  const clock = new FakeClock();
  const rules = readRules(`{ url: /, rules: [
    { actor: all, unit: second, rpu: 10, algo: LB, burst: 0, slack: 2, name: slack },
    { actor: all, unit: second, rpu: 100, algo: SW, buckets: 2, name: buckets } ] }`);
  const gateway = await createGateway({ rules, clock });
  // a new limiter has nothing to make up for
  assert.ok((await gateway.check(request("/"))).allowed);
  await clock.advance(1000);
  const passed = await Promise.all(Array.from({ length: 5 }, () => gateway.check(request("/"))));
  assert.is(passed.filter(({ allowed }) => allowed).length, 3);
  assert.is(
    passed[0]?.outcomes.find(({ rule }) => rule.name === "buckets")?.decision.resetMs,
    1000,
  );
});

test.run();
