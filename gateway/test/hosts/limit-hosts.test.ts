/** A limit without rules, in front of every server. */
import { get, type IncomingMessage } from "node:http";
import { fixedWindow, KeyedLimiter, Limiter, leakyBucket } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { fastifyLimit, type HostLimitOptions, type LimitVerdict } from "../../src/index.ts";
import { type Asked, ask1, EVERY } from "../support/http/ask.ts";
import { until } from "../support/http/raw-clients.ts";
import { HOSTS, type Running } from "../support/http/servers.ts";

function perMinute(limit: number): KeyedLimiter {
  const clock = new FakeClock();
  return KeyedLimiter.create(fixedWindow({ limit, windowMs: 60_000, align: "first" }), { clock });
}

const byAccount: HostLimitOptions = { key: (_, request) => request.header("x-account") };
const ann: Asked = { headers: { "x-account": "ann" } };
const bob: Asked = { headers: { "x-account": "bob" } };

for (const [name, [host, ask]] of Object.entries(EVERY)) {
  const test = suite(`a limit on ${name}`);

  /** Runs a server for as long as a test of it. */
  const serving = async (
    limiter: KeyedLimiter | Limiter,
    options: HostLimitOptions,
    run: (server: Running) => Promise<void>,
    work?: (verdict: LimitVerdict | undefined) => Promise<void>,
  ) => {
    const server = await host({ limiter, options }, undefined, work);
    try {
      await run(server);
    } finally {
      await server.close();
    }
  };

  const statusesOf = async (server: Running, paths: readonly string[], asked?: Asked) => {
    const statuses: number[] = [];
    for (const path of paths) statuses.push((await ask(server, path, asked)).status);
    return statuses;
  };

  test("refuses a key beyond its limit, as a gateway does", () =>
    serving(perMinute(1), { ...byAccount, name: "hello" }, async (server) => {
      for (const asked of [ann, bob]) {
        const first = await ask(server, "/hello", asked);
        assert.equal([first.status, first.body], [200, "hello"]);
        assert.is(first.headers["ratelimit-policy"], '"hello";q=1;w=60');
        assert.is(first.headers.ratelimit, '"hello";r=0;t=60');
        const second = await ask(server, "/hello", asked);
        assert.is(second.status, 429);
        assert.is(second.headers["retry-after"], "60");
        assert.is(second.headers.ratelimit, '"hello";r=0;t=60');
        assert.match(`${second.headers["content-type"]}`, /^application\/problem\+json/);
        assert.equal(JSON.parse(second.body)["violated-policies"], ["hello"]);
      }
      assert.is(server.served(), 2);
    }));

  test("counts by the client's address without a key", () =>
    serving(perMinute(1), { trustedProxies: 1, headers: "draft-6" }, async (server) => {
      const from = (address: string) => ({ headers: { "x-forwarded-for": address } });
      assert.equal(await statusesOf(server, ["/hello", "/hello"], from("192.0.2.1")), [200, 429]);
      const other = await ask(server, "/hello", from("192.0.2.2"));
      assert.equal([other.status, other.headers["ratelimit-remaining"]], [200, "0"]);
    }));

  test("puts the verdict on the request", async () => {
    const seen: (LimitVerdict | undefined)[] = [];
    const work = async (verdict: LimitVerdict | undefined) => void seen.push(verdict);
    const options = {
      ...byAccount,
      skip: (_: unknown, { method }: { method: string }) => method === "POST",
    };
    await serving(
      perMinute(5),
      options,
      async (server) => {
        await ask(server, "/hello", ann);
        await ask(server, "/hello", { ...ann, method: "POST" });
      },
      work,
    );
    const [first, skipped] = seen;
    assert.equal(
      [first?.allowed, first?.key, first?.limit, first?.remaining, first?.resetMs],
      [true, "ann", 5, 4, 60_000],
    );
    assert.is(first?.outcomes[0]?.decision.remaining, 4);
    assert.equal([seen.length, skipped], [2, undefined]);
  });

  test("takes key, limit, cost, skip and answer as promises", async () => {
    const options: HostLimitOptions = {
      key: async (_, request) => request.header("x-account"),
      cost: async () => 2,
      limit: async (_, request) => (request.header("x-account") === "bob" ? 8 : undefined),
      skip: async (_, { url }) => url.endsWith("/401"),
      answer: async (usual) => ({ ...usual, status: 418, body: "slow down" }),
    };
    await serving(perMinute(4), options, async (server) => {
      const hello = (count: number) => Array<string>(count).fill("/hello");
      assert.equal(await statusesOf(server, hello(3), ann), [200, 200, 418]);
      assert.equal(await statusesOf(server, hello(5), bob), [200, 200, 200, 200, 418]);
      assert.equal(await statusesOf(server, ["/401", "/401"], ann), [401, 401]);
      assert.is((await ask(server, "/hello", ann)).body, "slow down");
    });
  });

  test("an answer that rejects or cannot be sent leaves the usual one", async () => {
    const received: unknown[] = [];
    const onError = (error: unknown) => {
      received.push(String(error));
      return "allow" as const;
    };
    for (const answer of [() => Promise.reject(new Error("tea")), async () => ({}) as never]) {
      await serving(perMinute(1), { ...byAccount, answer, onError }, async (server) => {
        assert.equal(await statusesOf(server, ["/hello", "/hello"], ann), [200, 429]);
      });
    }
    assert.is(received[0], "Error: tea");
    assert.match(`${received[1]}`, /the status of an answer/);
  });

  test("count: failures gives permits back for answers below 400", () =>
    serving(perMinute(2), { ...byAccount, count: "failures" }, async (server) => {
      const paths = ["/hello", "/401", "/hello", "/hello", "/401", "/hello"];
      assert.equal(await statusesOf(server, paths, ann), [200, 401, 200, 200, 401, 429]);
      assert.is((await ask(server, "/hello", bob)).status, 200);
    }));

  test("count: successes gives permits back for failures", async () => {
    const { error } = console;
    console.error = () => {}; // Hono and others say what they answer 500 to
    await serving(perMinute(1), { ...byAccount, count: "successes" }, async (server) => {
      const paths = ["/401", "/bad", "/401", "/hello", "/hello"];
      assert.equal(await statusesOf(server, paths, ann), [401, 500, 401, 200, 429]);
    });
    console.error = error;
  });

  test("count as a function receives the status", () => {
    const count = (status: number) => status === 401;
    return serving(perMinute(1), { ...byAccount, count }, async (server) => {
      const paths = ["/hello", "/401", "/hello"];
      assert.equal(await statusesOf(server, paths, ann), [200, 401, 429]);
    });
  });

  test("requests in progress hold their permits until they are answered", async () => {
    const release: (() => void)[] = [];
    const work = () => new Promise<void>((resolve) => void release.push(resolve));
    await serving(
      perMinute(1),
      { ...byAccount, count: "failures" },
      async (server) => {
        const first = ask(server, "/hello", ann);
        await until("it is in progress", () => release.length === 1);
        assert.is((await ask(server, "/hello", ann)).status, 429);
        release[0]?.();
        assert.is((await first).status, 200);
        const third = ask(server, "/hello", ann);
        await until("its permit has come back", () => release.length === 2);
        release[1]?.();
        assert.is((await third).status, 200);
      },
      work,
    );
  });

  test("a key that fails is reported, and the request is counted by its address", async () => {
    const received: unknown[] = [];
    const onError = (error: unknown) => {
      received.push(String(error));
      return "refuse" as const;
    };
    const keys: HostLimitOptions["key"][] = [
      () => {
        throw new Error("tea");
      },
      () => Promise.reject(new Error("tea")),
      () => ({}) as string,
    ];
    for (const key of keys) {
      await serving(perMinute(1), { key, onError }, async (server) => {
        assert.equal(await statusesOf(server, ["/hello", "/hello"]), [200, 429]);
      });
    }
    assert.equal(received.slice(0, 4), Array(4).fill("Error: tea"));
    assert.match(`${received[4]}`, /key must return a text, a number or undefined, got an object/);
  });

  test("HEAD is counted and refused like GET", () =>
    serving(perMinute(2), byAccount, async (server) => {
      const head = { ...ann, method: "HEAD" };
      assert.equal(await statusesOf(server, ["/hello"], ann), [200]);
      assert.equal(await statusesOf(server, ["/hello", "/hello"], head), [200, 429]);
      const { body, headers } = await ask(server, "/hello", head);
      assert.equal([body, headers["retry-after"]], ["", "60"]);
    }));

  test("onError decides if the limiter fails", async () => {
    const limiter = { for: () => ({ decide: () => Promise.reject(new Error("tea")) }) };
    for (const [onError, status] of [
      ["allow", 200],
      ["refuse", 503],
    ] as const) {
      await serving(limiter as never, { onError }, async (server) => {
        assert.is((await ask(server, "/hello")).status, status);
      });
    }
  });

  test("a misspelt option is refused", async () => {
    const refuses = async (options: object, words: RegExp) => {
      try {
        await (await host({ limiter: perMinute(1), options })).close();
      } catch (error) {
        assert.match(String(error), words);
        return;
      }
      assert.unreachable("it was taken");
    };
    await refuses({ handler: "x" }, /options has no "handler": use answer; expected one of key, /);
    await refuses({ keys: "x" }, /options has no "keys"; expected one of key, .*status, headers/);
    await refuses({ status: 200 }, /status must be a whole number from 400 to 599, got 200/);
    await refuses({ cost: -1 }, /cost must be a finite number above 0, got -1/);
  });

  test.run();
}

