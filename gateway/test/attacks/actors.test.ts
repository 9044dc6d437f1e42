/** Attacks on actors: requests that make one fail must not free them from any other rule. */
import { runInNewContext } from "node:vm";
import { parse } from "hono/utils/cookie";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Actor,
  createGateway,
  type GatewayOptions,
  type GatewayRequest,
  limitConnections,
  nodeGateway,
  readRules,
} from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("attacks: actors");

const RULES = `
url: /
rules:
  - { name: tenant, actor: tenant, unit: day, rpu: 100 }
  - { name: device, actor: device, unit: day, rpu: 2 }
`;

const open = (tenant: Actor, options: Partial<GatewayOptions> = {}) =>
  createGateway({
    rules: readRules(RULES, { actors: ["tenant"] }),
    actors: { tenant },
    clock: new FakeClock(),
    ...options,
  });

/** Returns a promise that is not an instance of this realm's Promise. */
const foreign = (outcome: string) => runInNewContext(`Promise.${outcome}`) as Promise<string>;

const failing: Record<string, Actor> = {
  "throws an error": () => {
    throw new Error("bad token");
  },
  "rejects with undefined": () => Promise.reject(),
  rejects: () => Promise.reject(new Error("bad token")),
  "returns an object": () => ({ id: "ann" }) as unknown as string,
  "returns a number": () => 5 as unknown as string,
  "returns 0": () => 0 as unknown as string,
  "returns false": () => false as unknown as string,
  "returns an array": () => ["ann"] as unknown as string,
  "returns a symbol": () => Symbol("ann") as unknown as string,
  "returns a promise of an object": async () => ({ id: "ann" }) as unknown as string,
  "returns a promise of another realm that rejects": () => foreign('reject(new Error("x"))'),
  "returns a promise of another realm of an object": () => foreign("resolve({})"),
};

for (const [what, actor] of Object.entries(failing)) {
  test(`an actor that ${what} is reported, and the other rules still decide`, async () => {
    const gateway = await open(actor);
    const reported: unknown[] = [];
    const asked = request("/");
    const verdicts = [];
    for (let i = 0; i < 4; i++) {
      verdicts.push(
        await gateway.check(asked, (error, about) => {
          assert.is(about, asked);
          reported.push(error);
        }),
      );
    }
    assert.equal(
      verdicts.map(({ allowed }) => allowed),
      [true, true, false, false],
    );
    assert.is(reported.length, 4);
    assert.equal(
      verdicts[0]?.outcomes.map(({ rule, actor }) => [rule.name, actor]),
      [
        ["tenant", "192.0.2.1"],
        ["device", "192.0.2.1"],
      ],
      "a failed actor counts as one without a value",
    );
  });
}

for (const [what, actor] of Object.entries(failing)) {
  test(`limitConnections: an actor that ${what} is reported, and its client still counts`, async () => {
    const checker = limitConnections(2, { actor });
    const reported: unknown[] = [];
    const enter = async (remoteAddress: string) => {
      const asked = { ...request("/", { remoteAddress }), onClose: () => {} };
      return (await checker.check(asked, (error) => reported.push(error))).allowed;
    };
    const seen = [];
    for (let i = 0; i < 4; i++) seen.push(await enter("192.0.2.1"));
    assert.equal(seen, [true, true, false, false]);
    assert.ok(await enter("192.0.2.2"), "other clients can still enter");
    assert.is(reported.length, 5);
  });
}

test("limitConnections: an actor that never settles has failed after actorTimeoutMs", async () => {
  const clock = new FakeClock();
  const actor = () => new Promise<string>(() => {});
  const checker = limitConnections(1, { actor, actorTimeoutMs: 300, clock });
  const reported: string[] = [];
  const asked = { ...request("/"), onClose: () => {} };
  const checked = Promise.all(
    [1, 2].map(() => checker.check(asked, (error) => reported.push((error as Error).name))),
  );
  await clock.advance(300);
  assert.equal(
    (await checked).map(({ allowed }) => allowed),
    [true, false],
  );
  assert.equal(reported, ["TimeoutError", "TimeoutError"]);
});

