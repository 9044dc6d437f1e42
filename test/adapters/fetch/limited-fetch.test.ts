import { getEventListeners } from "node:events";
import * as assert from "uvu/assert";
import { type LimitedFetchOptions, limitedFetch } from "../../../src/adapters/fetch/index.ts";
import {
  ConcurrencyLimiter,
  KeyedLimiter,
  type Limiter,
  Limiter as Limiters,
  type LocalLimiter,
  PermitsExceedCapacityError,
  QueueFullError,
  RateLimiter,
  smoothBursty,
  tokenBucket,
} from "../../../src/index.ts";
import { type Answer, fakeServer, inTurn, ok, status } from "../../support/fetch/fake-server.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { elsewhere } from "../../support/streams/forms.ts";
import { suite } from "../../support/suite.ts";

const test = suite("limited fetch");

const URL_OF = "http://api.test/things";

/** A limited fetch on a fake clock, behind a limiter of 10 a second without a burst. */
function setUp(answer: Answer, options: LimitedFetchOptions = {}) {
  const server = fakeServer(answer);
  const { clock, seen } = server;
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const call = limitedFetch(limiter, { fetch: server.fetch, clock, ...options });
  const get = (init?: RequestInit, input: string | Request = URL_OF) =>
    watch(clock, call(input, init));
  const arrivals = () => seen.map(({ at }) => at);
  return { server, clock, seen, limiter, call, get, arrivals };
}

const stream = () =>
  new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode("streamed"));
      controller.close();
    },
  });

test("each request waits for its turn", async () => {
  const { clock, get, arrivals } = setUp(ok);
  const calls = [get(), get(), get()];
  await clock.advance(1000);
  assert.equal(arrivals(), [5, 105, 205]);
  assert.equal(
    calls.map(({ at }) => at),
    [10, 110, 210],
  );
  assert.is(await calls[2]?.value?.text(), "fine");
});

test("a limited fetch has the type of fetch, and passes its arguments on", async () => {
  const { clock, seen, call } = setUp(ok);
  const same: typeof fetch = call;
  const inputs: Parameters<typeof fetch>[] = [
    [new URL(URL_OF)],
    [URL_OF, { method: "PUT", body: "put" }],
    [new Request(URL_OF, { method: "POST", body: "post" })],
    [new Request(URL_OF), { method: "DELETE" }],
  ];
  const calls = inputs.map((each) => same(...each));
  await clock.advance(1000);
  await Promise.all(calls);
  assert.equal(
    seen.map(({ method, body }) => `${method} ${body}`.trim()),
    ["GET", "PUT put", "POST post", "DELETE"],
  );
});

test("what fetch refuses takes no permit", async () => {
  const refused: Parameters<typeof fetch>[] = [
    ["no url"],
    ["http://256.256.256.256/"],
    ["http://ann:secret@api.test/"],
    [new URL("http://ann:secret@api.test/")],
    [URL_OF, { method: "TRACE" }],
    [URL_OF, { method: "no method" }],
    [URL_OF, { body: "a GET with a body" }],
    [URL_OF, { method: "HEAD", body: "" }],
    [URL_OF, { headers: { "no name": "1" } }],
    [URL_OF, { headers: [["one"]] }],
    [URL_OF, { redirect: "no redirect" as never }],
    [new Request(URL_OF), { method: "TRACE" }],
  ];
  const limiter = RateLimiter.create(1);
  const call = limitedFetch(limiter);
  for (const arguments_ of refused) {
    const error = await failure(() => call(...arguments_));
    assert.instance(error, TypeError, `${arguments_[0]} ${JSON.stringify(arguments_[1])}`);
  }
  assert.ok(limiter.tryAcquire());
});

test("a common call is sent without a Request beside it", async () => {
  const { clock, seen, call } = setUp(ok);
  const calls: Parameters<typeof fetch>[] = [
    [URL_OF],
    [new URL(URL_OF)],
    [new Request(URL_OF)],
    [URL_OF, { method: "DELETE", signal: new AbortController().signal }],
    [URL_OF, { method: "POST", headers: { "x-tenant": "ann" }, body: "text" }],
  ];
  const { Request: Real } = globalThis;
  let created = 0;
  globalThis.Request = new Proxy(Real, {
    construct(target, args) {
      created += 1;
      return Reflect.construct(target, args);
    },
  });
  try {
    const responses = calls.map((each) => call(...each));
    await clock.advance(1000);
    await Promise.all(responses);
  } finally {
    globalThis.Request = Real;
  }
  assert.is(seen.length, calls.length);
  assert.is(created, seen.length, "the server creates one for each");
});

