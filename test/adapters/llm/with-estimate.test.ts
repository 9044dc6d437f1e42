import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { type EstimateOptions, withEstimate } from "../../../src/adapters/llm/index.ts";
import { Limiter, type Permits, tokenBucket } from "../../../src/index.ts";
import { RedisLimiter, StoreUnavailableError } from "../../../src/redis/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { PATIENT } from "../../support/patient.ts";
import { freshUrl } from "../../support/redis/server.ts";
import { elsewhere } from "../../support/streams/forms.ts";
import { suite } from "../../support/suite.ts";

const test = suite("with an estimate");

const policies = {
  requests: tokenBucket({ capacity: 100, refill: 1, everyMs: 1000 }),
  tokens: tokenBucket({ capacity: 1000, refill: 100, everyMs: 1000 }),
};

function setUp() {
  const clock = new FakeClock();
  const limiter = Limiter.create(policies, { clock });
  const taken = () => {
    const { requests, tokens } = limiter.peek({ requests: 1 }).policies;
    return [100 - (requests?.remaining ?? 0), 1000 - (tokens?.remaining ?? 0)];
  };
  return { clock, limiter, taken };
}

const estimate = { requests: 1, tokens: 300 };
type Settle = (actual: Permits) => Promise<void>;

test("the actual use is settled, however the function ends", async () => {
  const no = new Error("no");
  const fail = () => Promise.reject(no);
  const rows: [fn: (settle: Settle) => unknown, options: EstimateOptions, taken: number[]][] = [
    [() => {}, {}, [1, 300]],
    [(settle) => settle({ tokens: 120 }), {}, [1, 120]],
    [(settle) => settle({ tokens: 450 }), {}, [1, 450]],
    [(settle) => settle({ tokens: 0, requests: 3 }), {}, [3, 0]],
    [(settle) => settle(7), {}, [7, 7]],
    [(settle) => settle({ tokens: 120 }).then(() => settle({ tokens: 1 })), {}, [1, 120]],
    [fail, {}, [0, 0]],
    [fail, { failed: { tokens: 0 } }, [1, 0]],
    [fail, { failed: { tokens: 20 } }, [1, 20]],
    [(settle) => settle({ tokens: 120 }).then(fail), {}, [1, 120]],
    [(settle) => settle({ tokens: Number.NaN }), {}, [1, 300]],
    [(settle) => settle({ tokens: undefined as never }), {}, [1, 300]],
    [(settle) => settle({ tokens: -1, requests: 5 }), {}, [1, 300]],
    [(settle) => settle({ tokens: -1 }).then(() => settle({ tokens: 120 })), {}, [1, 120]],
    [(settle) => settle({ tokens: -1 }).then(fail), { failed: { tokens: 0 } }, [1, 300]],
    [fail, { failed: { coins: 5 } }, [0, 0]],
  ];
  for (const [i, [fn, options, expected]] of rows.entries()) {
    const { limiter, taken } = setUp();
    await withEstimate(limiter, estimate, fn, { onUnsettled: () => {}, ...options }).catch(
      () => {},
    );
    assert.equal(taken(), expected, `row ${i}`);
  }
});

test("one number for one policy, and for all policies", async () => {
  for (const [asked, actual, expected] of [
    [5, 2, [2, 2]],
    [5, { tokens: 9 }, [5, 9]],
    [{ tokens: 5 }, { requests: 2 }, [2, 5]],
  ] as [Permits, Permits, number[]][]) {
    const { limiter, taken } = setUp();
    await withEstimate(limiter, asked, (settle) => settle(actual));
    assert.equal(taken(), expected);
  }
});

test("use beyond a policy's capacity is charged too, and the result is returned", async () => {
  for (const [asked, actual, waits] of [
    [5, 37, [2900, 1800]],
    [{ tokens: 5 }, { tokens: 37 }, [2900, 0]],
    [{ tokens: 5, requests: 1 }, { tokens: 12, requests: 22 }, [400, 300]],
  ] as [Permits, Permits, number[]][]) {
    const clock = new FakeClock();
    const bucket = (capacity: number, everyMs: number) =>
      tokenBucket({ capacity, refill: 1, everyMs });
    const policies = { tokens: bucket(10, 100), requests: bucket(20, 100) };
    const limiter = Limiter.create(policies, { clock });
    const answer = await withEstimate(limiter, asked, async (settle) => {
      await settle(actual);
      return "answer";
    });
    assert.is(answer, "answer");
    assert.equal([limiter.peek({ tokens: 2 }).waitMs, limiter.peek({ requests: 1 }).waitMs], waits);
  }
});