test("a promise of another realm is awaited", async () => {
  const gateway = await open(() => foreign('resolve("acme")'));
  const { outcomes } = await gateway.check(request("/"), () => assert.unreachable("reported"));
  assert.is(outcomes[0]?.actor, "acme");
});

test("an actor without a value has not failed", async () => {
  for (const value of [undefined, null, ""]) {
    const gateway = await open(() => value as undefined);
    await gateway.check(request("/"), () => assert.unreachable("reported"));
  }
});

test("an actor that never settles has failed after actorTimeoutMs", async () => {
  const clock = new FakeClock();
  const gateway = await open(() => new Promise(() => {}), { clock, actorTimeoutMs: 300 });
  const reported: unknown[] = [];
  let allowed: boolean | undefined;
  const checked = Promise.resolve(gateway.check(request("/"), (error) => reported.push(error)));
  void checked.then((verdict) => {
    allowed = verdict.allowed;
  });
  await clock.advance(299);
  assert.is(allowed, undefined);
  await clock.advance(1);
  await checked;
  assert.is(allowed, true);
  assert.is((reported[0] as Error).name, "TimeoutError");
});

test("an actor that answers in time leaves no timer behind", async () => {
  let timers = 0;
  const clock = {
    now: () => 0,
    wakeAt: () => {
      timers += 1;
      return {
        cancel: () => {
          timers -= 1;
        },
      };
    },
  };
  const gateway = await open(async () => "acme", { clock });
  assert.is((await gateway.check(request("/"))).outcomes[0]?.actor, "acme");
  assert.is(timers, 0);
});

test("an actor's timeout must be a number above 0", async () => {
  for (const actorTimeoutMs of [0, -1, Number.NaN, Infinity]) {
    try {
      await open(() => "a", { actorTimeoutMs });
      assert.unreachable();
    } catch (error) {
      assert.match(String(error), /actorTimeoutMs must be .*above 0/);
    }
  }
});

test("the device that fails counts with all others that fail", async () => {
  const rules = readRules("url: /\nrules: [{ actor: device, unit: day, rpu: 2 }]");
  const device: Actor = () => {
    throw new Error("no address");
  };
  const gateway = await createGateway({ rules, actors: { device }, clock: new FakeClock() });
  const seen = [];
  for (const remoteAddress of ["192.0.2.1", "192.0.2.2", "192.0.2.3"]) {
    seen.push((await gateway.check(request("/", { remoteAddress }), () => {})).allowed);
  }
  assert.equal(seen, [true, true, false]);
});

/** A request whose methods need their object, as those of the host adapters do. */
class StrictRequest implements GatewayRequest {
  readonly method = "GET";
  readonly url = "/";
  readonly remoteAddress = "192.0.2.1";
  readonly #headers: Record<string, string>;

  constructor(headers: Record<string, string>) {
    this.#headers = headers;
  }