test("the platform's fetch is looked up at each call", async () => {
  const real = globalThis.fetch;
  const { clock, server, limiter } = setUp(ok);
  const call = limitedFetch(limiter, { clock });
  globalThis.fetch = server.fetch;
  try {
    const response = call(URL_OF);
    await clock.advance(100);
    assert.is((await response).status, 200);
  } finally {
    globalThis.fetch = real;
  }
});

test("permits may be a function of the request and its body", async () => {
  const { clock, get, arrivals } = setUp(ok, {
    permits: async (request) => (request.method === "POST" ? (await request.text()).length : 2),
  });
  get();
  await clock.advance(0);
  get({ method: "POST", body: "large" });
  await clock.advance(0);
  get();
  await clock.advance(2000);
  assert.equal(arrivals(), [5, 205, 705]);
});

test("Retry-After on 429: all requests pause, and the refused one is retried", async () => {
  const { clock, get, arrivals } = setUp(inTurn(status(429, { "retry-after": "2" }), ok));
  const first = get();
  await clock.advance(50);
  const second = get();
  await clock.advance(5000);
  assert.equal(arrivals(), [5, 2015, 2115]);
  assert.equal([first.value?.status, second.value?.status], [200, 200]);
});

test("retry times in other forms than seconds", async () => {
  const rows: [fields: Record<string, string>, again: number][] = [
    [{ "retry-after": "Thu, 01 Jan 1970 00:00:03 GMT" }, 3005],
    [{ "retry-after": "0" }, 105],
    [{ ratelimit: '"d";r=0;t=4, "e";r=0;t=2' }, 4015],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1" }, 1015],
  ];
  for (const [fields, again] of rows) {
    const { clock, get, arrivals } = setUp(inTurn(status(429, fields), ok), { sync: false });
    get();
    await clock.advance(10_000);
    assert.equal(arrivals(), [5, again], JSON.stringify(fields));
  }
});

test("a 403 that reports a limit acts as a 429: all requests pause", async () => {
  const rows: [fields: Record<string, string>, again: number][] = [
    [{ "retry-after": "2" }, 2015],
    [{ "retry-after": "2", "x-ratelimit-remaining": "50" }, 2015],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1" }, 1015],
    [{ ratelimit: '"d";r=0;t=4' }, 4015],
  ];
  for (const [fields, again] of rows) {
    for (const sync of [true, false]) {
      const { clock, get, arrivals } = setUp(inTurn(status(403, fields), ok), { sync });
      const first = get();
      await clock.advance(50);
      const second = get();
      await clock.advance(10_000);
      assert.equal(arrivals(), [5, again, again + 100], JSON.stringify(fields));
      assert.equal([first.value?.status, second.value?.status], [200, 200]);
    }
  }
  const { clock, get, seen } = setUp(status(403, { "x-ratelimit-remaining": "0" }), { retries: 1 });
  get();
  await clock.advance(5000);
  assert.is(seen.length, 2, "nothing remains, and no retry time is given: the backoff applies");
});

test("any other 403 is returned", async () => {
  for (const fields of [{}, { "x-ratelimit-remaining": "7" }, { "retry-after": "soon" }]) {
    const { clock, get, arrivals } = setUp(status(403, fields));
    const refused = get();
    await clock.advance(10_000);
    assert.equal([arrivals(), refused.value?.status], [[5], 403]);
  }
});

test("without a retry time the pause grows with each attempt, and half of it is random", async () => {
  const { clock, get, arrivals, seen } = setUp(status(429), { retries: 3, backoffMs: 1000 });
  const refused = get();
  await clock.advance(20_000);
  assert.is(refused.value?.status, 429);
  const [a = 0, b = 0, c = 0, d = 0] = arrivals();
  assert.is(seen.length, 4);
  for (const [gap, most] of [
    [b - a, 1000],
    [c - b, 2000],
    [d - c, 4000],
  ] as const) {
    assert.ok(gap >= most / 2 && gap <= most + 10, `${gap}`);
  }
});

