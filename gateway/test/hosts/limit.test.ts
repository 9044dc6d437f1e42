/** What `limitRequests` decides, without a server. */
import {
  allOf,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  leakyBucket,
  type Policy,
  RateLimiter,
  slidingLog,
  tokenBucket,
} from "smooth-limiter";
import { StoreLimiter } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type GatewayRequest,
  type LimiterByKey,
  type LimitOptions,
  type LimitVerdict,
  limitRequests,
} from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("limitRequests");

const window = (limit: number) => fixedWindow({ limit, windowMs: 60_000, align: "first" });

function keyed(policy: Policy): { clock: FakeClock; limiter: KeyedLimiter } {
  const clock = new FakeClock();
  return { clock, limiter: KeyedLimiter.create(policy, { clock }) };
}

/** How many requests pass before the first refusal, and the verdict of that one. */
async function passing(
  limiter: Limiter | LimiterByKey,
  options: LimitOptions,
  asked: GatewayRequest = request("/"),
): Promise<{ passed: number; last: LimitVerdict }> {
  const filter = limitRequests(limiter, options);
  for (let passed = 0; passed < 5000; passed++) {
    const last = (await filter.check(asked)) as LimitVerdict;
    if (!last.allowed) return { passed, last };
  }
  return { passed: Infinity, last: undefined as never };
}

test("answers at once where the limiter does", () => {
  const { limiter } = keyed(window(1));
  const verdict = limitRequests(limiter).check(request("/")) as LimitVerdict;
  assert.equal([verdict.allowed, verdict.key, verdict.remaining], [true, "192.0.2.1", 0]);
});

test("an IPv6 client counts by its network, as wide as the option says", async () => {
  const { limiter } = keyed(window(1));
  const filter = limitRequests(limiter, { ipv6Prefix: 64 });
  const from = async (remoteAddress: string) =>
    (await filter.check(request("/", { remoteAddress }))).allowed;
  assert.is(await from("2001:db8::1"), true);
  assert.is(await from("2001:db8::2"), false);
  assert.is(await from("2001:db8:0:1::2"), true);
});

test("a missing key is counted by the address, apart from keys that look like it", async () => {
  const { limiter } = keyed(window(1));
  let key: string | number | bigint | null | undefined;
  const filter = limitRequests(limiter, { key: () => key });
  const passes = async (next: typeof key) => {
    key = next;
    return (await filter.check(request("/"))).allowed;
  };
  assert.is(await passes(undefined), true);
  assert.is(await passes(null), false);
  assert.is(await passes(""), false);
  assert.is(await passes("192.0.2.1"), true);
  assert.is(await passes("?192.0.2.1"), true);
  assert.is(await passes("=?192.0.2.1"), true);
  assert.is(await passes(7), true);
  assert.is(await passes("7"), false);
  assert.is(await passes(8n), true);
});

test("a request without an address and without a key shares one quota", async () => {
  const { limiter } = keyed(window(1));
  const filter = limitRequests(limiter);
  const nowhere = request("/", { remoteAddress: undefined });
  assert.is((await filter.check(nowhere)).allowed, true);
  assert.is((await filter.check(nowhere)).allowed, false);
});

