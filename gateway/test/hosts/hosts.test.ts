import { once } from "node:events";
import { get } from "node:http";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { isTriedOneIn, suite } from "../../../test/support/suite.ts";
import {
  type CheckResult,
  createGateway,
  type Dialect,
  fromHeader,
  type Gateway,
  type GatewayRequest,
  type HostOptions,
  limitConnections,
  readRules,
} from "../../src/index.ts";
import { until } from "../support/http/raw-clients.ts";
import { HOSTS, type Host, type Running } from "../support/http/servers.ts";

const ACTORS = { account: fromHeader("x-account"), teapot: () => Promise.reject(new Error("tea")) };

function open(text: string, clock = new FakeClock()): Promise<Gateway> {
  const rules = readRules(text, { actors: Object.keys(ACTORS) });
  return createGateway({ rules, actors: ACTORS, clock, trustedProxies: 1 });
}

interface Reply {
  readonly status: number | undefined;
  readonly headers: NodeJS.Dict<string>;
  readonly body: string;
}

async function ask(
  server: Running,
  path: string,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const asked = get(`${server.url}${path}`, { headers, agent: false });
  const [response] = await once(asked, "response");
  let body = "";
  for await (const chunk of response) body += chunk;
  return { status: response.statusCode, headers: response.headers as NodeJS.Dict<string>, body };
}

/** Runs a server for as long as a test of it. */
async function serving(
  host: Host,
  ...[gateway, options, work, test]: [
    ...Required<Parameters<Host>>,
    (server: Running) => Promise<void>,
  ]
): Promise<void> {
  const server = await host(gateway, options, work);
  try {
    await test(server);
  } finally {
    await server.close();
  }
}

const none = async () => {};

const PROBE: GatewayRequest = {
  method: "GET",
  url: "/",
  remoteAddress: undefined,
  header: () => undefined,
};

/** Whether the line of its only rule is full: a request that its client has given up is refused there. */
function isFull(gateway: Gateway): boolean {
  const verdict = gateway.check({ ...PROBE, signal: AbortSignal.abort() });
  if (!(verdict instanceof Promise)) return !verdict.allowed;
  verdict.catch(() => {});
  return false;
}

/** What is left, when more can be had, and when that is in seconds from now. */
const LEFT: Readonly<Record<Dialect, (headers: NodeJS.Dict<string>) => unknown>> = {
  "draft-11": (headers) => [headers["ratelimit-policy"], headers.ratelimit],
  "draft-7": (headers) => [headers["ratelimit-policy"], headers.ratelimit],
  "draft-6": (headers) => [
    headers["ratelimit-policy"],
    headers["ratelimit-limit"],
    headers["ratelimit-remaining"],
    headers["ratelimit-reset"],
  ],
  "x-ratelimit": (headers) => [
    headers["x-ratelimit-limit"],
    headers["x-ratelimit-remaining"],
    Math.abs(Number(headers["x-ratelimit-reset"]) - Date.now() / 1000 - 60) < 5,
  ],
};

const EXPECTED: Readonly<Record<Dialect, readonly [first: unknown, refused: unknown]>> = {
  "draft-11": [
    ['"hello";q=1;w=60', '"hello";r=0;t=60'],
    ['"hello";q=1;w=60', '"hello";r=0;t=60'],
  ],
  "draft-7": [
    ["1;w=60", "limit=1, remaining=0, reset=60"],
    ["1;w=60", "limit=1, remaining=0, reset=60"],
  ],
  "draft-6": [
    ["1;w=60", "1", "0", "60"],
    ["1;w=60", "1", "0", "60"],
  ],
  "x-ratelimit": [
    ["1", "0", true],
    ["1", "0", true],
  ],
};

/** Two clients, as the actor sees them. */
const CLIENTS: Readonly<Record<string, readonly Record<string, string>[]>> = {
  all: [{}],
  account: [{ "x-account": "ann" }, { "x-account": "bob" }],
  device: [{ "x-forwarded-for": "192.0.2.1" }, { "x-forwarded-for": "192.0.2.2" }],
};

