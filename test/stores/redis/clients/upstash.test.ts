/** `@upstash/redis` against a server of its protocol, with the faults of HTTP. */
import { type RedisConfigNodejs, Redis as Upstash } from "@upstash/redis";
import * as assert from "uvu/assert";
import type { RemoteLimiter } from "../../../../src/api/limiter-api.ts";
import {
  allOf,
  fixedWindow,
  gcra,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
  type RedisRateLimiterOptions,
  StoreUnavailableError,
} from "../../../../src/redis/index.ts";
import { scriptRunner } from "../../../../src/stores/redis/client.ts";
import { isPermanent } from "../../../../src/stores/redis/permanent.ts";
import { failure } from "../../../support/limiter/watch.ts";
import { PATIENT } from "../../../support/patient.ts";
import { until } from "../../../support/redis/ask.ts";
import { type RedisServer, startRedis } from "../../../support/redis/server.ts";
import {
  startUpstash,
  TOKEN,
  type Treatment,
  type UpstashRequest,
  type UpstashServer,
  withLatency,
} from "../../../support/redis/upstash-server.ts";
import { isTried, suite } from "../../../support/suite.ts";

const test = suite("@upstash/redis");

const RATE = 0.001;

let server: RedisServer;
let upstash: UpstashServer;
let names = 0;

test.before(async () => {
  server = await startRedis();
});

test.after(async () => {
  await server.stop();
});

test.before.each(async () => {
  upstash = await startUpstash(server.url);
});

test.after.each(async () => {
  await upstash.close();
});

/** A client that resends a failed request soon. */
function connect(options: Partial<RedisConfigNodejs> = {}): Upstash {
  const retry = { retries: 3, backoff: () => 5 };
  return new Upstash({ url: upstash.url, token: TOKEN, retry, ...options });
}

/** Clients with and without pipelining, which report errors in different ways. */
const KINDS: Record<string, Partial<RedisConfigNodejs>> = {
  "with pipelining": {},
  "without pipelining": { enableAutoPipelining: false },
};

const newName = () => `over http ${names++}`;

function limiterOf(client = connect(), options: RedisRateLimiterOptions = PATIENT) {
  return RedisRateLimiter.create(client, newName(), RATE, options);
}

/** Whether the request is about permits, and not about loading the script. */
const isByHash = ({ commands }: UpstashRequest) => commands.some(([name]) => name === "evalsha");

/** Applies this treatment to the first scripts, and serves the rest. */
function first(...treatments: readonly Treatment[]): UpstashServer["treat"] {
  const left = [...treatments];
  return (request) => (isByHash(request) ? (left.shift() ?? "serve") : "serve");
}

test("a script is sent by its hash: its text is sent once, and again if the server forgets it", async () => {
  const limiter = limiterOf();
  await limiter.tryAcquire();
  await server.ask("SCRIPT", "FLUSH");
  upstash.requests.length = 0;
  for (let i = 0; i < 5; i++) assert.is(await limiter.tryAcquire(), false);
  const sent = upstash.requests.flatMap(({ commands }) => commands.map(([name]) => name));
  assert.equal(sent, ["evalsha", "eval", "evalsha", "evalsha", "evalsha", "evalsha"]);
  const sizes = upstash.requests.filter(isByHash).map(({ bytes }) => bytes);
  assert.ok(Math.max(...sizes) < 300, `${sizes} bytes`);
});