  get raw(): unknown {
    return { headers: this.#headers };
  }

  header(name: string): string | undefined {
    return this.#headers[name];
  }
}

test("the request that an actor is given works when it is destructured", async () => {
  const actors: Actor[] = [
    ({ header }) => header("x-tenant"),
    ({ raw }) => (raw as { headers: Record<string, string> }).headers["x-tenant"],
    (asked) => asked.header("x-tenant"),
    async ({ header, method }) => `${method === "GET" ? header("x-tenant") : ""}`,
  ];
  for (const actor of actors) {
    const gateway = await open(actor);
    for (const strict of [
      new StrictRequest({ "x-tenant": "acme" }),
      Object.freeze(request("/", { headers: { "x-tenant": "acme" } })),
    ]) {
      if (Object.isFrozen(strict) && String(actor).includes("raw")) continue;
      const verdict = await gateway.check(strict, (error) => assert.unreachable(String(error)));
      assert.is(verdict.outcomes[0]?.actor, "acme");
    }
  }
});

test("another spelling of a cookie that the server reads as the same value is no other client", async () => {
  const rules = readRules(
    "{ url: /, rules: [{ actor: { cookie: session }, unit: day, rpu: 100 }] }",
  );
  const gateway = await createGateway({ rules });
  const spellings = [
    "session=s:1~é",
    "session=s%3A1~%C3%A9",
    "session=%73%3a%31%7e%c3%a9",
    'session="s:1~%C3%A9"',
    "session =s:1~%c3%a9 ",
    "a=b;\tsession=\ts:1~%C3%A9\t;x=session=2",
    "session=s:1~%C3%A9; session=other",
    "session; session=s:1~%C3%A9",
  ];
  for (const cookie of spellings) {
    const read = parse(cookie, "session").session;
    // Hono reads no letters beyond ASCII that are not escaped
    if (!cookie.includes("é")) assert.is(read, "s:1~é", cookie);
    const { outcomes } = await gateway.check(request("/", { headers: { cookie } }));
    assert.is(outcomes[0]?.actor, "s:1~é", cookie);
  }
  const others = ["%", "%zz", '"', "", "a=b", "session2=x", "SESSION=x"];
  for (const text of others) {
    const cookie = text.includes("=") ? text : `session=${text}`;
    const { outcomes } = await gateway.check(request("/", { headers: { cookie } }));
    const actor = text.includes("=") || text === "" ? "192.0.2.1" : text;
    assert.is(outcomes[0]?.actor, actor, cookie);
  }
});

test("values of any length are counted separately, in memory that does not grow with their length", async () => {
  const gateway = await open(({ header }) => header("x-tenant"));
  const huge = "x".repeat(16_000);
  const actors = [`${huge}a`, `${huge}b`, "\u0000", "\ud800", "__proto__"];
  for (const value of actors) {
    const remoteAddress = `192.0.2.${actors.indexOf(value)}`;
    const asked = request("/", { remoteAddress, headers: { "x-tenant": value } });
    const verdict = await gateway.check(asked);
    assert.is(verdict.outcomes[0]?.decision.remaining, 99);
  }
});

async function warnings(action: () => Promise<unknown>): Promise<string[]> {
  const seen: string[] = [];
  const listen = (warning: Error & { code?: string }) => seen.push(`${warning.code}`);
  process.on("warning", listen);
  await action();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  return seen;
}

test("without an onError function a failing actor is a warning, once", async () => {
  const gateway = await open(failing.rejects as Actor);
  const seen = await warnings(async () => {
    for (let i = 0; i < 3; i++) await gateway.check(request("/"));
  });
  assert.equal(seen, ["SMOOTH_LIMITER_ACTOR_FAILED"]);
});

test("an actor that throws what cannot be read frees its client from no other rule", async () => {
  const generatorOf = (reason: unknown) => {
    const generator = (function* () {})();
    generator.throw(reason);
    return "";
  };
  const strange = [Symbol("no"), Object.create(null), { toString: () => generatorOf("no") }];
  const actors = strange.flatMap((reason): Actor[] => [
    () => generatorOf(reason),
    () => Promise.reject(reason),
  ]);
  for (const actor of actors) {
    const gateway = await open(actor);
    const seen = await warnings(async () => {
      const allowed: boolean[] = [];
      for (let i = 0; i < 3; i++) allowed.push((await gateway.check(request("/"))).allowed);
      assert.equal(allowed, [true, true, false]);
    });
    assert.equal(seen, ["SMOOTH_LIMITER_ACTOR_FAILED"]);
  }
});

test("a host's onError receives the error, and its result does not matter", async () => {
  const gateway = await open(failing["throws an error"] as Actor);
  for (const word of ["allow", "refuse", "throw"] as const) {
    const reported: string[] = [];
    const statuses: number[] = [];
    const listener = nodeGateway(gateway, () => statuses.push(200), {
      onError: (error) => {
        reported.push(String(error));
        if (word === "throw") throw error;
        return word;
      },
    });
    for (let i = 0; i < 3; i++) {
      const req = {
        method: "GET",
        url: "/",
        headers: {},
        socket: { remoteAddress: `192.0.2.1` },
      };
      const res = {
        statusCode: 0,
        headersSent: false,
        writableFinished: false,
        closed: false,
        setHeader: () => {},
        end: () => statuses.push(res.statusCode),
        once: () => {},
      };
      listener(req, res);
    }
    if (word === "allow") assert.equal(statuses, [200, 200, 429]);
    assert.equal(reported, Array(3).fill("Error: bad token"));
    assert.not(statuses.includes(503) || statuses.includes(500));
  }
});

test.run();