test("long keys are hashed: a client cannot fill the memory", async () => {
  const { limiter } = keyed(window(1));
  const filter = limitRequests(limiter, { key: () => "x".repeat(16_384) });
  const { key } = (await filter.check(request("/"))) as LimitVerdict;
  assert.match(key, /^#.{43}$/);
});

test("a plain limiter and a combination count all requests together", async () => {
  const clock = new FakeClock();
  const two = Limiter.create(window(2), { clock });
  const one = Limiter.create(window(1), { clock });
  assert.is((await passing(two, {})).passed, 2);
  two.reset();
  const { passed, last } = await passing(allOf(two, one), {});
  assert.equal([passed, last.key], [1, ""]);
  assert.is((await passing(RateLimiter.create(3, { prefilled: true, clock }), {})).passed, 4);
});

test("a limiter on a store, keyed", async () => {
  const limiter = StoreLimiter.create(memoryStore(), "users", window(2));
  const { passed, last } = await passing(limiter, { key: () => "ann" });
  assert.equal([passed, last.limit, last.remaining], [2, 2, 0]);
  assert.is((await limiter.for("ann").peek()).remaining, 0);
  await limiter.close();
});

test("a cost counts permits, and 0 lets the request pass uncounted", async () => {
  const { limiter } = keyed(window(10));
  assert.is((await passing(limiter, { key: () => "a", cost: 3 })).passed, 3);
  assert.is((await passing(limiter, { key: () => "b", cost: () => 3 })).passed, 3);
  assert.is((await passing(limiter, { key: () => "b", cost: () => 0 })).passed, Infinity);
  assert.is(limiter.for("b").peek().remaining, 1);
});

test("quotas are requests under a fixed cost, and permits under a cost by request", async () => {
  const { limiter } = keyed(window(10));
  const quota = async (options: LimitOptions) => {
    const verdict = await limitRequests(limiter, options).check(request("/"));
    const { limit, remaining } = verdict as LimitVerdict;
    return [limit, remaining];
  };
  assert.equal(await quota({ key: () => "a", cost: 2 }), [5, 4]);
  assert.equal(await quota({ key: () => "b", cost: () => 2 }), [10, 8]);
});

test("a request that costs more than ever passes is refused without a time to retry", async () => {
  const { limiter } = keyed(window(10));
  for (const limit of [undefined, 10]) {
    const { passed, last } = await passing(limiter, { cost: () => 11, limit });
    assert.equal([passed, last.retryMs, last.limit], [0, Infinity, 10]);
  }
  const shared = StoreLimiter.create(memoryStore(), "users", window(10));
  assert.is((await passing(shared, { cost: () => 11 })).last.retryMs, Infinity);
  await shared.close();
});

const POLICIES: Readonly<Record<string, (limit: number) => Policy>> = {
  fixedWindow: window,
  slidingLog: (limit) => slidingLog({ limit, windowMs: 60_000 }),
  tokenBucket: (limit) => tokenBucket({ capacity: limit, refill: limit, everyMs: 60_000 }),
  gcra: (limit) => gcra({ limit, periodMs: 60_000, burst: limit - 1 }),
};

for (const [name, policy] of Object.entries(POLICIES)) {
  test(`limit as a number is that many requests, to the last one: ${name}`, async () => {
    for (const own of [1, 7, 100]) {
      for (const limit of [1, 3, 7, 60, 300]) {
        const { limiter, clock } = keyed(policy(own));
        const { passed, last } = await passing(limiter, { limit });
        assert.equal([passed, last.limit, last.remaining], [limit, limit, 0], `${limit} of ${own}`);
        await clock.advance(last.retryMs);
        assert.is((await limitRequests(limiter, { limit }).check(request("/"))).allowed, true);
      }
    }
  });
}

test("limit as a number follows the request, and shares the quota already used", async () => {
  const { limiter } = keyed(window(10));
  let limit = 10;
  const filter = limitRequests(limiter, { limit: () => limit });
  const quota = async () => {
    const { limit, remaining } = (await filter.check(request("/"))) as LimitVerdict;
    return [limit, remaining];
  };
  for (let i = 0; i < 4; i++) await quota();
  assert.equal(await quota(), [10, 5]);
  limit = 100; // the client has a better plan now
  assert.equal(await quota(), [100, 49]);
});

test("limit as a number follows other numbers of the limiter", async () => {
  const { limiter } = keyed(window(10));
  const filter = limitRequests(limiter, { limit: 4 });
  await filter.check(request("/"));
  limiter.update(window(1000));
  await filter.check(request("/")); // by the numbers seen last
  const { limit, remaining } = (await filter.check(request("/"))) as LimitVerdict;
  assert.is(limit, 4);
  assert.ok(remaining >= 2, `${remaining} left`);
});

test("limit as a number on a shared limiter", async () => {
  const limiter = StoreLimiter.create(memoryStore(), "users", window(2));
  assert.is((await passing(limiter, { key: () => "ann", limit: 5 })).passed, 5);
  await limiter.close();
});

test("a limit of 0 refuses, and no limit is the limiter's own", async () => {
  const { limiter } = keyed(window(2));
  const { passed, last } = await passing(limiter, { limit: () => 0 });
  assert.equal([passed, last.limit, last.retryMs], [0, 0, Infinity]);
  assert.is((await passing(limiter, { limit: () => null })).passed, 2);
});

test("limit as a policy has a count of its own", async () => {
  const { limiter, clock } = keyed(window(2));
  const options = { clock, limit: () => slidingLog({ limit: 3, windowMs: 1000 }) };
  const { passed, last } = await passing(limiter, options);
  assert.equal([passed, last.retryMs], [3, 1000]);
  assert.is(limiter.size, 0);
  assert.is((await passing(limiter, {})).passed, 2);
});

test("policies from limit are bounded: the ones used last keep their counts", async () => {
  const { limiter, clock } = keyed(window(2));
  let limit = 1;
  const filter = limitRequests(limiter, { clock, limit: () => window(limit) });
  const passes = async (next: number) => {
    limit = next;
    return (await filter.check(request("/"))).allowed;
  };
  assert.equal([await passes(1), await passes(1)], [true, false]);
  for (let i = 2; i <= 1000; i++) await passes(i);
  assert.is(await passes(1), false, "it is known");
  await passes(1001);
  assert.is(await passes(1), false, "it was used before");
  for (let i = 2; i <= 1001; i++) await passes(i);
  assert.is(await passes(1), true, "it was forgotten");
});

test("limit as a limiter takes from that limiter", async () => {
  const { limiter } = keyed(window(2));
  const { limiter: pro } = keyed(window(4));
  assert.is((await passing(limiter, { limit: () => pro })).passed, 4);
  assert.equal([limiter.size, pro.size], [0, 1]);
  const everyone = Limiter.create(window(3));
  assert.is((await passing(everyone, { limit: () => pro, key: () => "bob" })).passed, 4);
  assert.is((await passing(everyone, { limit: () => undefined })).passed, 3);
});

test("a request waits for its turn, no longer than maxWaitMs", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 9 }), { clock });
  const filter = limitRequests(limiter, { maxWaitMs: 1500 });
  assert.is((await filter.check(request("/"))).allowed, true);
  const waits = filter.check(request("/"));
  assert.is((await filter.check(request("/"))).allowed, false);
  await clock.advance(1000);
  const { allowed, waitedMs } = (await waits) as LimitVerdict;
  assert.equal([allowed, waitedMs], [true, 1000]);
});