for (const [k, [kind, options]] of Object.entries(KINDS).entries()) {
  for (const [r, responseEncoding] of (["base64", false] as const).entries()) {
    if (!isTried(k, r)) continue;
    const title = `every algorithm and verb, ${kind}, ${responseEncoding || "text"}`;
    test(`${title}: replies survive JSON`, async () => {
      const client = connect({ ...options, responseEncoding });
      const policies = {
        bursty: smoothBursty({ permitsPerSecond: 1 / 3 }),
        warming: smoothWarmingUp({ permitsPerSecond: 1 / 3, warmupMs: 1000 }),
        fixed: fixedWindow({ limit: 3, windowMs: 60_000, align: "first" }),
        log: slidingLog({ limit: 3, windowMs: 60_000 }),
        window: slidingWindow({ limit: 3, windowMs: 60_000 }),
        bucket: tokenBucket({ capacity: 3, refill: 1, everyMs: 7777 }),
        gcra: gcra({ limit: 7, periodMs: 60_000, burst: 2 }),
        leaky: leakyBucket({ permitsPerSecond: 1 / 3, capacity: 9 }),
      };
      const alone: readonly RemoteLimiter[] = Object.entries(policies).map(([name, policy]) =>
        RedisLimiter.create(client, `${newName()} ${name} 名`, policy, PATIENT),
      );
      const together: RemoteLimiter = RedisLimiter.create(client, newName(), policies, PATIENT);
      // in one turn: one script call for several keys, one for several limiters
      const combined = allOf(...alone);
      for (const limiter of [...alone, together]) assert.is(await limiter.tryAcquire(), true);
      for (const limiter of [...alone, together, combined]) {
        assert.type(await limiter.tryAcquire(), "boolean");
        const { allowed, waitMs, limit } = await limiter.peek();
        assert.ok(waitMs >= 0 && limit > 0, `${allowed}, ${waitMs} ms, ${limit}`);
        await limiter.decide(2);
      }
      const many = await Promise.all(alone.map((limiter) => limiter.reserve(0.25)));
      for (const reservation of many) assert.ok(Number.isFinite(reservation.waitMs));
      await Promise.all(many.map((reservation) => reservation.cancel()));
      for (const limiter of [...alone, together]) {
        await limiter.charge(1);
        await limiter.refund(1);
        await limiter.pause(1);
        await limiter.reset();
      }
    });
  }
}

test("number-like replies are exact: a wait of 10^15 µs and fractions of a microsecond", async () => {
  const client = connect();
  const runner = scriptRunner(client);
  const texts = [
    "0",
    "12",
    "1e3",
    "0.1",
    "100000000000000000000",
    "1.50",
    "-0",
    "no",
    "\t0",
    "true:",
  ];
  for (const text of texts) {
    const script = { name: "echo", lua: "return ARGV[1]" };
    assert.is(await runner.runScript(script, ["k"], [text]), text);
    const list = { name: "list", lua: "return { ARGV[1], ARGV[1] }" };
    assert.equal(await runner.runScript(list, ["k"], [text]), [text, text]);
  }
});

test("latency: callers share requests, and wait until the instants that the server gave them", async () => {
  upstash.treat = withLatency(50);
  const limiter = RedisRateLimiter.create(connect(), newName(), 1000, PATIENT);
  await limiter.acquire();
  upstash.requests.length = 0;
  await Promise.all(Array.from({ length: 200 }, () => limiter.acquire()));
  assert.ok(upstash.requests.length <= 3, `${upstash.requests.length} requests`);
});

