import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import {
  Batcher,
  type BatchHandler,
  type BatchLimits,
  type SentBatch,
} from "../../src/remote/batcher.ts";
import { suite } from "../support/suite.ts";

const test = suite("batcher");
let timers: FakeTimers.Clock;

test.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

test.after.each(() => {
  timers.uninstall();
});

interface Request {
  readonly gone: boolean;
  readonly text: string;
}

const request = (text: string): Request => ({ gone: false, text });

/** Replies on demand; records what happens. */
class Handler implements BatchHandler<Request, string> {
  readonly news: string[] = [];
  answer: (answers: readonly string[]) => void = () => {};
  send: (requests: readonly Request[]) => Promise<readonly string[]> = () =>
    new Promise((resolve) => {
      this.answer = resolve;
    });

  now(): number {
    return 7;
  }

  prepare(requests: readonly Request[]): readonly Request[] {
    return requests.toReversed();
  }

  run(requests: readonly Request[]): Promise<readonly string[]> {
    this.news.push(`sent ${requests.map(({ text }) => text).join("")}`);
    return this.send(requests);
  }

  answered(_sent: SentBatch<Request>, answers: readonly string[]): void {
    this.news.push(`answered ${answers.join()}`);
  }

  answeredLate(_sent: SentBatch<Request>, answers: readonly string[], isLatest: boolean): void {
    this.news.push(`late ${answers.join()}${isLatest ? "" : ", not the latest"}`);
  }

  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void {
    const texts = requests.map(({ text }) => text).join("");
    this.news.push(`${isOverdue ? "overdue" : "failed"} ${texts}: ${(cause as Error).message}`);
  }

  drained(): void {}
}

function make(limits: Partial<BatchLimits> = {}) {
  const handler = new Handler();
  return { handler, batcher: new Batcher(handler, { timeoutMs: 500, mostRequests: 4, ...limits }) };
}

async function microtasks(): Promise<void> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
}

test("requests of one turn leave together, in the handler's order, one batch at a time", async () => {
  const { handler, batcher } = make();
  for (const text of "abcdef") batcher.add(request(text));
  await microtasks();
  handler.answer(["1", "2", "3", "4"]);
  await microtasks();
  handler.answer(["5", "6"]);
  await microtasks();
  assert.equal(handler.news, ["sent dcba", "answered 1,2,3,4", "sent fe", "answered 5,6"]);
  assert.ok(batcher.isDrained);
  assert.is(timers.countTimers(), 0);
});

test("a batch of which the handler has answered all requests is not sent", async () => {
  const { handler, batcher } = make({ mostRequests: 2 });
  handler.prepare = (requests) => requests.filter(({ text }) => text > "b");
  for (const text of "abcd") batcher.add(request(text));
  await microtasks();
  handler.answer(["1", "2"]);
  await microtasks();
  assert.equal(handler.news, ["sent cd", "answered 1,2"]);
  assert.ok(batcher.isDrained);
  assert.is(timers.countTimers(), 0);
});

test("a clock that throws, or a handler, fails the batch and no more", async () => {
  const { handler, batcher } = make();
  handler.now = () => {
    throw new TypeError("NaN");
  };
  batcher.add(request("a"));
  await microtasks();
  handler.now = () => 7;
  batcher.add(request("b"));
  await microtasks();
  assert.equal(handler.news, ["failed a: NaN", "sent b"]);
});

test("a handler that throws at a reply does not stop later batches, nor leave a timer", async () => {
  const { handler, batcher } = make();
  const { answered } = handler;
  handler.answered = () => {
    throw new TypeError("bug");
  };
  const reported = new Promise((resolve) => process.once("unhandledRejection", resolve));
  batcher.add(request("a"));
  await microtasks();
  batcher.add(request("b"));
  handler.answer(["1"]);
  assert.instance(await reported, TypeError);
  handler.answered = answered;
  handler.answer(["2"]);
  await microtasks();
  assert.equal(handler.news, ["sent a", "sent b", "answered 2"]);
  assert.ok(batcher.isDrained);
  assert.is(timers.countTimers(), 0);
});