test("a failing function never lets a request escape the limit", async () => {
  const tea = () => {
    throw new Error("tea");
  };
  const bad: LimitOptions[] = [
    { skip: tea },
    { skip: () => "yes" as never },
    { cost: tea },
    { cost: () => Number.NaN },
    { cost: () => -1 },
    { cost: () => Promise.reject(new Error("tea")) },
    { limit: tea },
    { limit: () => -1 },
    { limit: () => "5" as never },
  ];
  for (const options of bad) {
    const { limiter } = keyed(window(2));
    const filter = limitRequests(limiter, options);
    const received: unknown[] = [];
    const verdicts: boolean[] = [];
    for (let i = 0; i < 3; i++) {
      verdicts.push(
        (await filter.check(request("/"), (error) => void received.push(error))).allowed,
      );
    }
    assert.equal([verdicts, received.length], [[true, true, false], 3]);
  }
});

test("no cost and no limit is too large or too small to be decided", async () => {
  const extremes = [Number.MIN_VALUE, 1e-300, 1e-9, 1, 1e9, 1e300, Number.MAX_VALUE];
  for (const cost of extremes) {
    for (const limit of extremes) {
      const { limiter } = keyed(window(2));
      const options = { cost: () => cost, limit: () => limit, name: `${cost} of ${limit}` };
      const verdicts = await passing(limiter, options);
      if (cost > limit) assert.is(verdicts.passed, 0, options.name);
      if (cost === limit) assert.ok(verdicts.passed <= 1, options.name);
    }
  }
});

test("a function that takes too long has failed", async () => {
  const { limiter, clock } = keyed(window(1));
  const key = () => new Promise<string>(() => {});
  const received: string[] = [];
  const filter = limitRequests(limiter, { key, clock, timeoutMs: 50 });
  const verdict = filter.check(request("/"), (error) => void received.push(String(error)));
  await clock.advance(50);
  assert.is(((await verdict) as LimitVerdict).key, "?192.0.2.1");
  assert.equal(received, ["TimeoutError: no answer within 50 ms"]);
});

test("a policy where the limiter is shared is an error, because it would count in this process", () => {
  const limiter = StoreLimiter.create(memoryStore(), "users", window(2));
  assert.throws(
    () => limitRequests(limiter, { limit: window(3) }),
    /limit is a policy, which is counted in this process, but the limiter is shared: give a limiter/,
  );
});

const warnings = async (work: () => unknown): Promise<string[]> => {
  const received: string[] = [];
  const listen = ({ message }: Error) => void received.push(message);
  process.on("warning", listen);
  await work();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  return received;
};

test("a number as limit of a limiter with several policies is ignored with one warning", async () => {
  const clock = new FakeClock();
  const policies = { short: window(2), long: fixedWindow({ limit: 3, windowMs: 3_600_000 }) };
  const limiter = KeyedLimiter.create(policies, { clock });
  const received = await warnings(async () => {
    assert.is((await passing(limiter, { limit: 100 })).passed, 2);
  });
  assert.is(received.length, 1);
  assert.match(received[0] ?? "", /^limit is a number, but the limiter has several policies/);
});

test("a failing function without onError warns once", async () => {
  const { limiter } = keyed(window(9));
  const key = () => {
    throw new Error("tea");
  };
  const filter = limitRequests(limiter, { key });
  const received = await warnings(() => {
    for (const _ of [1, 2]) void filter.check(request("/"));
  });
  assert.is(received.length, 1);
  assert.match(
    received[0] ?? "",
    /^key failed, so the request is counted by its address: Error: tea/,
  );
});