for (const [kind, options] of Object.entries(KINDS)) {
  test(`${kind}: a reply that is lost after the script ran takes its permits once`, async () => {
    const client = connect(options);
    const name = newName();
    const open = () =>
      RedisLimiter.create(client, name, fixedWindow({ limit: 10, windowMs: 1e6, align: "first" }), {
        ...PATIENT,
        whenUnavailable: "wait",
      });
    const limiter = open();
    assert.is(await limiter.tryAcquire(), true);
    upstash.treat = first("lose the reply");
    // the client sends it again; the reply reports this, and with "wait" the caller asks in a new
    // call
    await limiter.acquire();
    assert.is((await open().peek()).remaining, 7, "1, the lost request and its successor");
    upstash.treat = first("lose the reply", "lose the reply", "lose the reply");
    await limiter.charge(2);
    assert.is((await open().peek()).remaining, 5, "a charge that was sent four times counts once");
  });

  test(`${kind}: a cut connection is an outage in every mode, and over when a request gets through`, async () => {
    const client = connect({ ...options, retry: false });
    const isCut: UpstashServer["treat"] = () => "cut";
    const throwing = limiterOf(client);
    upstash.treat = isCut;
    const error = (await failure(() => throwing.tryAcquire())) as StoreUnavailableError;
    assert.instance(error, StoreUnavailableError);
    assert.match(`${error.cause}`, "fetch failed");
    assert.not(isPermanent(error.cause));
    const local = limiterOf(client, { whenUnavailable: "local", instances: 1, timeoutMs: 5000 });
    assert.is(await local.tryAcquire(), true);
    const waiting = limiterOf(client, { whenUnavailable: "wait" });
    const waited = waiting.acquire();
    await until("a second try", () => upstash.requests.length > 6);
    upstash.treat = () => "serve";
    await waited;
    await until(
      "the end of the outage",
      async () => (await local.peek()) && local.state === "ready",
    );
  });

  const bodies: Record<string, Treatment> = {
    "429 as JSON": { status: 429, body: '{"error":"ERR max requests limit exceeded"}' },
    "429 as HTML": { status: 429, body: "<html>slow down</html>" },
    "500 without a body": { status: 500, body: "" },
    "503 with other JSON": { status: 503, body: '"oh"' },
    "504 with null": { status: 504, body: "null" },
    "200 as HTML": { status: 200, body: "<html>log in</html>" },
    "200 without a body": { status: 200, body: "" },
    "200 with half a body": { status: 200, body: '{"result":"MA' },
    "200 without a result": { status: 200, body: "{}" },
    "200 with null": { status: 200, body: "null" },
    "200 with an empty list": { status: 200, body: "[]" },
    "200 with a list of nothing": { status: 200, body: "[{}]" },
    "200 with a list of null": { status: 200, body: "[null]" },
  };
  for (const [what, treatment] of Object.entries(bodies)) {
    test(`${kind}: a reply of ${what} fails the call, and takes nothing`, async () => {
      const limiter = limiterOf(connect(options));
      await limiter.peek();
      upstash.treat = () => treatment;
      for (const ask of [() => limiter.tryAcquire(), () => allOf(limiter, limiter).tryAcquire()]) {
        assert.instance(await failure(ask), StoreUnavailableError);
      }
      upstash.treat = () => "serve";
      assert.is(await limiter.tryAcquire(), true);
    });
  }

  const results: Record<string, unknown> = {
    "a number": 5,
    "a text": "MA",
    null: null,
    "a list": ["MA"],
    "a list of lists": [["MA"]],
    "an object": { a: 1 },
    true: true,
  };
  for (const [what, result] of Object.entries(results)) {
    test(`${kind}: ${what} in place of the script's reply never grants by mistake`, async () => {
      const limiter = limiterOf(connect(options));
      await limiter.tryAcquire();
      upstash.treat = ({ path }) => ({
        status: 200,
        body: JSON.stringify(path === "/" ? { result } : [{ result }]),
      });
      for (const ask of [() => limiter.peek(), () => allOf(limiter, limiter).tryAcquire()]) {
        assert.instance(await failure(ask), StoreUnavailableError);
      }
    });
  }

  test(`${kind}: an error shows the server's message, without the command`, async () => {
    const client = connect(options);
    await server.ask("SCRIPT", "FLUSH");
    // the text of the script contains words of permanent errors
    upstash.treat = ({ commands, path }) => {
      if (commands.every(([name]) => name !== "eval")) return "serve";
      const error = "OOM command not allowed";
      const body = path === "/" ? { error } : commands.map(() => ({ error }));
      return { status: path === "/" ? 400 : 200, body: JSON.stringify(body) };
    };
    const error = (await failure(() => limiterOf(client).tryAcquire())) as Error;
    assert.match(`${error.cause}`, /OOM command not allowed$/);
    assert.not(isPermanent(error.cause));
    upstash.treat = () => "serve";
    const name = newName();
    await server.ask("LPUSH", `l:${name}`, "x");
    const wrong = (await failure(() =>
      RedisRateLimiter.create(client, name, 5, PATIENT).acquire(),
    )) as Error;
    assert.match(`${wrong.cause}`, /WRONGTYPE the key ".*" holds a value of type list/);
  });

  test(`${kind}: a wrong token is an error that waiting cannot fix`, async () => {
    for (const token of ["wrong", "wrong again"]) {
      const client = connect({ ...options, token });
      const limiter = limiterOf(client, { whenUnavailable: "wait" });
      const error = (await failure(() => limiter.acquire())) as Error;
      assert.match(`${error.cause}`, "WRONGPASS");
    }
    upstash.treat = () => ({ status: 401, body: '{"error":"Unauthorized"}' });
    const limiter = limiterOf(connect(options), { whenUnavailable: "wait" });
    assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
  });
}

