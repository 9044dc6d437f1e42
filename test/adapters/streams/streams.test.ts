import { createHash, randomFillSync } from "node:crypto";
import fc from "fast-check";
import * as assert from "uvu/assert";
import { algorithms } from "../../../src/algorithms/index.ts";
import {
  diagnostics,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  leakyBucket,
  PermitsExceedCapacityError,
  type Policies,
  type Policy,
  QueueFullError,
  RateLimiter,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, watch } from "../../support/limiter/watch.ts";
import { chunksOf, counted, elsewhere, endless, forms } from "../../support/streams/forms.ts";
import { runs, suite } from "../../support/suite.ts";

const MIB = 2 ** 20;
const KIB = 1024;
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

interface Piece {
  readonly at: number;
  readonly size: number;
}

/** When how many bytes came through. */
function record(clock: FakeClock, pieces: Piece[] = []) {
  const take = (chunk: Uint8Array) => {
    pieces.push({ at: clock.now(), size: chunk.length });
  };
  return { pieces, take };
}

const total = (pieces: readonly Piece[]) => pieces.reduce((sum, { size }) => sum + size, 0);

for (const [form, pass] of Object.entries(forms)) {
  const test = suite(`streams, ${form}`);

  test("16 MiB at 2 MiB a second: the same bytes, in 8 s", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(2 * MIB, { clock });
    const bytes = randomFillSync(new Uint8Array(16 * MIB));
    const hash = createHash("sha256");
    let most = 0;
    const passed = pass(
      chunksOf(bytes, [64 * KIB, 1, 3 * MIB, 0, 1000, 500 * KIB]),
      limiter,
      (chunk) => {
        hash.update(chunk);
        most = Math.max(most, chunk.length);
      },
    );
    const done = watch(clock, passed);
    await clock.advance(10_000);
    assert.is(done.error, undefined);
    assert.ok(Math.abs(Number(done.at) - 8000) < 80, `it took ${done.at} ms`);
    assert.is(hash.digest("hex"), sha256(bytes));
    assert.is(most, Math.floor(0.05 * 2 * MIB));
  });

  test("a big chunk is cut, and its pieces come evenly", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(10_000, { clock });
    const { pieces, take } = record(clock);
    const passed = pass([new Uint8Array(1150)], limiter, take, { pieceMs: 20 });
    await clock.advance(200);
    await passed;
    assert.equal(
      pieces,
      [0, 20, 40, 60, 80, 100].map((at) => ({ at, size: at < 100 ? 200 : 150 })),
    );
  });

  test("a receiver may transfer a piece's buffer, and the rest still comes", async () => {
    const clock = new FakeClock();
    const bytes = randomFillSync(new Uint8Array(320));
    const got: Uint8Array[] = [];
    const passed = pass([bytes.slice()], RateLimiter.create(1000, { clock }), (chunk) => {
      got.push(structuredClone(chunk, { transfer: [chunk.buffer as ArrayBuffer] }));
    });
    await clock.advance(1000);
    await passed;
    assert.equal(Buffer.concat(got), Buffer.from(bytes));
    assert.ok(got.length > 5);
  });

  test("small chunks are charged together, and none waits for that", async () => {
    const clock = new FakeClock();
    const { limiter, calls } = counted(RateLimiter.create(100_000, { clock }));
    await clock.advance(1000);
    const { pieces, take } = record(clock);
    await pass(chunksOf(new Uint8Array(20_000), [20]), limiter, take);
    assert.is(pieces.length, 1000);
    assert.ok(pieces.every(({ at, size }) => at === 1000 && size === 20));
    assert.equal(calls, { peek: 5, decide: 4 });
  });

  test("small chunks at full speed cause two calls for each piece", async () => {
    const clock = new FakeClock();
    const { limiter, calls } = counted(RateLimiter.create(100_000, { clock }));
    const { pieces, take } = record(clock);
    const passed = pass(chunksOf(new Uint8Array(50_000), [20]), limiter, take);
    await clock.advance(1000);
    await passed;
    assert.is(pieces.at(-1)?.at, 450);
    assert.equal(calls, { peek: 11, decide: 1, tryAcquire: 9 });
  });

  test("a stream takes available permits if they suffice, and does not wait for a whole piece", async () => {
    const clock = new FakeClock();
    const limiter = Limiter.create(tokenBucket({ capacity: 500, refill: 1, everyMs: 1 }), {
      clock,
    });
    limiter.tryAcquire(470);
    const { pieces, take } = record(clock);
    await pass([new Uint8Array(20), new Uint8Array(10)], limiter, take);
    assert.equal(pieces, [
      { at: 0, size: 20 },
      { at: 0, size: 10 },
    ]);
  });

  test("bytes that were charged and not used are refunded at the end", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock });
    await pass([new Uint8Array(7)], limiter, () => {}); // a piece is 50
    assert.is(limiter.peek().waitMs, 7);
  });

  test("the first freeBytes pass at once, and are not charged", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock });
    const { pieces, take } = record(clock);
    const source = chunksOf(new Uint8Array(400), [120]);
    const passed = pass(source, limiter, take, { freeBytes: 300 });
    await clock.advance(100);
    await passed;
    assert.equal(pieces, [
      { at: 0, size: 120 },
      { at: 0, size: 120 },
      { at: 0, size: 60 },
      { at: 0, size: 50 },
      { at: 50, size: 10 },
      { at: 50, size: 40 },
    ]);
  });

  test("weigh counts chunks that are not bytes, and cuts none", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(100, { clock });
    const log: string[] = [];
    const weigh = (item: string) => item.length;
    const items = ["a".repeat(20), "b", "", "c".repeat(30), "d"];
    const take = (item: string) => void log.push(`${clock.now()} ${item.slice(0, 1)}`);
    const passed = pass(items, limiter, take, { weigh, freeBytes: 1 });
    await clock.advance(1000);
    await passed;
    // a is free as a whole, b and the empty one are covered by five permits, c waits until they are
    // paid, and d for c
    assert.equal(log, ["0 a", "0 b", "0 ", "50 c", "310 d"]);
  });

  test("empty chunks pass, also right after the limiter's numbers have changed", async () => {
    const limiter = RateLimiter.create(1000);
    const sizes: number[] = [];
    const chunks = (function* () {
      for (const size of [0, 10, 0, 0, 5]) {
        yield new Uint8Array(size);
        limiter.setRate(1000 + sizes.length);
      }
    })();
    await pass(chunks, limiter, (chunk) => void sizes.push(chunk.length));
    assert.equal(
      sizes.filter((size) => size > 0),
      [10, 5],
    );
  });

  test("fractions work: of weights, and of a limiter that never holds a whole permit", async () => {
    const clock = new FakeClock();
    const half = tokenBucket({ capacity: 0.5, refill: 1, everyMs: 100 });
    const at: number[] = [];
    const options = { weigh: () => 0.25, pieceMs: 1 };
    const take = () => void at.push(clock.now());
    const done = watch(
      clock,
      pass(["a", "b", "c"], Limiter.create(half, { clock }), take, options),
    );
    await clock.advance(100);
    assert.is(done.error, undefined);
    assert.equal(at, [0, 0, 25]);
    const limiter = RateLimiter.create(1000, { clock });
    const { pieces, take: bytes } = record(clock);
    await pass([new Uint8Array(9)], limiter, bytes, { freeBytes: 2.5 });
    assert.equal(
      pieces.map(({ size }) => size),
      [2, 7],
    );
  });

  test("a weight that is not a number ends the stream", async () => {
    const limiter = RateLimiter.create(100);
    const weigh = () => Number.NaN;
    assert.match(
      String(await failure(() => pass(["a"], limiter, () => {}, { weigh }))),
      /RangeError: weigh\(chunk\) must be a finite number, 0 or more, got NaN/,
    );
  });

  test("one policy of several counts the bytes", async () => {
    const clock = new FakeClock();
    const limiter = Limiter.create(
      {
        requests: fixedWindow({ limit: 1, windowMs: 60_000, align: "first" }),
        bytes: smoothBursty({ permitsPerSecond: 1000 }),
      },
      { clock },
    );
    await limiter.acquire({ requests: 1 });
    const { pieces, take } = record(clock);
    const passed = pass([new Uint8Array(200)], limiter, take, { policy: "bytes" });
    await clock.advance(1000);
    await passed;
    assert.equal(
      pieces,
      [0, 50, 100, 150].map((at) => ({ at, size: 50 })),
    );
  });

  test("all policies count the bytes where none is named, and the slowest cuts", async () => {
    const clock = new FakeClock();
    const policies = {
      burst: smoothBursty({ permitsPerSecond: 1000 }),
      long: tokenBucket({ capacity: 50, refill: 100, everyMs: 1000 }),
    };
    const { pieces, take } = record(clock);
    const limiter = Limiter.create(policies, { clock });
    const passed = pass([new Uint8Array(60)], limiter, take);
    await clock.advance(1000);
    await passed;
    assert.is(pieces.length, 12);
    assert.equal([pieces.at(9)?.at, pieces.at(10)?.at, pieces.at(11)?.at], [45, 50, 100]);
  });

  for (const [name, policies, bytes] of [
    ["a small bucket", tokenBucket({ capacity: 8, refill: 1, everyMs: 1 }), 108],
    ["policyStates", gcra({ limit: 1000, periodMs: 1000, burst: 7 }), 108],
    [
      "a small bucket beside another",
      {
        a: tokenBucket({ capacity: 8, refill: 1, everyMs: 1 }),
        b: gcra({ limit: 1000, periodMs: 1000, burst: 9 }),
      },
      108,
    ],
  ] as [string, Policies, number][]) {
    test(`no piece exceeds what can ever be granted: ${name}`, async () => {
      const clock = new FakeClock();
      const limiter = Limiter.create(policies, { clock });
      const { pieces, take } = record(clock);
      const done = watch(clock, pass([new Uint8Array(bytes)], limiter, take));
      await clock.advance(1000);
      assert.is(done.error, undefined);
      assert.is(done.at, 104); // the last four wait for a whole piece
      assert.is(Math.max(...pieces.map(({ size }) => size)), 8);
    });
  }

  test("a capacity that grows allows larger pieces", async () => {
    const clock = new FakeClock();
    const bucket = (capacity: number) => tokenBucket({ capacity, refill: 1, everyMs: 1 });
    const limiter = Limiter.create(bucket(8), { clock });
    const { pieces, take } = record(clock);
    const done = watch(clock, pass([new Uint8Array(300)], limiter, take));
    await clock.advance(40);
    limiter.update(bucket(1000));
    await clock.advance(1000);
    assert.is(done.error, undefined);
    assert.is(total(pieces), 300);
    assert.is(Math.max(...pieces.map(({ size }) => size)), 50);
  });

  test("another rate applies from the next piece on", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock });
    const { pieces, take } = record(clock);
    const done = watch(clock, pass([new Uint8Array(1050)], limiter, take));
    await clock.advance(50);
    limiter.setRate(10_000);
    await clock.advance(1000);
    assert.equal(pieces, [
      { at: 0, size: 50 },
      { at: 50, size: 50 },
      { at: 100, size: 50 },
      { at: 105, size: 500 },
      { at: 155, size: 400 },
    ]);
    assert.is(done.at, 155);
  });

  test("without a limit every chunk passes whole", async () => {
    const limiter = RateLimiter.create(Infinity, { clock: new FakeClock() });
    const sizes: number[] = [];
    await pass(chunksOf(new Uint8Array(3 * MIB), [MIB]), limiter, ({ length }) => {
      sizes.push(length);
    });
    assert.equal(sizes, [MIB, MIB, MIB]);
  });

  test("an error of the limiter ends the stream: a full queue", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock, maxWaiting: 0 });
    const { pieces, take } = record(clock);
    assert.instance(
      await failure(() => pass([new Uint8Array(200)], limiter, take)),
      QueueFullError,
    );
    assert.is(total(pieces), 50);
  });

  test("an amount that can never be granted ends the stream", async () => {
    const limiter = Limiter.create(tokenBucket({ capacity: 8, refill: 1, everyMs: 1 }));
    const weigh = () => 9;
    assert.instance(
      await failure(() => pass(["a"], limiter, () => {}, { weigh })),
      PermitsExceedCapacityError,
    );
    const half = Limiter.create(tokenBucket({ capacity: 0.5, refill: 1, everyMs: 1 }));
    assert.instance(
      await failure(() => pass([new Uint8Array(1)], half, () => {})),
      PermitsExceedCapacityError,
    );
  });

  test("a chunk that is not bytes ends the stream", async () => {
    const chunks = [{ length: 3 }] as unknown as Uint8Array[];
    const error = await failure(() => pass(chunks, RateLimiter.create(1), () => {}));
    // later versions of Node append a description of the source
    const errors: unknown[] = error instanceof AggregateError ? error.errors : [error];
    assert.ok(errors.some((each) => each instanceof TypeError));
  });

  test("ten streams, each with chunks of its own size, share evenly", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(10 * MIB, { clock });
    const sizes = [100, 1000, 4000, 10_000, 16 * KIB, 50_000, 64 * KIB, 300_000, MIB, 5 * MIB];
    const controller = new AbortController();
    const got = sizes.map(() => 0);
    const ends = sizes.map((size, i) =>
      failure(() =>
        pass(
          endless(size),
          limiter,
          ({ length }) => {
            got[i] = (got[i] ?? 0) + length;
          },
          { signal: controller.signal },
        ),
      ),
    );
    await clock.advance(4000);
    controller.abort(new Error("enough"));
    for (const end of await Promise.all(ends)) assert.match(String(end), /enough/);
    const shares = got.map((bytes) => bytes / (4 * MIB));
    assert.ok(
      shares.every((share) => Math.abs(share - 1) < 0.05),
      `they got ${shares}`,
    );
  });

  test("a slow consumer holds the source back", async () => {
    const limiter = RateLimiter.create(1e9, { clock: new FakeClock() });
    let given = 0;
    let taken = 0;
    let ahead = 0;
    function* source() {
      for (; given < 60; given++) yield new Uint8Array(64 * KIB);
    }
    await pass(source(), limiter, async () => {
      ahead = Math.max(ahead, given - taken);
      await new Promise(setImmediate);
      taken += 1;
    });
    assert.is(taken, 60);
    // one chunk at the receiver, one in the throttle, and one at the source
    assert.ok(ahead <= 3, `the source is ${ahead} chunks ahead`);
  });

  test("the signal ends the stream at once, with its own reason, and no caller waits any more", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock });
    const controller = new AbortController();
    const { signal } = controller;
    let ended = false;
    async function* source() {
      try {
        yield new Uint8Array(10_000);
      } finally {
        ended = true;
      }
    }
    const reason = new Error("enough");
    const { pieces, take } = record(clock);
    const done = watch(clock, pass(source(), limiter, take, { signal }));
    await clock.advance(120);
    controller.abort(reason);
    await clock.advance(0);
    assert.is(done.error, reason);
    assert.is(done.at, 120);
    assert.ok(ended);
    assert.is(total(pieces), 150);
    assert.is(limiter.peek().waitMs, 30);
  });

  test("a signal that was aborted before lets nothing pass", async () => {
    const reason = new Error("no");
    const signal = AbortSignal.abort(reason);
    const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
    const taken: unknown[] = [];
    const take = (chunk: unknown) => void taken.push(chunk);
    const end = await failure(() => pass([new Uint8Array(1)], limiter, take, { signal }));
    assert.is(end, reason);
    assert.equal(taken, []);
    assert.ok(limiter.tryAcquire());
  });

  test("an error of the source is passed on, an error of the receiver ends the source", async () => {
    const limiter = RateLimiter.create(Infinity, { clock: new FakeClock() });
    const trouble = new Error("trouble");
    async function* failing() {
      yield new Uint8Array(1);
      throw trouble;
    }
    assert.is(await failure(() => pass(failing(), limiter, () => {})), trouble);

    let ended = false;
    async function* source() {
      try {
        for (;;) yield new Uint8Array(1);
      } finally {
        ended = true;
      }
    }
    const refusing = () => {
      throw trouble;
    };
    assert.is(await failure(() => pass(source(), limiter, refusing)), trouble);
    await new Promise(setImmediate);
    assert.ok(ended);
  });

  test("bad arguments are refused at the call", async () => {
    const limiter = RateLimiter.create(1);
    const messages: [unknown, string][] = [
      [{ pieceMs: 0 }, "RangeError: pieceMs must be a finite number above 0, got 0"],
      [{ pieceMs: "5" }, 'TypeError: pieceMs must be a finite number above 0, got "5"'],
      [{ freeBytes: -1 }, "RangeError: freeBytes must be a finite number, 0 or more, got -1"],
      [{ policy: 1 }, "TypeError: policy must be a string, got 1"],
      [{ signal: 1 }, "TypeError: signal must be an AbortSignal, got 1"],
      [{ weigh: 1 }, "TypeError: weigh must be a function, got 1"],
      [
        { bytes: 1 },
        'TypeError: options has no "bytes"; expected one of pieceMs, freeBytes, policy, signal, weigh, share, weight, priority',
      ],
      [1, "TypeError: options must be an object, got 1"],
    ];
    for (const [options, message] of messages) {
      const error = await failure(() => pass([], limiter, () => {}, options as object));
      assert.is(String(error), message);
    }
    const error = await failure(() => pass([], {} as Limiter, () => {}));
    assert.is(
      String(error),
      "TypeError: limiter must have acquire(), decide() and refund(), got an object",
    );
  });

  test("a limiter on a store, and one of a key", async () => {
    const clock = new FakeClock();
    const local = () => RateLimiter.create(10_000, { clock });
    const keyed = KeyedLimiter.create(smoothBursty({ permitsPerSecond: 10_000 }), { clock });
    for (const limiter of [elsewhere(local()), keyed.for("ann")]) {
      const { pieces, take } = record(clock);
      const before = clock.now();
      const done = watch(clock, pass(chunksOf(new Uint8Array(5000), [700]), limiter, take));
      await clock.advance(600);
      assert.is(Number(done.at) - before, 450);
      assert.is(total(pieces), 5000);
    }
  });

  test("permits that a store grants after the end are given back", async () => {
    const clock = new FakeClock();
    const local = RateLimiter.create(1000, { clock });
    const controller = new AbortController();
    const { signal } = controller;
    const source = async function* () {
      yield new Uint8Array(10);
    };
    const slow = elsewhere(local);
    const decide: Limiter["decide"] = async (permits) => {
      const decision = await slow.decide(permits);
      controller.abort(new Error("enough"));
      return decision;
    };
    const passed = pass(source(), { ...slow, decide }, () => {}, { signal });
    assert.match(String(await failure(() => passed)), /enough/);
    await clock.advance(0);
    assert.is(local.peek().waitMs, 0);
  });

  test("a stream that waits for its turn counts no refusal", async () => {
    const clock = new FakeClock();
    const messages: unknown[] = [];
    const listen = (message: unknown) => messages.push(message);
    const keyed = KeyedLimiter.create(gcra({ limit: 1000, periodMs: 1000, burst: 29 }), { clock });
    const limiters = [
      RateLimiter.create(1000, { clock }),
      Limiter.create(slidingLog({ limit: 100, windowMs: 100 }), { clock }),
    ];
    diagnostics.refused.subscribe(listen);
    try {
      for (const limiter of [...limiters, keyed.for("ann")]) {
        const { pieces, take } = record(clock);
        const passed = Promise.all([
          pass(chunksOf(new Uint8Array(1000), [100]), limiter, take),
          pass(chunksOf(new Uint8Array(1000), [7]), limiter, take),
        ]);
        await clock.advance(5000);
        await passed;
        assert.is(total(pieces), 2000);
      }
    } finally {
      diagnostics.refused.unsubscribe(listen);
    }
    for (const { stats } of [...limiters, keyed]) {
      assert.is(stats.refused, 0);
      assert.ok(stats.granted > 0);
    }
    assert.equal(messages, []);
  });

  // each with what it grants in an instant, and whether it lends permits to the last request
  const bounds: [name: string, policy: Policy, burst: number, lends: 0 | 1][] = [
    ["bursty", smoothBursty({ permitsPerSecond: 1000 }), 1000, 1],
    ["warming up", smoothWarmingUp({ permitsPerSecond: 1000, warmupMs: 100 }), 0, 1],
    ["bucket", tokenBucket({ capacity: 30, refill: 1, everyMs: 1 }), 30, 0],
    [
      "stepped bucket",
      tokenBucket({ capacity: 30, refill: 10, everyMs: 10, stepped: true }),
      40,
      0,
    ],
    ["policyStates", gcra({ limit: 1000, periodMs: 1000, burst: 29 }), 30, 0],
    ["leaky", leakyBucket({ permitsPerSecond: 1000, capacity: 1e6, nodelay: 30 }), 31, 1],
    ["window", fixedWindow({ limit: 100, windowMs: 100 }), 200, 0],
    ["log", slidingLog({ limit: 100, windowMs: 100 }), 100, 0],
    ["sliding window", slidingWindow({ limit: 100, windowMs: 100 }), 200, 0],
  ];

  test("every registered algorithm has a bound", () => {
    const bounded = new Set(bounds.map(([, { algorithm }]) => algorithm));
    assert.equal(
      algorithms.filter((algorithm) => !bounded.has(algorithm)).map(({ name }) => name),
      [],
    );
  });

  for (const [name, policy, burst, lends] of bounds) {
    test(`the bytes, the bound and the pieces hold for any chunks: ${name}`, async () => {
      const chunk = fc.integer({ min: 0, max: 300 });
      const idle = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 80 }));
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(chunk, idle), { maxLength: 8 }),
          fc.integer({ min: 1, max: 100 }),
          async (chunks, pieceMs) => {
            const clock = new FakeClock();
            const limiter = Limiter.create(policy, { clock });
            const given: number[] = [];
            const came: number[] = [];
            const pieces: Piece[] = [];
            async function* source() {
              for (const [size, idleMs] of chunks) {
                if (idleMs > 0) {
                  await new Promise<void>((go) => void clock.wakeAt(clock.now() + idleMs, go));
                }
                const bytes = new Uint8Array(size).map((_, i) => (given.length + i) % 251);
                given.push(...bytes);
                yield bytes;
              }
            }
            const take = (piece: Uint8Array) => {
              came.push(...piece);
              pieces.push({ at: clock.now(), size: piece.length });
            };
            const done = watch(clock, pass(source(), limiter, take, { pieceMs }));
            await clock.advance(6000);
            assert.is(done.error, undefined);
            assert.type(done.at, "number");
            assert.equal(came, given);
            const largest = Math.max(1, pieceMs);
            for (const { size } of pieces) assert.ok(size <= largest, `${size} > ${largest}`);
            for (const [i, { at }] of pieces.entries()) {
              let sum = 0;
              for (const later of pieces.slice(i)) {
                sum += later.size;
                const most = burst + (1 + lends) * largest + (later.at - at);
                assert.ok(sum <= most, `${sum} in ${later.at - at} ms`);
              }
            }
          },
        ),
        { numRuns: runs(5) },
      );
    });
  }

  test.run();
}