test("a request whose end is not reported counts, whatever its answer", async () => {
  const { limiter } = keyed(window(2));
  assert.is((await passing(limiter, { count: "failures" })).passed, 2);
});

test("permits come back once, never above the limit, and stay if the client has left", async () => {
  const { limiter, clock } = keyed(window(2));
  const filter = limitRequests(limiter, { count: "failures" });
  const answers: ((status: number | undefined) => void)[] = [];
  const asked = request("/", { onAnswered: (answered) => void answers.push(answered) });
  const left = () => limiter.for("192.0.2.1").peek().remaining;
  await filter.check(asked);
  await filter.check(asked);
  assert.is(left(), 0);
  answers[0]?.(undefined);
  assert.is(left(), 0);
  answers[1]?.(200);
  assert.is(left(), 1);
  await filter.check(asked);
  await clock.advance(60_000);
  answers[2]?.(200);
  assert.is(left(), 2);
});

test("an error of count, or of giving back, is reported and nothing else", async () => {
  const { limiter } = keyed(window(2));
  const received: unknown[] = [];
  const count = () => {
    throw new Error("tea");
  };
  const answers: ((status: number | undefined) => void)[] = [];
  const asked = request("/", { onAnswered: (answered) => void answers.push(answered) });
  await limitRequests(limiter, { count }).check(
    asked,
    (error) => void received.push(String(error)),
  );
  await limitRequests(limiter, { count }).check(asked);
  const late = { count: (() => Promise.reject(new Error("late"))) as never };
  const { limiter: other } = keyed(window(2));
  await limitRequests(other, late).check(asked, (error) => void received.push(String(error)));
  for (const answer of answers) answer(200);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(received, ["Error: tea", "Error: late"]);
});

test("wrong arguments are refused with what is allowed", () => {
  const { limiter } = keyed(window(1));
  const rejects = (options: object, words: RegExp, of: unknown = limiter) =>
    assert.throws(() => limitRequests(of as LimiterByKey, options), words);
  rejects({}, /limiter must be a limiter, such as KeyedLimiter.create.* got an object/, {});
  rejects(
    { keyGenerator: "x" },
    /options has no "keyGenerator": use key; expected one of key, trust/,
  );
  rejects(
    { windowMs: 1 },
    /has no "windowMs": use limit: fixedWindow\(.* }\); expected one of key/,
  );
  rejects({ handler: "x" }, /options has no "handler"; expected/);
  rejects({ keys: "x" }, /options has no "keys"; expected one of key, trustedProxies/);
  rejects({ key: "ip" }, /key must be a function, got "ip"/);
  rejects({ key: () => "a" }, /key is for limiters by key/, Limiter.create(window(1)));
  rejects({ cost: 0 }, /cost must be a finite number above 0, got 0/);
  rejects({ limit: -1 }, /limit must be a finite number, 0 or more, got -1/);
  rejects({ limit: "5" }, /limit must be a number, a policy or a limiter, got "5"/);
  rejects({ skip: true }, /skip must be a function, got true/);
  rejects({ count: "errors" }, /count must be one of all, failures, successes, got "errors"/);
  rejects({ maxWaitMs: -1 }, /maxWaitMs must be a finite number, 0 or more, got -1/);
  rejects({ name: "ü" }, /name must be printable ASCII, got "ü"/);
  rejects({ timeoutMs: 0 }, /timeoutMs must be a finite number above 0, got 0/);
  rejects({ trustedProxies: 0.5 }, /trustedProxies must be a whole number/);
  rejects({ clock: {} }, /clock/);
});

test("a limiter that never decides fails after timeoutMs, or maxWaitMs later, and holds no request", async () => {
  for (const [maxWaitMs, lastMs] of [
    [0, 100],
    [50, 150],
  ] as const) {
    const clock = new FakeClock();
    const never = () => new Promise(() => {});
    const hangs = { decide: never, peek: never, reserve: never } as never;
    const filter = limitRequests(hangs, { timeoutMs: 100, maxWaitMs, clock });
    let said: unknown;
    Promise.resolve(filter.check(request("/"))).catch((error: unknown) => {
      said = error;
    });
    await clock.advance(lastMs - 1);
    assert.is(said, undefined);
    await clock.advance(1);
    assert.is(String(said), `TimeoutError: no answer within ${lastMs} ms`);
  }
});

test("the deadline of a limiter is not that of a request which waits for its permits", async () => {
  const clock = new FakeClock();
  const policy = fixedWindow({ limit: 1, windowMs: 1000, align: "first" });
  const limiter = Limiter.create(policy, { clock });
  const filter = limitRequests(limiter, { timeoutMs: 100, maxWaitMs: 5000, clock });
  await filter.check(request("/"));
  const waits = filter.check(request("/"));
  limiter.pause(60_000);
  await clock.advance(61_000);
  assert.is((await waits).allowed, true);
});

test.run();