test("one call after another shares a timer, which ends when no call follows", async () => {
  const { handler, batcher } = make();
  handler.send = async () => ["1"];
  const { setTimeout } = globalThis;
  let set = 0;
  globalThis.setTimeout = ((...call: Parameters<typeof setTimeout>) => {
    set += 1;
    return setTimeout(...call);
  }) as typeof setTimeout;
  const { answered } = handler;
  handler.answered = function (...reply) {
    answered.apply(this, reply);
    if (this.news.length < 10) queueMicrotask(() => batcher.add(request("a")));
  };
  batcher.add(request("a"));
  for (let i = 0; i < 10; i++) await microtasks();
  globalThis.setTimeout = setTimeout;
  assert.is(handler.news.filter((one) => one === "answered 1").length, 5);
  assert.equal([set, timers.countTimers()], [1, 0]);
});

test("a shared timer fires early for a later batch, which still gets its full time", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await timers.tickAsync(300);
  const { answered } = handler;
  handler.answered = function (...reply) {
    answered.apply(this, reply);
    batcher.add(request("b"));
  };
  handler.answer(["1"]);
  await timers.tickAsync(499);
  assert.is(handler.news.at(-1), "sent b");
  await timers.tickAsync(1);
  assert.is(handler.news.at(-1), "overdue b: no answer within 500 ms");
});

test("a reply after the deadline is late; while the batcher is held nothing leaves", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await microtasks();
  const { answer } = handler;
  await timers.tickAsync(500);
  assert.is(handler.news.at(-1), "overdue a: no answer within 500 ms");
  assert.equal(batcher.hold(), []);
  batcher.add(request("b"));
  answer(["1"]);
  await microtasks();
  assert.is(handler.news.at(-1), "late 1");
  assert.not(batcher.isDrained);
  batcher.resume();
  await microtasks();
  assert.is(handler.news.at(-1), "sent b");
});

test("after a recovery the overdue batch is no longer the latest", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await microtasks();
  const { answer } = handler;
  await timers.tickAsync(500);
  batcher.hold();
  batcher.resume();
  answer(["1"]);
  await microtasks();
  assert.is(handler.news.at(-1), "late 1, not the latest");
});

test("a busy event loop is no outage: a reply that waits to be read counts as in time", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await microtasks();
  batcher.add(request("b"));
  // 700 ms of work in which no timer fires and no socket is read
  timers.jump(700);
  handler.answer(["1"]);
  await microtasks();
  await timers.tickAsync(2);
  assert.equal(handler.news, ["sent a", "answered 1", "sent b"]);
  await timers.tickAsync(497);
  handler.answer(["2"]);
  await microtasks();
  assert.is(handler.news.at(-1), "answered 2");
});

test("a busy event loop does not hide a silent store for longer than one poll phase", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await microtasks();
  timers.jump(700);
  assert.equal(handler.news, ["sent a"]);
  await timers.tickAsync(2);
  assert.is(handler.news.at(-1), "overdue a: no answer within 500 ms");
});

for (const [fault, send, message] of [
  [
    "throws",
    () => {
      throw new Error("broken");
    },
    "broken",
  ],
  ["gives too few replies", async () => ["1"], "the store gave 1 answers to 2 requests"],
  ["returns no promise", () => ["1", "2"], undefined],
  ["resolves to nothing", () => undefined, "the store gave undefined answers to 2 requests"],
] as const) {
  test(`a client that ${fault} causes neither an exception nor an open request`, async () => {
    const { handler, batcher } = make();
    handler.send = send as unknown as Handler["send"];
    batcher.add(request("a"));
    batcher.add(request("b"));
    await microtasks();
    const expected = message === undefined ? "answered 1,2" : `failed ba: ${message}`;
    assert.equal(handler.news, ["sent ba", expected]);
    handler.send = async () => ["3"];
    batcher.add(request("c"));
    await microtasks();
    assert.is(handler.news.at(-1), "answered 3");
    assert.is(timers.countTimers(), 0);
  });
}

test("abandon returns requests in flight or queued, and their reply is late", async () => {
  const { handler, batcher } = make();
  batcher.add(request("a"));
  await microtasks();
  batcher.add(request("b"));
  assert.equal(
    batcher.abandon().map(({ text }) => text),
    ["a", "b"],
  );
  handler.answer(["1"]);
  await microtasks();
  assert.is(handler.news.at(-1), "late 1, not the latest");
  assert.is(timers.countTimers(), 0);
});

test("a request that is withheld before its batch leaves is not sent with later ones", async () => {
  const { handler, batcher } = make();
  const early = request("a");
  batcher.add(early);
  assert.equal(batcher.hold(), [early]);
  batcher.resume();
  await microtasks();
  assert.equal(handler.news, []);
  batcher.add(request("b"));
  await microtasks();
  assert.equal(handler.news, ["sent b"]);
});

test.run();