test("an unusable number is reported, and the result is returned", async () => {
  for (const [actual, message] of [
    [
      { tokens: undefined },
      "TypeError: actual.tokens must be a finite number, 0 or more, got undefined",
    ],
    [
      { tokens: Number.NaN },
      "RangeError: actual.tokens must be a finite number, 0 or more, got NaN",
    ],
    [undefined, "TypeError: actual must be a finite number, 0 or more, got undefined"],
  ] as [never, string][]) {
    const { limiter, taken } = setUp();
    const errors: unknown[] = [];
    const onUnsettled = (error: unknown) => {
      errors.push(error);
      throw new Error("the listener's own error");
    };
    const fn = (settle: Settle) => settle(actual).then(() => "answer");
    assert.is(await withEstimate(limiter, estimate, fn, { onUnsettled }), "answer");
    assert.equal(errors.map(String), [message]);
    assert.equal(taken(), [1, 300]);
  }
});

test("the first estimate that leaves out a policy is a warning", async () => {
  const limiter = Limiter.create({ turns: policies.requests, words: policies.tokens });
  const warnings: string[] = [];
  const listen = ({ message }: Error) => void warnings.push(message);
  process.on("warning", listen);
  try {
    const shared = { ...elsewhere(limiter), peek: () => Promise.reject(new Error("gone")) };
    await withEstimate(shared, { words: 2 }, () => {});
    await turn();
    for (const estimate of [2, { turns: 1, words: 2 }, { words: 2 }, { words: 2 }]) {
      await withEstimate(limiter, estimate, () => {});
      await turn();
    }
  } finally {
    process.off("warning", listen);
  }
  const ours = warnings.filter((text) => text.includes("only words"));
  assert.equal(ours, [
    "withEstimate: the estimate names only words, so calls take no turns: name every policy that they use",
  ]);
});

test("without a listener the first unusable number of a limiter is a warning", async () => {
  const { limiter } = setUp();
  const warnings: string[] = [];
  const listen = ({ message }: Error) => void warnings.push(message);
  process.on("warning", listen);
  try {
    for (let i = 0; i < 2; i++) {
      await withEstimate(limiter, estimate, (settle) => settle({ tokens: Number.NaN }));
    }
    await turn();
  } finally {
    process.off("warning", listen);
  }
  assert.is(
    warnings.filter((text) => text.includes("withEstimate: settle() got no usable")).length,
    1,
  );
});

test("a policy that settle misspells changes nothing, and is reported", async () => {
  for (const asked of [5, estimate]) {
    const { limiter, taken } = setUp();
    const errors: unknown[] = [];
    const onUnsettled = (error: unknown) => void errors.push(error);
    const fn = (settle: Settle) => settle({ tokens: 900, coins: 1 });
    await withEstimate(limiter, asked, fn, { onUnsettled });
    await turn();
    assert.match(String(errors), /(names no policy|has no) "coins"; .* requests, tokens/);
    assert.equal(taken(), asked === 5 ? [5, 5] : [1, 300]);
  }
});

test("a misspelt policy in `failed` is found before the call", async () => {
  for (const asked of [5, estimate]) {
    const { limiter, taken } = setUp();
    for (const shared of [limiter, elsewhere(limiter)]) {
      const call = () =>
        withEstimate(shared, asked, () => assert.unreachable(), { failed: { coins: 0 } });
      assert.is(
        String(await failure(call)),
        'TypeError: failed names no policy "coins"; the policies are requests, tokens',
      );
    }
    assert.equal(taken(), [0, 0]);
  }
});

test("acquire decides what happens while the store is unavailable before the call", async () => {
  const { limiter } = setUp();
  const peek = async () => {
    throw new StoreUnavailableError("model", 50, "gone");
  };
  const fn = () => "answer";
  const shared = { ...elsewhere(limiter), peek };
  assert.is(await withEstimate(shared, 5, fn, { failed: { coins: 0 } }), "answer");
  const broken = { ...shared, peek: () => Promise.reject(new Error("broken")) };
  assert.match(
    String(await failure(() => withEstimate(broken, 5, fn, { failed: { coins: 0 } }))),
    "broken",
  );
});