for (const [h, [name, host]] of Object.entries(HOSTS).entries()) {
  const test = suite(name);

  for (const [s, status] of [429, 503].entries()) {
    for (const [d, dialect] of (Object.keys(EXPECTED) as Dialect[]).entries()) {
      if (!isTriedOneIn(4, h, s, d)) continue;
      for (const [actor, clients] of Object.entries(CLIENTS)) {
        test(`${status}, ${dialect}, by ${actor}`, async () => {
          const gateway = await open(
            `url: /hello\nrules: [{ name: hello, actor: ${actor}, unit: minute, rpu: 1, algo: W }]`,
          );
          const options: HostOptions = { status, headers: dialect };
          await serving(host, gateway, options, none, async (server) => {
            for (const headers of clients) {
              const first = await ask(server, "/hello", headers);
              assert.equal([first.status, first.body], [200, "hello"]);
              assert.equal(LEFT[dialect](first.headers), EXPECTED[dialect][0]);
              assert.is(first.headers["retry-after"], undefined);

              const refused = await ask(server, "/hello?again", headers);
              assert.is(refused.status, status);
              assert.equal(LEFT[dialect](refused.headers), EXPECTED[dialect][1]);
              assert.is(refused.headers["retry-after"], "60");
              assert.is(refused.headers["cache-control"], "no-store");
              assert.match(refused.headers["content-type"] ?? "", /^application\/problem\+json/);
              assert.equal(JSON.parse(refused.body), {
                type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
                title: "Too many requests",
                status,
                "violated-policies": ["hello"],
              });
            }
            assert.is(server.served(), clients.length);
          });
        });
      }
    }
  }

  test("no fields without a rule or a dialect; fields of each of several dialects", async () => {
    const gateway = await open("url: /hello\nrules: [{ actor: all, unit: day, rpu: 9 }]");
    const rateFields = ({ headers }: Reply) =>
      Object.keys(headers).filter((field) => /rate/.test(field));
    await serving(host, gateway, {}, none, async (server) => {
      assert.equal(rateFields(await ask(server, "/other")), []);
    });
    await serving(host, gateway, { headers: false }, none, async (server) => {
      assert.equal(rateFields(await ask(server, "/hello")), []);
    });
    await serving(host, gateway, { headers: ["draft-11", "x-ratelimit"] }, none, async (server) => {
      assert.is(rateFields(await ask(server, "/hello")).length, 5);
    });
  });

  test("an answer of the application's", async () => {
    const gateway = await open("url: /\nrules: [{ name: r, actor: all, unit: day, rpu: 1 }]");
    const options: HostOptions = {
      answer: (usual, { outcomes }, request) => ({
        status: 418,
        headers: {
          "Retry-After": String(usual.headers["Retry-After"]),
          "content-type": "text/plain",
        },
        body: `${outcomes[0]?.rule.name} ${request.method} ${request.url.replace(/^http:..[^/]*/, "")}`,
      }),
    };
    await serving(host, gateway, options, none, async (server) => {
      await ask(server, "/hello");
      const { status, headers, body } = await ask(server, "/hello?x=1");
      assert.equal([status, body], [418, "r GET /hello?x=1"]);
      assert.is(headers["retry-after"], "86400");
      assert.match(headers["content-type"] ?? "", /^text\/plain/);
      assert.is(headers.ratelimit, undefined);
    });
  });

  test("a failed filter lets the request pass, unless onError says otherwise", async () => {
    const gateway = { check: () => Promise.reject(new Error("tea")) };
    const answered = async (options: HostOptions) => {
      let reply: Reply | undefined;
      await serving(host, gateway, options, none, async (server) => {
        reply = await ask(server, "/hello");
      });
      return [reply?.status, reply?.headers["retry-after"]];
    };
    assert.equal(await answered({}), [200, undefined]);
    assert.equal(await answered({ onError: "allow" }), [200, undefined]);
    assert.equal(await answered({ onError: "refuse" }), [503, "1"]);
    const received: unknown[] = [];
    const onError = async (error: unknown, { url }: GatewayRequest) => {
      received.push(String(error), url.endsWith("/hello"));
      return "refuse" as const;
    };
    assert.equal(await answered({ onError }), [503, "1"]);
    assert.equal(received, ["Error: tea", true]);
    const { error } = console;
    console.error = () => {}; // Hono and others say what they answer 500 to
    const thrown = await answered({
      onError: (fault) => {
        throw fault;
      },
    });
    console.error = error;
    assert.is(thrown[0], 500);
  });

  test("a route that fails still carries the fields of the rules", async () => {
    const gateway = await open("url: /\nrules: [{ name: r, actor: all, unit: day, rpu: 5 }]");
    await serving(host, gateway, {}, none, async (server) => {
      const { status, headers } = await ask(server, "/bad");
      assert.is(status, 500);
      // Koa takes all fields off an answer to an error
      if (name !== "Koa") assert.match(headers.ratelimit ?? "", /^"r";r=4;t=/);
    });
  });

  test("a request waits in its line, and leaves it when its client disconnects", async () => {
    const clock = new FakeClock();
    const gateway = await open(
      "url: /\nrules: [{ actor: all, unit: second, rpu: 1, algo: LB, burst: 2, name: line }]",
      clock,
    );
    await serving(host, gateway, {}, none, async (server) => {
      assert.is((await ask(server, "/hello")).status, 200);
      const leaves = get(`${server.url}/hello`, { agent: false });
      leaves.on("error", () => {});
      const second = ask(server, "/hello");
      await until("both are in the line", () => isFull(gateway));
      leaves.destroy();
      await until("one has left", () => !isFull(gateway));
      await clock.advance(1000);
      const { status, headers } = await second;
      assert.is(status, 200);
      assert.match(headers.ratelimit ?? "", /^"line"/);
      assert.is(server.served(), 2);
    });
    await gateway.close();
  });

  test("a closed gateway answers those in the line, and goes on", async () => {
    const gateway = await open(
      "url: /\nrules: [{ actor: all, unit: minute, rpu: 1, algo: LB, burst: 1, name: line }]",
    );
    await serving(host, gateway, {}, none, async (server) => {
      await ask(server, "/hello");
      const waiting = ask(server, "/hello");
      await until("it is in the line", () => isFull(gateway));
      await gateway.close();
      const { status, headers } = await waiting;
      assert.equal([status, headers["retry-after"]], [503, "1"]);
    });
  });

  test("so many at once, until their answers are over", async () => {
    const release: (() => void)[] = [];
    const work = () => new Promise<void>((resolve) => void release.push(resolve));
    const checker = limitConnections(2, { actor: () => "me" });
    /** How many places are free. */
    const free = () => {
      const leave: (() => void)[] = [];
      const enter = () => checker.check({ ...PROBE, onClose: (closed) => void leave.push(closed) });
      while ((enter() as CheckResult).allowed);
      for (const go of leave) go();
      return leave.length;
    };
    await serving(host, checker, {}, work, async (server) => {
      const first = get(`${server.url}/hello`, { agent: false });
      first.on("error", () => {});
      const second = ask(server, "/hello");
      await until("both are under way", () => server.served() === 2);
      assert.is(free(), 0);
      const refused = await ask(server, "/hello");
      assert.equal([refused.status, refused.headers["retry-after"]], [429, "1"]);
      const policy = '"connections";q=2;qu="concurrent-requests"';
      assert.is(refused.headers["ratelimit-policy"], policy);
      assert.is(refused.headers.ratelimit, '"connections";r=0;t=1');
      assert.is(server.served(), 2);

      first.destroy();
      await until("one has gone", () => free() === 1);
      for (const go of release.splice(0)) go();
      assert.is((await second).status, 200);
      await until("both places are free", () => free() === 2);
    });
  });

  test("a misspelt option and one that is out of bounds are refused", async () => {
    const gateway = await open("[]");
    const refuses = async (options: object, words: RegExp) => {
      try {
        await (await host(gateway, options)).close();
      } catch (error) {
        assert.match(String(error), words);
        return;
      }
      assert.unreachable("it was taken");
    };
    await refuses(
      { statu: 503 },
      /options has no "statu"; expected one of status, headers, answer, onError/,
    );
    await refuses(
      { status: 200 },
      /RangeError: status must be a whole number from 400 to 599, got 200/,
    );
    await refuses({ headers: "draft-5" }, /headers must be one of draft-11, .*got "draft-5"/);
    await refuses({ headers: "" }, /headers must be one of draft-11, .*got ""/);
    await refuses(
      { headers: true },
      /headers must be a dialect, an array of them or false, got true/,
    );
    await refuses({ answer: "no" }, /answer must be a function, got "no"/);
    await refuses({ onError: "throw" }, /onError must be allow, refuse or a function, got "throw"/);
    const strangers: [unknown, RegExp][] = [
      [{}, /gateway must be the result of createGateway, got an object/],
      [Promise.resolve({}), /got a promise of it: await createGateway/],
    ];
    for (const [stranger, words] of strangers) {
      try {
        await host(stranger as Gateway);
        assert.unreachable("it was taken");
      } catch (error) {
        assert.match(String(error), words);
      }
    }
  });

  test.run();
}
