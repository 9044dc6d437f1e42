import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import {
  type Costs,
  createGateway,
  fromHeader,
  type Gateway,
  type GatewayOptions,
  type RequestRule,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("settlement");

const MINUTE = 60_000;

async function open(fields: string, options: Partial<GatewayOptions> = {}) {
  const clock = new FakeClock();
  const costs = Object.keys(options.costs ?? {});
  const text = `{ url: /, rules: [{ actor: device, unit: hour, rpu: 3, algo: W, ${fields} }] }`;
  const gateway = await createGateway({ rules: readRules(text, { costs }), clock, ...options });
  return { clock, gateway };
}

/** Sends a request; `answer` ends it with a status. */
async function send(gateway: Gateway, method = "GET", headers: Record<string, string> = {}) {
  let answer: (status?: number) => void = () => {};
  const verdict: Verdict = await gateway.check(
    request("/", {
      method,
      headers,
      onAnswered: (closed) => {
        answer = closed;
      },
    }),
  );
  return { ...verdict, answer: (status?: number) => answer(status) };
}

async function sendAll(gateway: Gateway, statuses: readonly (number | undefined)[]) {
  const allowed: boolean[] = [];
  for (const status of statuses) {
    const sent = await send(gateway);
    if (sent.allowed) sent.answer(status);
    allowed.push(sent.allowed);
  }
  return allowed;
}

test("count: failures keeps what failed, and gives back what succeeded", async () => {
  const { clock, gateway } = await open("count: failures");
  await clock.advance(600 * MINUTE);
  const statuses = [200, 204, 302, 399, 200, 401, 500, 200, 400, 200];
  const allowed = statuses.map((_, i) => i < 9);
  assert.equal(await sendAll(gateway, statuses), allowed);
});

test("count: successes keeps what succeeded", async () => {
  const { gateway } = await open("count: successes");
  const statuses = [400, 500, 200, 404, 201, 302, 200];
  assert.equal(await sendAll(gateway, statuses), [true, true, true, true, true, true, false]);
});

test("a request without an answer stays counted, whatever is counted", async () => {
  for (const count of ["failures", "successes"]) {
    const { gateway } = await open(`count: ${count}`);
    const gone = [undefined, undefined, undefined, undefined];
    assert.equal(await sendAll(gateway, gone), [true, true, true, false], count);
  }
});

test("requests at one time cannot fail more often than the limit", async () => {
  const { gateway } = await open("count: failures");
  const sent = await Promise.all(Array.from({ length: 10 }, () => send(gateway)));
  const passed = sent.filter(({ allowed }) => allowed);
  assert.is(passed.length, 3);
  for (const { answer } of passed) answer(401);
  assert.equal(await sendAll(gateway, [200]), [false]);
});

test("permits are given back to the window from which they were taken", async () => {
  const { clock, gateway } = await open("count: failures");
  const early = await send(gateway);
  await clock.advance(60 * MINUTE);
  assert.equal(await sendAll(gateway, [401, 401, 401]), [true, true, true]);
  early.answer(200);
  assert.equal(await sendAll(gateway, [401]), [false]);
});

test("permits of a trial or a month are given back whenever the answer comes", async () => {
  const text = `{ url: /, rules: [
    { actor: all, unit: ever, rpu: 1, count: failures, name: trial },
    { actor: all, unit: month, rpu: 1, algo: W, count: failures, name: month } ] }`;
  const clock = new FakeClock();
  const gateway = await createGateway({ rules: readRules(text), clock });
  for (let i = 0; i < 3; i++) {
    const sent = await send(gateway);
    assert.ok(sent.allowed);
    await clock.advance(MINUTE);
    sent.answer(200);
  }
});

test("a server that does not report the end of a request counts all of them", async () => {
  const { gateway } = await open("count: failures");
  const allowed = [];
  for (let i = 0; i < 4; i++) allowed.push((await gateway.check(request("/"))).allowed);
  assert.equal(allowed, [true, true, true, false]);
});

test("block: after the limit is used up, the actor is refused for so long, and then starts anew", async () => {
  const { clock, gateway } = await open("count: failures, block: 15m");
  assert.equal(await sendAll(gateway, [401, 401, 401]), [true, true, true]);
  const refused = await send(gateway);
  assert.equal([refused.allowed, refused.retryMs], [false, 15 * MINUTE]);
  assert.is(refused.outcomes[0]?.decision.waitMs, 15 * MINUTE);
  assert.is((await send(gateway)).outcomes[0]?.decision.allowed, false);
  await clock.advance(5 * MINUTE);
  // a try during the block does not extend it
  const again = await send(gateway);
  assert.equal([again.allowed, again.retryMs], [false, 10 * MINUTE]);
  await clock.advance(10 * MINUTE - 1);
  assert.not.ok((await send(gateway)).allowed);
  await clock.advance(1);
  assert.equal(await sendAll(gateway, [401, 401, 401, 401]), [true, true, true, false]);
});

test("block: each further block is longer, at most the longest; after a quiet time the first length counts", async () => {
  const { clock, gateway } = await open("block: { for: 15m, times: 3, most: 1h }");
  const blocked = async () => {
    while ((await send(gateway)).allowed);
    const { retryMs } = await send(gateway);
    assert.not.ok((await send(gateway)).allowed);
    return retryMs;
  };
  const lengths = [];
  for (let i = 0; i < 12; i++) {
    const ms = await blocked();
    lengths.push(ms / MINUTE);
    await clock.advance(ms - 1);
    assert.not.ok((await send(gateway)).allowed, `block ${i} has not ended`);
    await clock.advance(1);
  }
  assert.equal(lengths, [15, 45, ...Array.from({ length: 10 }, () => 60)]);
  await clock.advance(2 * 60 * MINUTE);
  assert.is(await blocked(), 15 * MINUTE);
});

test("block: requests that are refused together begin one block, and reset begins anew", async () => {
  const { clock, gateway } = await open("name: r, block: { for: 10m, most: 1d }");
  const first = await Promise.all(Array.from({ length: 9 }, () => send(gateway)));
  assert.equal(first.filter(({ allowed }) => allowed).length, 3);
  assert.equal(
    first.filter(({ allowed }) => !allowed).map(({ retryMs }) => retryMs),
    Array.from({ length: 6 }, () => 10 * MINUTE),
  );
  await clock.advance(10 * MINUTE);
  assert.equal(await sendAll(gateway, [200, 200, 200, 200]), [true, true, true, false]);
  assert.is((await send(gateway)).retryMs, 20 * MINUTE);
  await gateway.reset({ rule: "r", actor: "192.0.2.1" });
  assert.equal(await sendAll(gateway, [200, 200, 200, 200]), [true, true, true, false]);
  assert.is((await send(gateway)).retryMs, 10 * MINUTE);
});

test("count: { status } keeps those statuses, and gives back all others", async () => {
  const { gateway } = await open("count: { status: [401, 302] }");
  assert.equal(await sendAll(gateway, [200, 500, 401, 404, 302, 302, 200]), [
    true,
    true,
    true,
    true,
    true,
    true,
    false,
  ]);
  const wrong = (fields: string) => open(fields).then(() => "none", String);
  assert.match(await wrong("count: { status: [] }"), /count.status: .*a list of statuses/);
  assert.match(
    await wrong("count: { status: [99] }"),
    /a list of statuses, whole numbers from 100 to 599/,
  );
  assert.match(
    await wrong("count: some"),
    /count: found "some", allowed: all, failures, successes/,
  );
  assert.match(await wrong("block: { for: 1h, most: 1m }"), /a duration of at least `for`/);
  assert.match(await wrong("block: { for: 1h, most: 1d, times: 0.5 }"), /a number, 1 or more/);
  assert.match(await wrong("block: soon"), /block: found "soon", allowed: a duration such as/);
});

test("block: other actors pass", async () => {
  const { gateway } = await open("block: 1d");
  assert.equal(await sendAll(gateway, [200, 200, 200, 200]), [true, true, true, false]);
  const other = { ...request("/"), remoteAddress: "198.51.100.1" };
  assert.ok((await gateway.check(other)).allowed);
});

test("block: requests that are still being answered do not start a block, because they may succeed", async () => {
  const { gateway } = await open("count: failures, block: 15m");
  const sent = await Promise.all(Array.from({ length: 4 }, () => send(gateway)));
  assert.equal(
    sent.map(({ allowed }) => allowed),
    [true, true, true, false],
  );
  for (const { answer } of sent) answer(200);
  assert.equal(await sendAll(gateway, [200, 200, 401]), [true, true, true]);
  const heavy = await open("count: failures, block: 15m, cost: 3");
  const first = await send(heavy.gateway);
  assert.not.ok((await send(heavy.gateway)).allowed);
  first.answer(200);
  assert.ok((await send(heavy.gateway)).allowed, "all of its permits were expected back");
});

test("block: where no answers are reported, no permit is expected back", async () => {
  const { gateway } = await open("count: failures, block: 15m");
  const retries: number[] = [];
  for (let i = 0; i < 4; i++) retries.push((await gateway.check(request("/"))).retryMs);
  assert.equal(retries, [0, 0, 0, 15 * MINUTE]);
});

test("a refused request gives nothing back, because nothing was taken for it", async () => {
  const rules = readRules(`{ url: /, rules: [
    { actor: device, unit: day, rpu: 3, algo: W, count: failures, name: a },
    { actor: all, unit: day, rpu: 1, algo: W, name: b } ] }`);
  const gateway = await createGateway({ rules, clock: new FakeClock() });
  for (const [allowed, status] of [
    [true, 500],
    [false, 200],
  ] as const) {
    const sent = await send(gateway);
    assert.is(sent.allowed, allowed);
    sent.answer(status);
  }
  const { outcomes } = await gateway.peek(request("/"));
  assert.equal(
    outcomes.map(({ decision }) => decision.remaining),
    [2, 0],
  );
});

test("the answer is awaited only where a rule needs it", async () => {
  for (const [fields, awaited] of [
    ["block: 15m", 0],
    ["count: failures", 1],
  ] as const) {
    const { gateway } = await open(fields);
    const listeners: unknown[] = [];
    await gateway.check(request("/", { onAnswered: (closed) => void listeners.push(closed) }));
    assert.is(listeners.length, awaited, fields);
  }
});

test("block: a reload keeps it", async () => {
  const clock = new FakeClock();
  let rpu = 1;
  let changed = () => {};
  const text = () => `{ url: /, rules: [{ actor: all, unit: day, rpu: ${rpu}, block: 1h }] }`;
  const gateway = await createGateway({
    clock,
    rules: {
      name: "test",
      load: async () => text(),
      watch: (change) => {
        changed = change;
        return () => {};
      },
    },
  });
  await gateway.check(request("/"));
  assert.not.ok((await gateway.check(request("/"))).allowed);
  rpu = 50;
  changed();
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  assert.is((gateway.rules[0] as RequestRule).rpu, 50);
  assert.not.ok((await gateway.check(request("/"))).allowed);
  await clock.advance(60 * MINUTE);
  assert.ok((await gateway.check(request("/"))).allowed);
  await gateway.close();
});

test("rpu: 0 refuses every request, also of single values", async () => {
  const { gateway } = await open("overrides: { 192.0.2.1: { rpu: 0 } }");
  const refused = await send(gateway);
  assert.equal([refused.allowed, refused.retryMs], [false, Infinity]);
  assert.equal(
    refused.outcomes.map(({ decision }) => [decision.allowed, decision.limit]),
    [[false, 0]],
  );
  const other = { ...request("/"), remoteAddress: "198.51.100.1" };
  assert.ok((await gateway.check(other)).allowed);
});

test("rpu: 0 of a shadow rule refuses nothing", async () => {
  const rules = readRules(`{ url: /, rules: [
    { actor: all, unit: day, rpu: 0, mode: shadow, name: a },
    { actor: all, unit: day, rpu: 1, algo: W, name: b } ] }`);
  const gateway = await createGateway({ rules });
  const brief = ({ allowed, outcomes }: Verdict) => [
    allowed,
    ...outcomes.map((one) => one.allowed),
  ];
  assert.equal(brief(await gateway.check(request("/"))), [true, false, true]);
  assert.equal(brief(await gateway.check(request("/"))), [false, false, false]);
  const [only] = rules;
  const alone = await createGateway({ rules: only ? [only] : [] });
  assert.equal(brief(await alone.check(request("/"))), [true, false]);
});

test("a refusal by rpu: 0 charges no other rule", async () => {
  const rules = readRules(`{ url: /, rules: [
    { actor: device, unit: day, rpu: 9, overrides: { 192.0.2.1: { rpu: 0 } }, name: a },
    { actor: all, unit: day, rpu: 1, algo: W, name: b } ] }`);
  const gateway = await createGateway({ rules });
  assert.not.ok((await gateway.check(request("/"))).allowed);
  assert.ok((await gateway.check({ ...request("/"), remoteAddress: "198.51.100.1" })).allowed);
});

test("what was used stays used while rpu is 0", async () => {
  const clock = new FakeClock();
  let text = "";
  let changed = () => {};
  const write = async (rpu: number) => {
    text = `{ url: /, rules: [{ actor: all, unit: day, rpu: ${rpu}, algo: W }] }`;
    changed();
    await new Promise(setImmediate);
    await new Promise(setImmediate);
  };
  await write(3);
  const gateway = await createGateway({
    clock,
    rules: {
      name: "test",
      load: async () => text,
      watch: (change) => {
        changed = change;
        return () => {};
      },
    },
  });
  const ask = async () => (await gateway.check(request("/"))).outcomes[0]?.decision.remaining;
  assert.is(await ask(), 2);
  await write(0);
  assert.is(await ask(), 0);
  await write(3);
  assert.is(await ask(), 1);
  await gateway.close();
});

test("cost by method: others by default, HEAD as GET, and 0 where the rule does not apply", async () => {
  const { gateway } = await open("cost: { GET: 0.5, POST: 2, OPTIONS: 0, other: 1 }");
  const left = async (method: string) =>
    (await send(gateway, method)).outcomes[0]?.decision.remaining;
  assert.is(await left("GET"), 2.5);
  assert.is(await left("HEAD"), 2);
  assert.is(await left("OPTIONS"), undefined);
  assert.is(await left("PUT"), 1);
  const refused = await send(gateway, "POST");
  assert.equal([refused.allowed, refused.outcomes[0]?.decision.remaining], [false, 1]);
});

test("a cost that is no cost is refused", () => {
  const read = (cost: string) => () =>
    readRules(`{ url: /, rules: [{ actor: all, unit: day, rpu: 3, cost: ${cost} }] }`);
  const rows: [cost: string, says: RegExp][] = [
    ["{ GTE: 1 }", /cost\.GTE: found .*, allowed: a map from HTTP methods, or "other", to numbers/],
    ["{ GET: -1 }", /cost\.GET: found -1, allowed: permits that a request takes/],
    ["0", /allowed: a number above 0/],
    ["tokens", /found "tokens", allowed: a number above 0, or a map from methods to numbers$/],
    ["{ POST: 1, other: 0 }", /cost\.other: found 0, allowed: a number above 0: list methods/],
    ["{ POST: 4 }", /found cost 4, allowed: at most 3/],
  ];
  for (const [cost, says] of rows) assert.throws(read(cost), says, cost);
});

test("cost by a function of the application, also later", async () => {
  const costs: Costs = {
    size: ({ header }) => Number(header("size")),
    late: async ({ header }) => Number(header("size")),
  };
  for (const cost of ["size", "late"]) {
    const { gateway } = await open(`cost: ${cost}`, { costs });
    const left = async (size: string) => {
      const { allowed, retryMs, outcomes } = await send(gateway, "GET", { size });
      return [allowed, retryMs === Infinity, outcomes[0]?.decision.remaining];
    };
    assert.equal(await left("2"), [true, false, 1]);
    assert.equal(await left("0"), [true, false, undefined]);
    assert.equal(await left("2"), [false, false, 1]);
    // more than ever passes at once
    assert.equal(await left("4"), [false, true, 0]);
    assert.equal(await left("1"), [true, false, 0]);
  }
});

test("a function that fails costs one permit, and the error is reported", async () => {
  const errors: unknown[] = [];
  const costs: Costs = {
    bad: ({ method }) => {
      if (method === "PUT") throw new Error("no");
      return method === "GET" ? -1 : ("2" as unknown as number);
    },
  };
  const { gateway } = await open("cost: bad", { costs });
  for (const [i, method] of ["GET", "POST", "PUT"].entries()) {
    const { outcomes } = await gateway.check(request("/", { method }), (error) =>
      errors.push(error),
    );
    assert.is(outcomes[0]?.decision.remaining, 2 - i);
  }
  assert.equal(errors.map(String), [
    "RangeError: the result of costs.bad must be a finite number, 0 or more, got -1",
    'TypeError: the result of costs.bad must be a finite number, 0 or more, got "2"',
    "Error: no",
  ]);
});

test("a cost is settled after the answer", async () => {
  const costs: Costs = {
    tokens: {
      estimate: () => 2,
      settle: (_, status) => (status === 200 ? 1 : status === 500 ? 0 : 3),
    },
  };
  const { gateway } = await open("cost: tokens", { costs });
  const left = async () => (await gateway.peek(request("/"))).outcomes[0]?.decision.remaining;
  const one = await send(gateway);
  assert.is(await left(), 1);
  one.answer(200);
  assert.is(await left(), 2);
  const two = await send(gateway);
  two.answer(500);
  assert.is(await left(), 2);
  const three = await send(gateway);
  three.answer(201);
  assert.is(await left(), 0);
});

test("costs are checked", async () => {
  const rules = readRules("[]");
  for (const [costs, says] of [
    [{ a: 1 }, /costs\.a must be a function or \{ estimate, settle \}, got 1/],
    [{ a: { estimate: () => 1 } }, /costs\.a must be a function or/],
    [[], /costs must be an object, got an array/],
  ] as const) {
    try {
      await createGateway({ rules, costs: costs as unknown as Costs });
      assert.unreachable();
    } catch (error) {
      assert.match(String(error), says);
    }
  }
  const named = readRules("{ url: /, rules: [{ actor: all, unit: day, rpu: 1, cost: a }] }", {
    costs: ["a"],
  });
  try {
    await createGateway({ rules: named });
    assert.unreachable();
  } catch (error) {
    assert.match(String(error), /the gateway has no options\.costs\["a"\]/);
  }
});

test("actors with an argument: a header, a cookie, and kinds of the application", async () => {
  const text = `{ url: /, rules: [
    { actor: { header: X-Tenant }, unit: day, rpu: 9 },
    { actor: { cookie: session }, unit: day, rpu: 9 },
    { actor: { claim: org }, unit: day, rpu: 9 } ] }`;
  const actorKinds = {
    claim:
      (name: string) =>
      ({ raw }: { raw?: unknown }) =>
        (raw as Record<string, string>)[name],
  };
  const rules = readRules(text, { actorKinds: ["claim"] });
  assert.equal(
    rules.map(({ actor }) => actor),
    ["header:X-Tenant", "cookie:session", "claim:org"],
  );
  const gateway = await createGateway({ rules, actorKinds });
  const headers = { "x-tenant": "acme", cookie: "a=1; session=s7; session2=x" };
  const { outcomes } = await gateway.check(request("/", { headers, raw: { org: "o1" } }));
  assert.equal(
    outcomes.map(({ actor }) => actor),
    ["acme", "s7", "o1"],
  );
  for (const [actor, says] of [
    ["{ headr: x }", /found an object, allowed: a map with one of header, cookie/],
    ["{ header: x, cookie: y }", /allowed: a map with one of header, cookie/],
    ["{ header: 1 }", /allowed: a text as header/],
    ['{ header: "a b" }', /allowed: the name of a header field as header/],
    ["{}", /allowed: a map with one of header, cookie/],
    ["7", /allowed: all, account, device; or a map/],
  ] as const) {
    assert.throws(
      () => readRules(`{ url: /, rules: [{ actor: ${actor}, unit: day, rpu: 9 }] }`),
      says,
      actor,
    );
  }
  await assertRejects(createGateway({ rules }), /no options\.actors.*claim:org|claim:org/);
});

async function assertRejects(promise: Promise<unknown>, says: RegExp): Promise<void> {
  try {
    await promise;
  } catch (error) {
    assert.match(String(error), says);
    return;
  }
  assert.unreachable();
}

test("plans: a rule that applies only where its actor is present", async () => {
  const plan = (name: string) => fromHeader(name);
  const text = `{ url: /, rules: [
    { actor: pro, unit: day, rpu: 100, whenActorMissing: skip },
    { actor: free, unit: day, rpu: 10, whenActorMissing: skip },
    { actor: account, unit: day, rpu: 9, whenActorMissing: shared } ] }`;
  const actors = { pro: plan("pro"), free: plan("free"), account: plan("account") };
  const gateway = await createGateway({
    rules: readRules(text, { actors: Object.keys(actors) }),
    actors,
  });
  const limits = async (headers: Record<string, string>) =>
    (await gateway.check(request("/", { headers }))).outcomes.map(
      ({ rule, actor }) => `${rule.actor} ${actor}`,
    );
  assert.equal(await limits({ pro: "ann", account: "ann" }), ["pro ann", "account ann"]);
  assert.equal(await limits({ free: "bob" }), ["free bob", "account "]);
});

test.run();
