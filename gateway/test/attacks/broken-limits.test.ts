import { fixedWindow, KeyedLimiter } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import {
  createGateway,
  fromCookie,
  fromHeader,
  type GatewayRequest,
  type HostLimitOptions,
  limitConnections,
  limitRequests,
  readRules,
  type Verdict,
} from "../../src/index.ts";
import { ask1, ask2 } from "../support/http/ask.ts";
import { request } from "../support/http/request.ts";
import { HOSTS, HTTP2_HOSTS, type Running } from "../support/http/servers.ts";

const test = suite("limits and keys that are broken");

const perDay = (limit: number) =>
  KeyedLimiter.create(fixedWindow({ limit, windowMs: 86_400_000, align: "first" }));

const decision = perDay(5).for("x").peek();
const never = new Promise<never>(() => {});

/** What an application may return as `limit` by mistake. */
const BROKEN: Readonly<Record<string, unknown>> = {
  "a text": "pro",
  "an object": {},
  "a symbol": Symbol("x"),
  "a negative number": -1,
  "not a number": Number.NaN,
  "a policy without an algorithm": { numbers: [1, 2] },
  "decide throws": { decide: () => JSON.parse("{") },
  "decide rejects": { decide: () => Promise.reject(new Error("tea")) },
  "decide rejects with nothing": { decide: () => Promise.reject() },
  "decide hangs": { decide: () => never },
  "decide returns nothing": { decide: () => undefined },
  "decide resolves to nothing": { decide: async () => null },
  "decide returns true": { decide: () => true },
  "decide returns no numbers": { decide: () => ({ allowed: true }) },
  "decide returns NaN": { decide: () => ({ ...decision, remaining: Number.NaN }) },
  "decide returns an unknown policy list": { decide: () => ({ ...decision, policies: undefined }) },
  // biome-ignore lint/suspicious/noThenProperty: it is what an application may return
  "decide returns a thenable": { decide: () => ({ then: () => {} }) },
  "for returns nothing": { for: () => undefined },
  "for throws": { for: () => JSON.parse("{") },
  "for returns a promise": { for: async () => perDay(5).for("x") },
  "decide is no function": { for: () => ({ decide: 5 }) },
};

for (const [name, limit] of Object.entries(BROKEN)) {
  test(`a request under a broken limit has the limiter's own limit: ${name}`, async () => {
    for (const more of [{}, { count: "failures" as const }, { maxWaitMs: 10 }]) {
      for (const isLater of [false, true]) {
        const errors: unknown[] = [];
        const options = {
          ...more,
          limit: () => (isLater ? Promise.resolve(limit) : limit),
          timeoutMs: 20,
          onError: (error: unknown) => {
            errors.push(error);
            return "allow" as const;
          },
        } as HostLimitOptions;
        const server = (await HOSTS["node:http"]?.({ limiter: perDay(2), options })) as Running;
        const statuses: number[] = [];
        for (let i = 0; i < 4; i++) statuses.push((await ask1(server, "/401")).status);
        const where = `${JSON.stringify(more)}, ${isLater}`;
        assert.equal(statuses, [401, 401, 429, 429], where);
        assert.is(errors.length, 4, where);
        await server.close();
      }
    }
  });
}

test("without onError one warning reports a broken limit", async () => {
  const warned: string[] = [];
  const listen = (warning: Error) => void warned.push(warning.message);
  process.on("warning", listen);
  const limit = () => ({ decide: () => undefined }) as never;
  const filter = limitRequests(perDay(2), { limit });
  for (let i = 0; i < 5; i++) await filter.check(request("/"));
  await new Promise(setImmediate);
  process.off("warning", listen);
  assert.is(warned.length, 1);
  const words =
    /^what limit returned failed, so the request has the limiter's own limit: TypeError: decide\(permits\) of a limiter must return a decision, \{ allowed, waitMs, limit, … \}, got undefined/;
  assert.match(warned[0] ?? "", words);
});

test("a client that leaves while it waits under a limit of its own is no failure of that limit", async () => {
  const clock = new FakeClock();
  const policy = fixedWindow({ limit: 1, windowMs: 1000, align: "first" });
  const own = KeyedLimiter.create(policy, { clock });
  const given = KeyedLimiter.create(policy, { clock });
  const reported: unknown[] = [];
  const filter = limitRequests(own, { limit: () => given, maxWaitMs: 5000, clock });
  const report = (error: unknown) => void reported.push(error);
  const leaving = new AbortController();
  await filter.check(request("/"), report);
  const waits = filter.check(request("/", { signal: leaving.signal }), report);
  leaving.abort(new Error("gone"));
  const said = await Promise.resolve(waits).catch((error: Error) => error.message);
  assert.is(said, "gone");
  assert.equal(reported, []);
  assert.is(own.size, 0);
});

// -- keys --

const LONG = "x".repeat(2 ** 20);

test("a key of a megabyte is not hashed: the request counts by its address, and the error says so", async () => {
  for (const [host, ask] of [
    [HOSTS["node:http"], ask1],
    [HTTP2_HOSTS["node:http2"], ask2],
  ] as const) {
    const errors: string[] = [];
    const options = {
      key: (_: unknown, asked: GatewayRequest) => `${asked.header("x-user")}${LONG}`,
      onError: (error: unknown) => {
        errors.push(String(error));
        return "allow" as const;
      },
    };
    const server = (await host?.({ limiter: perDay(2), options })) as Running;
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) {
      statuses.push((await ask(server, "/hello", { headers: { "x-user": `${i}` } })).status);
    }
    assert.equal(statuses, [200, 200, 429]);
    const words =
      "RangeError: key must return at most 16384 characters, got 1048577: return an id or a hash of it";
    assert.equal(errors, [words, words, words]);
    await server.close();
  }
});

test("no actor has a value of a megabyte, in this process or on Redis, for requests or connections", async () => {
  const actors = {
    own: ({ header }: GatewayRequest) => header("x-user"),
    header: fromHeader("x-user"),
    cookie: fromCookie("user"),
  };
  const asked = (i: number, length: number) => {
    const value = `${i}`.padEnd(length, "x");
    const headers = { "x-user": value, cookie: `user=${value}` };
    return request("/", { headers, onClose: () => {} });
  };
  for (const [name, actor] of Object.entries(actors)) {
    const rules = readRules("{ url: /, rules: [{ actor: account, unit: day, rpu: 2, algo: W }] }");
    const gateway = await createGateway({ rules, actors: { account: actor } });
    const errors: string[] = [];
    const report = (error: unknown) => void errors.push(String(error));
    const passes = (i: number, length: number) =>
      (gateway.check(asked(i, length), report) as Verdict).allowed;
    // each has a limit of its own, up to the bound
    assert.equal(
      [1, 2, 3].map((i) => passes(i, 16_384)),
      [true, true, true],
      name,
    );
    assert.equal(errors, []);
    // the others count by their address
    assert.equal(
      [1, 2, 3].map((i) => passes(i, 2 ** 20)),
      [true, true, false],
      name,
    );
    assert.match(errors[0] ?? "", /^RangeError: actors.account must return at most 16384 char/);
    const before = process.cpuUsage().user;
    const times = runs(200, 40);
    for (let i = 0; i < times; i++) passes(i, 2 ** 20);
    assert.ok(process.cpuUsage().user - before < 10_000 * times, name);
    await gateway.close();

    const places = limitConnections(2, { actor });
    const enters = (i: number) => places.check(asked(i, 2 ** 20), report) as Verdict;
    assert.equal(
      [1, 2, 3].map((i) => enters(i).allowed),
      [true, true, false],
      name,
    );
  }
});

test.run();