test("a 503 without a retry time delays this request only", async () => {
  const { clock, get, arrivals } = setUp(inTurn(status(503), ok));
  const first = get();
  await clock.advance(20);
  get();
  await clock.advance(5000);
  const [, second = 0, again = 0] = arrivals();
  assert.is(second, 105, "the next request does not wait for it");
  assert.ok(again >= 510 && again <= 1015, `${again}`);
  assert.is(first.value?.status, 200);
});

test("a 503 with Retry-After pauses the limiter", async () => {
  const { clock, get, arrivals } = setUp(inTurn(status(503, { "retry-after": "1" }), ok));
  get();
  await clock.advance(20);
  get();
  await clock.advance(5000);
  assert.equal(arrivals(), [5, 1015, 1115]);
});

test("if the server asks for too long, the response is returned and the pause is bounded", async () => {
  const { clock, get, arrivals } = setUp(inTurn(status(429, { "retry-after": "3600" }), ok), {
    maxRetryAfterMs: 5000,
  });
  const refused = get();
  await clock.advance(20);
  assert.equal([refused.at, refused.value?.status], [10, 429]);
  get();
  await clock.advance(10_000);
  assert.equal(arrivals(), [5, 5015]);
});

const repeated: [
  title: string,
  code: number,
  times: number,
  init: () => RequestInit,
  any?: true,
][] = [
  ["GET", 429, 3, () => ({})],
  ["HEAD", 503, 3, () => ({ method: "HEAD" })],
  ["PUT of a text", 429, 3, () => ({ method: "PUT", body: "text" })],
  ["DELETE", 503, 3, () => ({ method: "delete" })],
  ["PUT of bytes", 429, 3, () => ({ method: "PUT", body: new Uint8Array([65]) })],
  ["PUT of a buffer", 429, 3, () => ({ method: "PUT", body: new ArrayBuffer(1) })],
  ["PUT of a form", 429, 3, () => ({ method: "PUT", body: new URLSearchParams("a=b") })],
  ["PUT of form data", 429, 3, () => ({ method: "PUT", body: new FormData() })],
  ["PUT of a blob", 429, 3, () => ({ method: "PUT", body: new Blob(["blob"]) })],
  ["PUT of a stream", 429, 1, () => ({ method: "PUT", body: stream(), duplex: "half" })],
  ["POST", 429, 1, () => ({ method: "POST", body: "text" })],
  ["POST", 503, 1, () => ({ method: "POST", body: "text" })],
  [
    "POST with a key",
    503,
    3,
    () => ({ method: "POST", body: "text", headers: { "Idempotency-Key": "1" } }),
  ],
  [
    "POST, with retryNonIdempotent, because of a limit",
    403,
    3,
    () => ({ method: "POST", body: "text" }),
    true,
  ],
  ["POST, with retryNonIdempotent", 429, 3, () => ({ method: "POST", body: "text" }), true],
  ["POST, with retryNonIdempotent", 503, 1, () => ({ method: "POST", body: "text" }), true],
  [
    "POST of a stream, with retryNonIdempotent",
    429,
    1,
    () => ({ method: "POST", body: stream(), duplex: "half" }),
    true,
  ],
];
for (const [title, code, times, init, any = false] of repeated) {
  test(`${title}: after ${code} it is sent ${times} times`, async () => {
    const { clock, get, seen } = setUp(status(code, { "retry-after": "1" }), {
      retryNonIdempotent: any,
    });
    const call = get(init());
    // a blob takes some turns of the event loop to be read
    for (let i = 0; i < 200 && call.at === undefined; i++) {
      await clock.advance(100);
      await turn();
    }
    assert.is(call.value?.status, code);
    assert.is(seen.length, times);
    assert.is(new Set(seen.map(({ body }) => body.replace(/\d{6,}/g, ""))).size, 1);
  });
}

test("a Request with a body was read: it is not sent again; one without a body is", async () => {
  for (const [request, times] of [
    [new Request(URL_OF, { method: "PUT", body: "text" }), 1],
    [new Request(URL_OF, { method: "PUT" }), 3],
  ] as const) {
    const { clock, get, seen } = setUp(status(429, { "retry-after": "1" }));
    get(undefined, request);
    await clock.advance(20_000);
    assert.is(seen.length, times);
  }
});

