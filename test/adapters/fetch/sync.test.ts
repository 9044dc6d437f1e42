import * as assert from "uvu/assert";
import { type LimitedFetchOptions, limitedFetch } from "../../../src/adapters/fetch/index.ts";
import { Limiter, type LocalLimiter, RateLimiter, tokenBucket } from "../../../src/index.ts";
import { type FakeServer, fakeServer, refusals, status } from "../../support/fetch/fake-server.ts";
import { bursts, WindowCounter } from "../../support/fetch/window-server.ts";
import { watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("limited fetch, learning");

const URL_OF = "http://api.test/";

/** Runs a number of callers for a time; each calls again as soon as it is answered. */
async function load(
  { clock }: FakeServer,
  call: typeof fetch,
  callers: number,
  ms: number,
): Promise<void> {
  const end = clock.now() + ms;
  const work = async () => {
    while (clock.now() < end) await call(URL_OF);
  };
  const all = Promise.all(Array.from({ length: callers }, work));
  await clock.advance(ms + 200_000);
  await all;
}

/** A server that counts windows and reports its state; each test chooses the requests. */
function windowed(limit: number, windowMs: number) {
  const counter = new WindowCounter(limit, windowMs);
  const server = fakeServer((_, now) => {
    const admitted = counter.admit(now);
    const retry = { "retry-after": `${Math.ceil(counter.resetMs(now) / 1000)}` };
    const headers = { ...counter.fields(now), ...(!admitted && retry) };
    return status(admitted ? 200 : 429, headers)();
  });
  return { counter, server };
}

function fetchWith({ clock, fetch }: FakeServer, limiter: LocalLimiter, more: LimitedFetchOptions) {
  return limitedFetch(limiter, { fetch, clock, ...more });
}

test("a limiter that is much too fast causes one burst of refusals, then uses the whole limit", async () => {
  const { counter, server } = windowed(50, 4000);
  const limiter = RateLimiter.create(1000, { clock: server.clock, prefilled: true });
  await load(server, fetchWith(server, limiter, { retries: 5 }), 75, 60_000);
  assert.ok(bursts(counter.refusedAt, 4000) <= 1, `${counter.refusedAt}`);
  assert.ok(counter.refused <= 25, `${counter.refused} refused of 75 at once`);
  const share = counter.acceptedWithin(60_000) / (50 * 15);
  assert.ok(share > 0.95, `${share} of the allowance was used`);
});

test("without sync every window is overrun", async () => {
  const { counter, server } = windowed(50, 4000);
  const limiter = RateLimiter.create(1000, { clock: server.clock });
  await load(server, fetchWith(server, limiter, { retries: 5, sync: false }), 75, 60_000);
  assert.ok(bursts(counter.refusedAt, 2000) > 5, `${counter.refusedAt}`);
});

test("a change of the server's limit causes one burst of refusals at the most", async () => {
  const { counter, server } = windowed(50, 4000);
  const limiter = RateLimiter.create(1000, { clock: server.clock });
  const call = fetchWith(server, limiter, { retries: 5 });
  const { clock } = server;
  for (const [at, limit] of [
    [21_000, 15],
    [41_000, 40],
  ] as const) {
    clock.wakeAt(at, () => {
      counter.limit = limit;
    });
  }
  await load(server, call, 20, 60_000);
  const changes = bursts(counter.refusedAt, 4000);
  assert.ok(changes <= 1, `${counter.refusedAt}`);
  const share = counter.acceptedWithin(60_000) / (50 * 5 + 15 * 5 + 40 * 5);
  assert.ok(share > 0.9, `${share} of the allowance was used`);
});

test("a limit shared with another client is not overrun", async () => {
  const { counter, server } = windowed(50, 4000);
  const { clock } = server;
  const limiter = RateLimiter.create(12.5, { clock });
  const call = fetchWith(server, limiter, {});
  // another client uses the same key, more or less evenly
  const other = () => {
    counter.admit(clock.now());
    if (clock.now() < 60_000) clock.wakeAt(clock.now() + 197, other);
  };
  other();
  await load(server, call, 10, 60_000);
  // the other client may take the last permit of a window while a request of this one is in flight
  assert.ok(refusals(server.seen) <= 8, `${refusals(server.seen)} refused in 15 windows`);
  const share = counter.acceptedWithin(60_000) / (50 * 15);
  assert.ok(share > 0.9, `${share} of the allowance was used`);
});

test("the right limit causes no refusal", async () => {
  const { counter, server } = windowed(50, 4000);
  const limiter = RateLimiter.create(12.5, { clock: server.clock, burstSeconds: 0 });
  await load(server, fetchWith(server, limiter, {}), 20, 60_000);
  assert.is(counter.refused, 0);
  const share = counter.acceptedWithin(60_000) / (50 * 15);
  assert.ok(share > 0.9, `${share} of the allowance was used`);
});

test("the limiter's lead over the server is charged, and nothing is given back", async () => {
  const server = fakeServer(
    status(200, { "ratelimit-remaining": "30", "ratelimit-limit": "100", "ratelimit-reset": "60" }),
  );
  const { clock } = server;
  const policy = tokenBucket({ capacity: 50, refill: 1, everyMs: 60_000 });
  const limiter = Limiter.create(policy, { clock });
  const call = fetchWith(server, limiter, {});
  const remaining = () => Math.round(limiter.peek().remaining);
  for (const expected of [30, 29, 28]) {
    const one = watch(clock, call(URL_OF));
    await clock.advance(10);
    assert.is(one.value?.status, 200);
    assert.is(remaining(), Math.min(expected, 30));
  }
});

test("requests sent after a response's own request are subtracted", async () => {
  let left = 10;
  const server = fakeServer(() => {
    left -= 1;
    return status(200, {
      "ratelimit-remaining": `${Math.max(0, left)}`,
      "ratelimit-reset": "60",
    })();
  }, 500);
  const { clock, seen } = server;
  const limiter = RateLimiter.create(100, { clock, burstSeconds: 0 });
  const call = fetchWith(server, limiter, { maxRetryAfterMs: 100_000 });
  const calls: Promise<Response>[] = [];
  const ask = (n: number) => calls.push(...Array.from({ length: n }, () => call(URL_OF)));
  ask(1);
  await clock.advance(990);
  ask(2); // both requests leave before the first response arrives: 9 remain, 7 of them are left
  await clock.advance(30);
  ask(30);
  await clock.advance(55_000);
  assert.is(seen.length, 10);
  await clock.advance(100_000);
  assert.is(seen.length, 33);
  await Promise.all(calls);
});

test("quotas by the names of the policies: requests and tokens", async () => {
  const remaining: Record<string, string> = { requests: "50", tokens: "1000" };
  const server = fakeServer(() => {
    const headers = Object.entries(remaining).flatMap(([name, left]) => [
      [`x-ratelimit-remaining-${name}`, left],
      [`x-ratelimit-limit-${name}`, "1000"],
      [`x-ratelimit-reset-${name}`, "10s"],
    ]);
    return new Response(null, { headers: Object.fromEntries(headers) });
  });
  const { clock, seen } = server;
  const bucket = tokenBucket({ capacity: 1000, refill: 1, everyMs: 1000 });
  const limiter = Limiter.create({ requests: bucket, tokens: bucket }, { clock });
  const call = fetchWith(server, limiter, { permits: { requests: 1, tokens: 600 } });
  const first = watch(clock, call(URL_OF));
  await clock.advance(10);
  assert.is(first.value?.status, 200);
  const { policies } = limiter.peek();
  assert.equal(
    [policies.requests, policies.tokens].map((each) => Math.round(each?.remaining ?? 0)),
    [51, 400],
    "the refill of a bucket while a response is in flight is included",
  );
  // 10 tokens remain and 99 more a second are refilled: 600 in about 6 s
  remaining.tokens = "10";
  limiter.refund({ tokens: 1000 });
  const second = watch(clock, call(URL_OF));
  await clock.advance(100);
  assert.is(second.value?.status, 200);
  limiter.refund({ tokens: 1000 });
  watch(clock, call(URL_OF));
  await clock.advance(5000);
  assert.is(seen.length, 2);
  await clock.advance(200_000);
  assert.is(seen.length, 3);
});

test("a hold beyond maxRetryAfterMs is not applied: the server decides", async () => {
  const server = fakeServer(
    status(200, { "ratelimit-remaining": "0", "ratelimit-reset": "3600", "ratelimit-limit": "9" }),
  );
  const { clock, seen } = server;
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const call = fetchWith(server, limiter, {});
  const calls = [call(URL_OF), call(URL_OF)];
  await clock.advance(1000);
  await Promise.all(calls);
  assert.is(seen.length, 2);
});

test("a server cannot fill the memory with names", async () => {
  let n = 0;
  const server = fakeServer(
    () => new Response(null, { headers: { ratelimit: `"${n++}";r=0;t=1` } }),
  );
  const { clock, seen } = server;
  const limiter = RateLimiter.create(1000, { clock });
  const call = fetchWith(server, limiter, {});
  for (let i = 0; i < 40; i++) {
    const one = watch(clock, call(URL_OF));
    await clock.advance(1100);
    assert.is(one.value?.status, 200);
  }
  assert.is(seen.length, 40);
  const from = seen[30]?.at ?? 0;
  assert.ok((seen[39]?.at ?? 0) - from < 10_000, "names beyond the first sixteen hold no request");
});

test.run();