for (const [name, host] of Object.entries(HOSTS)) {
  const test = suite(`a client that leaves a limit on ${name}`);

  test("leaves the line, and the next one moves up", async () => {
    const clock = new FakeClock();
    const line = leakyBucket({ permitsPerSecond: 1, capacity: 2 });
    const limiter = Limiter.create(line, { clock });
    const server = await host({ limiter, options: { maxWaitMs: 5000 } });
    try {
      assert.is((await ask1(server, "/hello")).status, 200);
      const leaves = get(`${server.url}/hello`, { agent: false });
      leaves.on("error", () => {});
      const waits = () => limiter.peek().waitMs / 1000;
      await until("it waits", () => waits() === 2);
      const second = ask1(server, "/hello");
      await until("both wait", () => waits() > 2);
      leaves.destroy();
      await until("one has left", () => waits() === 2);
      await clock.advance(1000);
      assert.is((await second).status, 200);
      assert.is(server.served(), 2);
    } finally {
      await server.close();
    }
  });

  test("before the answer counts as a failure: leaving early gains nothing", async () => {
    const limiter = perMinute(1);
    let isBusy = false;
    let release = () => {};
    const work = () => {
      isBusy = true;
      return new Promise<void>((resolve) => {
        release = resolve;
      });
    };
    const options: HostLimitOptions = { ...byAccount, count: "failures" };
    const server = await host({ limiter, options }, undefined, work);
    try {
      const leaves = get(`${server.url}/hello`, { agent: false, ...ann });
      leaves.on("error", () => {});
      await until("it is in progress", () => isBusy);
      leaves.destroy();
      assert.is((await ask1(server, "/hello", ann)).status, 429);
    } finally {
      release();
      await server.close();
    }
  });

  test.run();
}

const types = suite("the types of a limit");

/** A request of Fastify without @fastify/rate-limit, which declares the field `rateLimit` of the config. */
interface PlainFastifyRequest {
  readonly raw: IncomingMessage;
  readonly routeOptions: { readonly config: { readonly url: string } };
  readonly ip: string;
}

types("a function of a limit on Fastify may name the type of the request", () => {
  const limit = fastifyLimit(perMinute(1), { key: (request: PlainFastifyRequest) => request.ip });
  assert.type(limit, "function");
});

types.run();