test("a name with the words of an error in it is no error", async () => {
  const client = connect({ enableAutoPipelining: false });
  const limiter = RedisRateLimiter.create(client, "NOSCRIPT WRONGTYPE", 5, {
    whenUnavailable: "wait",
  });
  await limiter.acquire();
  await limiter.peek();
  upstash.requests.length = 0;
  upstash.treat = first({ status: 500, body: '{"error":"ERR internal"}' });
  await limiter.acquire();
  const sent = upstash.requests.flatMap(({ commands }) => commands.map(([name]) => name));
  assert.not(sent.includes("eval"), `${sent}`);
});

test("a service that never replies: the call ends in time, and its permits are given back", async () => {
  const client = connect();
  const policy = fixedWindow({ limit: 5, windowMs: 1e6, align: "first" });
  const limiter = RedisLimiter.create(client, newName(), policy, { timeoutMs: 100 });
  upstash.treat = () => "never reply";
  assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
  upstash.treat = () => "serve";
  await until("the service is back", async () => (await limiter.peek()).allowed);
});

test("a concurrency limiter passes places on by a stream of messages", async () => {
  const name = "places / of, a ?name# 名";
  const open = () =>
    RedisConcurrencyLimiter.create(connect(), name, 1, { leaseMs: 60_000, ...PATIENT });
  const [one, other] = [open(), open()];
  const lease = await one.acquire();
  const waiting = other.acquire();
  await until("a stream", async () => (await channels()) === 1);
  await lease.release();
  // without a message it would take a third of leaseMs
  await (await waiting).release();
  await Promise.all([one.close(), other.close()]);
  await until("the stream is closed", async () => (await channels()) === 0);
});

test("without streams, or when one breaks, a concurrency limiter polls", async () => {
  upstash.treat = ({ path }) =>
    path.startsWith("/subscribe/") ? { status: 404, body: "no such thing" } : "serve";
  const open = () =>
    RedisConcurrencyLimiter.create(connect(), "polled", 1, { leaseMs: 1500, ...PATIENT });
  const [one, other] = [open(), open()];
  const lease = await one.acquire();
  const polled = other.acquire();
  await until("a ticket", async () => (await one.peek()).waiting === 1);
  await lease.release();
  const second = await polled;

  // the client prints that its stream has broken
  const { error } = console;
  console.error = () => {};
  try {
    upstash.treat = () => "serve";
    const streamed = one.acquire();
    await until("a stream", async () => (await channels()) === 1);
    upstash.treat = ({ path }) => (path.startsWith("/subscribe/") ? "cut" : "serve");
    upstash.cutStreams();
    await second.release();
    await (await streamed).release();
  } finally {
    console.error = error;
  }
  await Promise.all([one.close(), other.close()]);
});

async function channels(): Promise<number> {
  return ((await server.ask("PUBSUB", "CHANNELS")) as unknown[]).length;
}

test.run();