test("bodies of discarded responses are cancelled", async () => {
  const cancelled: number[] = [];
  const body = (id: number) => new ReadableStream({ cancel: () => void cancelled.push(id) });
  let id = 0;
  const { clock, get } = setUp(
    () => new Response(body(++id), { status: 429, headers: { "retry-after": "1" } }),
  );
  const call = get();
  await clock.advance(20_000);
  assert.equal(cancelled, [1, 2]);
  assert.ok(call.value?.body, "the last body is the caller's");
});

test("a request that fails in transit is sent again if that is safe", async () => {
  const broken = new TypeError("fetch failed");
  const failing = () => {
    throw broken;
  };
  for (const [init, times] of [
    [{}, 3],
    [{ method: "POST", body: "text" }, 1],
    [{ method: "PUT", body: stream(), duplex: "half" }, 1],
  ] as const) {
    let sent = 0;
    const { clock, get } = setUp(() => {
      sent += 1;
      return failing();
    });
    const call = get(init as RequestInit);
    await clock.advance(20_000);
    assert.equal([sent, call.error], [times, broken]);
  }
  const { clock, get } = setUp(inTurn(failing, ok));
  const call = get();
  await clock.advance(20_000);
  assert.is(call.value?.status, 200);
});

test("a fetch that returns no response is an error, and is not called again", async () => {
  for (const result of [undefined, null, 5, "ok"]) {
    let sent = 0;
    const call = limitedFetch(RateLimiter.create(1e6), {
      fetch: async () => {
        sent += 1;
        // without an end this would keep timers from running, that of this test too
        if (sent > 100) throw new TypeError("again", { cause: new Error("bad port") });
        return result as never;
      },
    });
    const error = await failure(() => call(URL_OF));
    assert.match(String(error), /TypeError: the result of fetch must be a Response, got/);
    assert.is(sent, 1);
  }
});

test("an error that would come again is not retried", async () => {
  const errors = ["unknown scheme", "bad port", "unexpected redirect", "redirect count exceeded"];
  for (const message of errors) {
    const error = new TypeError("fetch failed", { cause: new Error(message) });
    let sent = 0;
    const { clock, get } = setUp(() => {
      sent += 1;
      throw error;
    });
    const call = get();
    await clock.advance(20_000);
    assert.equal([sent, call.error], [1, error], message);
  }
  const asked: string[] = [];
  const limited = limitedFetch(RateLimiter.create(100), {
    fetch: async (url) => {
      asked.push(String(url));
      throw new TypeError("no such scheme");
    },
  });
  await limited("mailto:ann@example.org").then(
    () => assert.unreachable(),
    (error: Error) => {
      assert.is(error.message, "no such scheme");
    },
  );
  assert.equal(asked, ["mailto:ann@example.org"]);
});

test("a signal ends the call in every phase, with its own reason", async () => {
  const phases: [title: string, answer: Answer, at: number, sent: number][] = [
    ["before", ok, 0, 0],
    ["in the queue", ok, 50, 0],
    ["while sending", ok, 103, 0],
    ["while receiving", ok, 107, 1],
    ["in a pause", status(429, { "retry-after": "9" }), 1000, 1],
    ["in a backoff", status(503), 300, 1],
  ];
  for (const [title, answer, at, sent] of phases) {
    for (const asRequest of [false, true]) {
      const { clock, limiter, get, seen } = setUp(answer);
      limiter.tryAcquire();
      const controller = new AbortController();
      const { signal } = controller;
      const reason = new Error(title);
      if (at === 0) controller.abort(reason);
      const call = asRequest ? get(undefined, new Request(URL_OF, { signal })) : get({ signal });
      await clock.advance(at);
      controller.abort(reason);
      await clock.advance(20_000);
      assert.is(call.error, reason, title);
      assert.is(seen.length, sent, title);
      assert.ok((call.at ?? Infinity) <= at + 10, `${title}: ${call.at}`);
    }
  }
});