test("a store that hangs delays neither the result nor the error", async () => {
  const { limiter } = setUp();
  const hung = () => new Promise<never>(() => {});
  const shared = { ...elsewhere(limiter), charge: hung, refund: hung };
  for (const tokens of [120, 450]) {
    const fn = (settle: Settle) => settle({ tokens }).then(() => "answer");
    assert.is(await withEstimate(shared, estimate, fn), "answer");
  }
  const error = new Error("no");
  const fail = () => Promise.reject(error);
  assert.is(await failure(() => withEstimate(shared, { requests: 1 }, fail)), error);
});

test("a store that fails during settle does not lose the result", async () => {
  const { limiter, taken } = setUp();
  const away = async () => {
    throw new StoreUnavailableError("model", 50, "gone");
  };
  const shared = { ...elsewhere(limiter), charge: away, refund: away };
  for (const tokens of [120, 450]) {
    const errors: unknown[] = [];
    const onUnsettled = (error: unknown) => void errors.push(error);
    const fn = (settle: Settle) => settle({ tokens }).then(() => 1);
    assert.is(await withEstimate(shared, estimate, fn, { onUnsettled }), 1);
    assert.is(await withEstimate(shared, { requests: 1 }, fn), 1); // reported by the limiter itself
    await turn();
    assert.instance(errors[0], StoreUnavailableError);
  }
  assert.equal(taken(), [4, 600]);
});

test("withEstimate waits for its turn, returns the function's result, and stops at its signal", async () => {
  const { clock, limiter } = setUp();
  limiter.tryAcquire({ tokens: 900 });
  const second = watch(
    clock,
    withEstimate(limiter, estimate, () => "answer"),
  );
  const controller = new AbortController();
  const third = watch(
    clock,
    withEstimate(limiter, estimate, () => assert.unreachable(), { signal: controller.signal }),
  );
  await clock.advance(1000);
  controller.abort("enough");
  await clock.advance(10_000);
  assert.equal([second.at, second.value], [2000, "answer"]);
  assert.equal([third.at, third.error], [1000, "enough"]);
  const error = new Error("no");
  const thrown = () => {
    throw error;
  };
  assert.is(await failure(() => withEstimate(limiter, estimate, thrown)), error);
});

test("bad arguments are refused before anything happens", async () => {
  const { limiter, taken } = setUp();
  const fn = () => assert.unreachable();
  const rows: [() => Promise<unknown>, string][] = [
    [() => withEstimate(limiter, estimate, 5 as never), "fn must be a function, got 5"],
    [
      () => withEstimate(undefined as never, 1, fn),
      "limiter must be a rate limiter, got undefined",
    ],
    [() => withEstimate(limiter, 0, fn), "permits must be a finite number above 0, got 0"],
    [
      () => withEstimate(limiter, estimate, fn, { failed: -1 }),
      "failed must be a finite number, 0 or more, got -1",
    ],
    [
      () => withEstimate(limiter, estimate, fn, { onError: 1 } as never),
      'options has no "onError"; expected one of signal, failed, onUnsettled',
    ],
  ];
  for (const [action, message] of rows) assert.match(String(await failure(action)), message);
  assert.equal(taken(), [0, 0]);
});

test("withEstimate works on Redis too", async () => {
  const redis = new Redis(await freshUrl());
  try {
    const limiter = RedisLimiter.create(redis, "model", policies, PATIENT);
    await withEstimate(limiter, estimate, (settle) => settle({ tokens: 120 }));
    await failure(() =>
      withEstimate(limiter, estimate, () => Promise.reject(new Error("no")), {
        failed: { tokens: 0 },
      }),
    );
    const { requests, tokens } = (await limiter.peek({ requests: 1 })).policies;
    const used = [100 - (requests?.remaining ?? 0), 1000 - (tokens?.remaining ?? 0)];
    assert.ok((used[0] ?? 0) > 1 && (used[0] ?? 9) <= 2, `${used}`);
    assert.ok((used[1] ?? 9) <= 120, `${used}`);
  } finally {
    redis.disconnect();
  }
});

test.run();
