import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { createGateway, type GatewayOptions, type UrlRules, type Verdict } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("exempt requests, and actors of several values");

const open = (rules: UrlRules["rules"], options: Partial<GatewayOptions> = {}) =>
  createGateway({ rules: { url: "/", rules }, ...options });

const from = (headers: Record<string, string>, remoteAddress = "192.0.2.1") =>
  request("/", { headers, remoteAddress });

test("a request for which `exempt` returns true passes all rules and is not counted", async () => {
  const gateway = await open([{ actor: "all", unit: "hour", rpu: 1, name: "r" }], {
    exempt: ({ header }) => header("x-probe") === "yes",
  });
  for (let i = 0; i < 3; i++) {
    const verdict = gateway.check(from({ "x-probe": "yes" })) as Verdict;
    assert.equal([verdict.allowed, verdict.outcomes.length], [true, 0]);
  }
  assert.is(gateway.stats.r?.passed, 0);
  assert.ok((gateway.check(from({})) as Verdict).allowed);
  assert.not((gateway.check(from({ "x-probe": "no" })) as Verdict).allowed);
  assert.is((gateway.peek(from({ "x-probe": "yes" })) as Verdict).outcomes.length, 0);
  await gateway.close();
});

test("if `exempt` fails, is late or returns something else, the rules decide, and the error is reported", async () => {
  const answers: (() => never | Promise<boolean>)[] = [
    () => {
      throw new Error("no database");
    },
    () => Promise.reject(new Error("no database")),
    () => "yes" as never,
  ];
  for (const exempt of answers) {
    const gateway = await open([{ actor: "all", unit: "hour", rpu: 1 }], { exempt });
    const errors: unknown[] = [];
    const report = (error: unknown) => void errors.push(error);
    const allowed = [];
    for (let i = 0; i < 2; i++) allowed.push((await gateway.check(from({}), report)).allowed);
    assert.equal([...allowed, errors.length], [true, false, 2]);
    await gateway.close();
  }
  const wrong = await open([], { exempt: true as never }).catch(String);
  assert.match(wrong as string, /exempt must be a function, got true/);
});

test("a list of actors counts by all of them together", async () => {
  const gateway = await open([
    { actor: ["device", { header: "x-user" }], unit: "hour", rpu: 1, name: "login" },
  ]);
  const passes = async (user: string, address?: string) =>
    (await gateway.check(from({ "x-user": user }, address))).allowed;
  assert.equal([await passes("ann"), await passes("ann")], [true, false]);
  assert.equal([await passes("bob"), await passes("ann", "192.0.2.2")], [true, true]);
  const { outcomes } = await gateway.check(from({ "x-user": "a & b" }));
  assert.is(outcomes[0]?.actor, "192.0.2.1 & a && b");
  assert.is(gateway.rules[0]?.actor, "device & header:x-user");
  await gateway.close();
});

test("without a value for one of them it counts by the device; no value passes for two", async () => {
  const gateway = await open([
    { actor: [{ header: "a" }, { header: "b" }], unit: "hour", rpu: 1, name: "both" },
  ]);
  const passes = async (headers: Record<string, string>) =>
    (await gateway.check(from(headers))).allowed;
  assert.equal([await passes({ a: "1" }), await passes({ b: "1" })], [true, false]);
  const values = [
    { a: "x", b: "y & z" },
    { a: "x & y", b: "z" },
    { a: "x &", b: "& z" },
    { a: "x", b: "& & z" },
    { a: "x && y", b: "z" },
  ];
  for (const each of values) assert.ok(await passes(each), JSON.stringify(each));
  for (const each of values) assert.not.ok(await passes(each), JSON.stringify(each));
  await gateway.close();
});

test("mistakes in a list of actors are named", async () => {
  const wrong = (actor: unknown) =>
    open([{ actor: actor as string, unit: "hour", rpu: 1 }]).then(() => "none", String);
  assert.match(await wrong(["device", "all"]), /a list without all/);
  assert.match(await wrong(["device", "nobody"]), /actor.1.*or a name that you register/);
  assert.match(await wrong(["device", { header: "not a name" }]), /the name of a header field/);
  assert.match(await wrong(["device"]), /two actors or more/);
  assert.match(await wrong({ cookie: "a & b" }), /a text as cookie, without " & "/);
});

test.run();