test("a signal ends a call whose limiter, permits or store never answer", async () => {
  const never = () => new Promise<never>(() => {});
  const fetch = async () => new Response(null, { status: 429 });
  const limiter = RateLimiter.create(1000);
  const away: Limiter = { ...elsewhere(limiter), pause: never };
  const calls = {
    "its limiter": limitedFetch(never, { fetch }),
    "its weight": limitedFetch(limiter, { fetch, permits: never }),
    "its store": limitedFetch(away, { fetch }),
  };
  for (const [title, call] of Object.entries(calls)) {
    const controller = new AbortController();
    const reason = new Error(title);
    const error = failure(() => call(URL_OF, { signal: controller.signal }));
    await turn();
    controller.abort(reason);
    assert.is(await error, reason);
  }
});

test("many calls of one signal, in flight or in a backoff, add one listener", async () => {
  const { clock, fetch } = fakeServer(status(503));
  const limiter = RateLimiter.create(1e6, { clock });
  const call = limitedFetch(limiter, { clock, fetch: (input) => fetch(input) });
  const controller = new AbortController();
  const { signal } = controller;
  const calls = Array.from({ length: 20 }, () => failure(() => call(URL_OF, { signal })));
  for (const ms of [5, 100]) {
    await clock.advance(ms);
    assert.is(getEventListeners(signal, "abort").length, 1);
  }
  controller.abort(new Error("enough"));
  assert.ok((await Promise.all(calls)).every((error) => /enough/.test(String(error))));
  await turn();
  assert.is(getEventListeners(signal, "abort").length, 0);
});

test("a call that was aborted in the queue took nothing", async () => {
  const { clock, get, arrivals } = setUp(ok);
  const controller = new AbortController();
  get();
  get({ signal: controller.signal });
  get();
  await clock.advance(50);
  controller.abort();
  await clock.advance(1000);
  assert.equal(arrivals(), [5, 105]);
});

test("init.signal null overrides the request's own signal", async () => {
  const { clock, get } = setUp(ok);
  const call = get({ signal: null }, new Request(URL_OF, { signal: AbortSignal.abort("no") }));
  await clock.advance(100);
  assert.is(call.value?.status, 200);
});

test("the limiter may be chosen for each request", async () => {
  const server = fakeServer(ok);
  const { clock, seen } = server;
  const slow = RateLimiter.create(1, { clock, burstSeconds: 0 });
  const fast = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const call = limitedFetch(
    async (request) => (new URL(request.url).host === "slow.test" ? slow : fast),
    { fetch: server.fetch, clock },
  );
  const calls = ["slow", "fast", "slow", "fast"].map((host) => call(`http://${host}.test/`));
  await clock.advance(2000);
  await Promise.all(calls);
  assert.equal(
    seen.map(({ at, url }) => [at, new URL(url).hostname.slice(0, 4)]),
    [
      [5, "slow"],
      [5, "fast"],
      [105, "fast"],
      [1005, "slow"],
    ],
  );
});

test("the pause of a keyed limiter applies to one key", async () => {
  const server = fakeServer(inTurn(status(429, { "retry-after": "1" }), ok));
  const { clock, seen } = server;
  const keyed = KeyedLimiter.create(tokenBucket({ capacity: 1, refill: 10, everyMs: 1000 }), {
    clock,
  });
  const options = { fetch: server.fetch, clock };
  const a = limitedFetch(keyed.for("a"), options)(`${URL_OF}/a`);
  await clock.advance(20);
  const b = limitedFetch(keyed.for("b"), options)(`${URL_OF}/b`);
  await clock.advance(5000);
  await Promise.all([a, b]);
  assert.equal(
    seen.map(({ at, url }) => [at, url.slice(-1)]),
    [
      [5, "a"],
      [25, "b"],
      [1015, "a"],
    ],
  );
});

/** Requests and tokens, each 10 at once and then 10 a second. */
function both(answer: Answer, options: LimitedFetchOptions) {
  const server = fakeServer(answer);
  const { clock, seen } = server;
  const bucket = tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 });
  const limiter = Limiters.create({ requests: bucket, tokens: bucket }, { clock });
  const call = limitedFetch(limiter, {
    permits: { requests: 1, tokens: 40 },
    ...{ fetch: server.fetch, clock, sync: false, ...options },
  });
  const taken = () => {
    const { requests, tokens } = limiter.peek({ requests: 1 }).policies;
    return [100 - (requests?.remaining ?? 0), 100 - (tokens?.remaining ?? 0)].map(Math.round);
  };
  return { clock, seen, limiter, call, taken };
}

test("the used permits are settled, and the caller can still read the body", async () => {
  const { clock, call, taken } = both(() => Response.json({ tokens: 70 }), {
    used: async (response) => (await response.json()) as { tokens: number },
  });
  const response = call(URL_OF);
  await clock.advance(10);
  assert.equal(await (await response).json(), { tokens: 70 });
  assert.equal(taken(), [1, 70]);
});

test("the estimate stands if the used permits are unknown", async () => {
  const strange: LimitedFetchOptions["used"][] = [
    () => undefined,
    () => Promise.reject(new Error("no")),
    () => {
      throw new Error("no");
    },
    () => ({ tokens: Number.NaN }),
    () => ({ tokens: -5 }),
    () => ({ coins: 5 }),
  ];
  for (const used of strange) {
    const { clock, call, taken } = both(ok, { used });
    const response = call(URL_OF);
    await clock.advance(10);
    assert.is(await (await response).text(), "fine");
    assert.equal(taken(), [1, 40]);
  }
});

test("the first unusable number of a limiter is a warning, an abort is none", async () => {
  const warnings: string[] = [];
  const listen = ({ message }: Error) => void warnings.push(message);
  process.on("warning", listen);
  const abort = new AbortController();
  const aborted = both(ok, {
    used: async () => {
      abort.abort();
      throw new Error("no usage");
    },
  });
  const failing = both(ok, { used: () => Promise.reject(new Error("no usage")) });
  for (const { call, clock, signal } of [
    { ...aborted, signal: abort.signal },
    { ...failing, signal: null },
    { ...failing, signal: null },
  ]) {
    const response = call(URL_OF, { signal }).catch(() => {});
    await clock.advance(60_000);
    await response;
  }
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  assert.equal(warnings, [
    "limitedFetch: used() returned no usable number, the estimate stands: Error: no usage",
  ]);
});

test("a response whose body was read already is returned", async () => {
  const fetch = async () => {
    const response = new Response("fine");
    await response.text();
    return response;
  };
  const { call } = both(ok, { fetch, used: () => 1 });
  assert.is((await call(URL_OF)).status, 200);
});

test("a failed request counts as the option `failed` says", async () => {
  const rows: [answer: Answer, failed: LimitedFetchOptions["failed"], taken: number[]][] = [
    [status(400), undefined, [1, 40]],
    [status(400), { tokens: 0 }, [1, 0]],
    [status(500), 0, [0, 0]],
    [status(429, { "retry-after": "0" }), { tokens: 5 }, [1, 5]],
    [() => Promise.reject(new TypeError("fetch failed")), { tokens: 0 }, [1, 0]],
  ];
  for (const [answer, failed, expected] of rows) {
    const { clock, call, taken } = both(answer, {
      failed,
      retries: 0,
      used: () => ({ tokens: 9 }),
    });
    const end = call(URL_OF).catch(() => {});
    await clock.advance(10);
    await end;
    assert.equal(taken(), expected);
  }
});

test("a request aborted in flight may have been answered: it counts", async () => {
  const { clock, call, taken } = both(ok, { failed: 0 });
  const controller = new AbortController();
  const end = failure(() => call(URL_OF, { signal: controller.signal }));
  await clock.advance(7);
  controller.abort("enough");
  await clock.advance(20);
  assert.is(await end, "enough");
  assert.equal(taken(), [1, 40]);
});

test("an error of the limiter rejects the call, and nothing is sent", async () => {
  const { clock, server, seen } = setUp(ok);
  const small = Limiters.create(tokenBucket({ capacity: 1, refill: 1, everyMs: 1000 }), { clock });
  const big = limitedFetch(small, { fetch: server.fetch, permits: 2 });
  assert.instance(await failure(() => big(URL_OF)), PermitsExceedCapacityError);
  const full = RateLimiter.create(1, { clock, maxWaiting: 0 });
  full.tryAcquire();
  assert.instance(await failure(() => limitedFetch(full)(URL_OF)), QueueFullError);
  assert.is(seen.length, 0);
});

test("a limiter that cannot be paused does not lose the response", async () => {
  const { clock, server, limiter } = setUp(inTurn(status(429, { "retry-after": "1" }), ok));
  const away = () => Promise.reject(new Error("the store is away"));
  const deaf: Limiter = {
    acquire: (permits, options) => limiter.acquire(permits, options),
    tryAcquire: ((permits?: number) => limiter.tryAcquire(permits)) as LocalLimiter["tryAcquire"],
    reserve: () => limiter.reserve(),
    decide: () => limiter.decide(),
    peek: away,
    charge: away,
    refund: away,
    pause: away,
    reset: away,
    update: away,
  };
  const call = watch(clock, limitedFetch(deaf, { fetch: server.fetch, clock })(URL_OF));
  await clock.advance(5000);
  assert.is(call.value?.status, 200);
  assert.equal(
    server.seen.map(({ at }) => at),
    [5, 1015],
    "the request stays charged",
  );
});

test("a rate that cannot be set does not lose the response", async () => {
  const { clock, limiter, server } = setUp(ok);
  let calls = 0;
  const setRate = () => {
    if (calls++ > 0) throw new Error("the store is away");
  };
  const adaptive = { min: 1, max: 100, start: 10, setRate };
  const call = limitedFetch(limiter, { fetch: server.fetch, clock, adaptive });
  const ends = Array.from({ length: 15 }, () => call(URL_OF));
  await clock.advance(3000);
  for (const { status } of await Promise.all(ends)) assert.is(status, 200);
  assert.ok(calls > 1, "the rate has risen");
});

test("bad arguments are refused before anything happens", async () => {
  const limiter = RateLimiter.create(1);
  const rows: [LimitedFetchOptions, string][] = [
    [{ permits: 0 }, "permits must be a finite number above 0, got 0"],
    [{ permits: { tokens: -1 } }, "permits.tokens must be a finite number above 0, got -1"],
    [{ permits: {} }, "permits must name a policy"],
    [{ failed: [] as never }, "failed must be a finite number, 0 or more, got an array"],
    [{ failed: -1 }, "failed must be a finite number, 0 or more, got -1"],
    [{ used: 5 as never }, "used must be a function, got 5"],
    [{ fetch: "fetch" as never }, 'fetch must be a function, got "fetch"'],
    [{ retries: 1.5 }, "retries must be a whole number, 0 or more, got 1.5"],
    [{ retryNonIdempotent: 1 as never }, "retryNonIdempotent must be true or false, got 1"],
    [
      { maxRetryAfterMs: Number.NaN },
      "maxRetryAfterMs must be a finite number, 0 or more, got NaN",
    ],
    [{ backoffMs: 0 }, "backoffMs must be a finite number above 0, got 0"],
    [{ sync: "yes" as never }, 'sync must be true or false, got "yes"'],
    [{ clock: {} as never }, "clock must have now() and wakeAt(timeMs, wake)"],
    [{ timeout: 5 } as never, 'options has no "timeout"; expected one of permits, used, failed'],
  ];
  for (const [options, message] of rows) {
    const error = await failure(() => limitedFetch(limiter, options));
    assert.ok(String(error).includes(message), String(error));
  }
  const none = await failure(() => limitedFetch(undefined as never));
  assert.match(String(none), "limiter must be a rate limiter or a function, got undefined");
  const leases = await failure(() => limitedFetch(ConcurrencyLimiter.create(2) as never));
  assert.match(String(leases), "limiter must be a rate limiter or a function, got an object");
  const call = limitedFetch(() => 5 as never);
  assert.match(String(await failure(() => call(URL_OF))), "limiter must be a rate limiter");
});

test("smooth policies of several names are weighed by name", async () => {
  const { clock, server } = setUp(ok);
  const limiter = Limiters.create(
    {
      requests: smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 }),
      tokens: smoothBursty({ permitsPerSecond: 100, burstSeconds: 0 }),
    },
    { clock },
  );
  const call = limitedFetch(limiter, {
    ...{ fetch: server.fetch, clock },
    permits: { requests: 1, tokens: 50 },
  });
  const calls = [call(URL_OF), call(URL_OF)];
  await clock.advance(1000);
  await Promise.all(calls);
  assert.equal(
    server.seen.map(({ at }) => at),
    [5, 505],
  );
});

test.run();
