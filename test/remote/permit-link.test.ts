import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { OutageStats } from "../../src/api/outage-stats.ts";
import type { StoreUnavailableError } from "../../src/ground/errors.ts";
import type { Amount } from "../../src/ground/permits.ts";
import { smoothBursty } from "../../src/index.ts";
import { ActivePolicies } from "../../src/remote/active-policies.ts";
import type { GrantQueue } from "../../src/remote/grant-queue.ts";
import { PermitLink } from "../../src/remote/permit-link.ts";
import { type PermitRequest, reserving, StoreCall } from "../../src/remote/permit-request.ts";
import type { Parts } from "../../src/remote/remote-options.ts";
import { ThrowWhenUnavailable, WaitWhenUnavailable } from "../../src/remote/strategy.ts";
import { Breaker } from "../../src/stores/breaker.ts";
import { listPolicies } from "../../src/stores/policies.ts";
import { isPermanent } from "../../src/stores/redis/permanent.ts";
import type { Answer, Store, StoreReply, StoreRequest } from "../../src/stores/store.ts";
import { suite } from "../support/suite.ts";

const GRANTED: Answer = { wait: 0, receipts: [], slowest: 0, quotas: [], deficit: [] };
const answerOf = (wait: number, receipts: readonly number[] = []): Answer => ({
  ...GRANTED,
  wait,
  receipts,
});

interface SentBatch {
  readonly key: string;
  readonly declared: string;
  readonly requests: readonly StoreRequest[];
  readonly now: number | undefined;
  reply(answers: readonly Answer[], inForce?: string): void;
  fail(error: unknown): void;
}

/** Answers when a test says so. */
class HandStore implements Store {
  readonly batches: SentBatch[] = [];
  readonly breaker: Breaker | undefined;

  constructor(breaker?: Breaker) {
    this.breaker = breaker;
  }

  breakerOf(): Breaker | undefined {
    return this.breaker;
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
  ): Promise<StoreReply> {
    return new Promise((resolve, reject) => {
      this.batches.push({
        ...{ key, declared, requests, now, fail: reject },
        reply: (answers, inForce = declared) => resolve({ inForce, answers }),
      });
    });
  }

  get last(): SentBatch {
    return this.batches.at(-1) as SentBatch;
  }

  /** Grants everything. */
  async grant(): Promise<void> {
    const count = this.last.requests.reduce((sum, one) => sum + countOf(one), 0);
    this.last.reply(Array.from({ length: count }, () => GRANTED));
    await microtasks();
  }
}

function countOf(request: StoreRequest): number {
  return request.verb === "reserve" ? request.count : 1;
}

/** The outcome of a request. */
class TestCall implements PermitRequest {
  gone = false;
  readonly replies: Answer[] = [];
  readonly undone: Answer[] = [];
  readonly failures: StoreUnavailableError[] = [];
  sentAt: number | undefined;
  delays = 0;
  readonly toStore: PermitRequest["toStore"];
  readonly isRepeatable = true;

  constructor(amount: Amount = 1, longest = Infinity) {
    this.toStore = (late, last) => reserving(amount, longest, late, last);
  }

  takenBy(): Amount {
    return 0;
  }

  answer(answer: Answer, sentAt: number): void {
    this.replies.push(answer);
    this.sentAt = sentAt;
  }

  returnToStore(answer: Answer): void {
    this.undone.push(answer);
  }

  fail(error: unknown): void {
    this.failures.push(error as StoreUnavailableError);
  }

  delayed(): void {
    this.delays += 1;
  }
}

/** Fails, as "throw" does, at the first error and when the client reports a lost connection. */
class FailEarly extends ThrowWhenUnavailable {
  override readonly unavailableOnError = true;
  override readonly unavailableOnDisconnect = true;
}

const STRATEGIES = {
  throw: () => new ThrowWhenUnavailable(),
  wait: () => new WaitWhenUnavailable(),
  early: () => new FailEarly(),
};

interface Made {
  readonly store?: HandStore;
  readonly key?: string;
  readonly when?: keyof typeof STRATEGIES;
  readonly timeoutMs?: number;
  readonly sendsTime?: boolean;
  readonly now?: () => number;
  readonly lateBy?: () => number;
}

async function microtasks(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

function make({ key = "key", when = "throw", ...options }: Made = {}) {
  const { store = new HandStore(), timeoutMs = 1000, sendsTime = false } = options;
  const { now = () => 77, lateBy = () => 0 } = options;
  const idle = { asking() {}, answered() {}, answeredLate() {} };
  const queue = {
    ...{ now, epoch: 0, ...idle },
    get lateBy() {
      return lateBy();
    },
  } as Partial<GrantQueue> as GrantQueue;
  const strategy = STRATEGIES[when]();
  const declared = listPolicies(smoothBursty({ permitsPerSecond: 5 }));
  const stats = new OutageStats("test");
  const activePolicies = new ActivePolicies("test", declared);
  const parts = {
    ...{ name: "test", timeoutMs, sendsTime, declared, queue, stats, activePolicies },
  } as Partial<Parts> as Parts;
  const link = new PermitLink(store, key, parts, strategy);
  const ask = (...calls: TestCall[]) => {
    for (const call of calls) link.send(call);
  };
  const send = (
    request: (late: number) => StoreRequest,
    { taken = 0, again = true }: { taken?: Amount; again?: boolean } = {},
  ) => {
    const call = new StoreCall({
      ...{ request, isRepeatable: again, result: (answer: Answer) => answer },
      returnToStore: (answer) => {
        if (taken !== 0) link.returnToStore(taken, answer).catch(() => {});
      },
    });
    link.send(call);
    return call.promise;
  };
  return { store, link, activePolicies, strategy, ask, send };
}

function many(count: number): TestCall[] {
  return Array.from({ length: count }, () => new TestCall());
}

/** The requests of a batch in short: verb, amount, count. */
function packed({ requests }: SentBatch): string {
  return requests
    .map((one) => (one.verb === "reserve" ? `${one.amount}x${one.count}` : one.verb))
    .join(" ");
}

let timers: FakeTimers.Clock;

/** On fake timers throughout: a deadline that a test leaves behind must not fire in a later one. */
function withTimers(title: string) {
  const tests = suite(title);
  tests.before.each(() => {
    timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  tests.after.each(() => {
    timers.uninstall();
  });
  return tests;
}

const sharing = withTimers("permit link, sharing");

sharing("a lone call leaves in the microtasks of its turn", async () => {
  const { store, ask } = make();
  const call = new TestCall();
  ask(call);
  assert.is(store.batches.length, 0);
  await Promise.resolve();
  assert.is(store.batches.length, 1);
  const { key, declared, now, requests } = store.last;
  assert.equal([key, declared, now], ["key", "s5", undefined]);
  const request = { verb: "reserve", amount: 1, longest: Infinity, late: 0, count: 1 };
  assert.equal(requests, [request]);
  await store.grant();
  assert.equal([call.replies, call.sentAt], [[GRANTED], 77]);
});

sharing("calls of one turn share a batch, and each gets its own reply", async () => {
  const { store, ask, send } = make();
  const calls = [...many(3), new TestCall(2), new TestCall(2, 5), ...many(2)];
  ask(...calls.slice(0, 5));
  const charged = send(() => ({ verb: "charge", amount: 1 }));
  ask(...calls.slice(5));
  await microtasks();
  assert.is(store.batches.length, 1);
  assert.is(packed(store.last), "1x3 2x1 2x1 charge 1x2");
  const answers = Array.from({ length: 8 }, (_, i) => answerOf(i));
  store.last.reply(answers);
  await microtasks();
  assert.equal(
    calls.map(({ replies }) => replies[0]?.wait),
    [0, 1, 2, 3, 4, 6, 7],
  );
  assert.equal((await charged).wait, 5);
});

sharing("a reply with too few answers fails all requests of its batch", async () => {
  const { store, ask } = make();
  const calls = many(3);
  ask(...calls);
  await microtasks();
  store.last.reply([]);
  await microtasks();
  assert.ok(calls.every(({ failures }) => failures.length === 1));
});

for (const isLate of [false, true]) {
  sharing(`a call that throws at its ${isLate ? "late " : ""}reply fails alone`, async () => {
    const { store, ask } = make({ when: "wait" });
    const calls = many(3);
    const bug = new TypeError("bug");
    for (const call of calls.slice(0, 2)) {
      call.answer = () => {
        call.gone = call === calls[0];
        throw bug;
      };
    }
    ask(...calls);
    await microtasks();
    if (isLate) await timers.tickAsync(1001);
    const batch = store.batches[0] as SentBatch;
    batch.reply([GRANTED, GRANTED, GRANTED]);
    await microtasks();
    const outcomes = calls.map(({ failures, replies }) => [failures, replies]);
    assert.equal(
      outcomes,
      [
        [[], []],
        [[bug], []],
        [[], [GRANTED]],
      ],
      "the first has left",
    );
    const next = new TestCall();
    ask(next);
    await microtasks();
    await store.grant();
    assert.equal(next.replies, [GRANTED]);
    assert.is(timers.countTimers(), 0);
  });
}

sharing("neighbours become one request where they ask the same of each policy", async () => {
  const { store, ask } = make();
  const amounts: Amount[] = [
    [1, 2],
    [1, 2],
    [1, undefined],
    [1, 0],
    [2, 1],
  ];
  ask(...amounts.map((amount) => new TestCall(amount)));
  await microtasks();
  assert.is(packed(store.last), "1,2x2 1,x2 2,1x1");
});

sharing("calls during a batch take the next one, in their order", async () => {
  const { store, ask } = make();
  ask(new TestCall(1));
  await microtasks();
  ask(new TestCall(2));
  await microtasks();
  ask(new TestCall(3), new TestCall(4));
  await microtasks();
  assert.is(store.batches.length, 1);
  await store.grant();
  assert.is(store.batches.length, 2);
  assert.is(packed(store.last), "2x1 3x1 4x1");
  await store.grant();
  assert.is(store.batches.length, 2);
});

sharing("a call that is abandoned before the batch leaves is not sent", async () => {
  const { store, ask } = make();
  const calls = many(3);
  ask(...calls);
  for (const call of calls) call.gone = true;
  await microtasks();
  assert.is(store.batches.length, 0);
  const [first, second, third] = many(3) as [TestCall, TestCall, TestCall];
  ask(first, second, third);
  second.gone = true;
  await microtasks();
  assert.is(packed(store.last), "1x2");
  first.gone = true;
  await store.grant();
  assert.equal([first.replies, first.undone], [[], [GRANTED]]);
  assert.equal([second.replies, second.undone], [[], []]);
  assert.equal([third.replies, third.undone], [[GRANTED], []]);
});

sharing("no batch is longer than 4096 calls; the others take the next batches", async () => {
  const { store, ask } = make();
  const calls = many(10_000);
  ask(...calls);
  await microtasks();
  for (const expected of ["1x4096", "1x4096", "1x1808"]) {
    assert.is(packed(store.last), expected);
    await store.grant();
  }
  assert.is(store.batches.length, 3);
  assert.ok(calls.every(({ replies }) => replies.length === 1));
});

sharing("a batch carries the time and the lateness of its departure", async () => {
  let now = 5;
  let late = 3;
  const { store, ask } = make({ now: () => now, lateBy: () => late, sendsTime: true });
  const call = new TestCall();
  ask(call);
  await microtasks();
  assert.equal([store.last.now, store.last.requests[0]], [5, call.toStore(3, undefined)]);
  now = 9;
  late = 0;
  await store.grant();
  assert.is(call.sentAt, 5);
});

sharing("the policies in force are those of the last reply", async () => {
  const { store, activePolicies, ask } = make();
  assert.is(activePolicies.numbers, "s5");
  ask(new TestCall());
  await microtasks();
  store.last.reply([GRANTED], "s9");
  await microtasks();
  assert.is(activePolicies.numbers, "s9");
});

sharing.run();

const trouble = withTimers("permit link, trouble");

trouble("an error rejects each call of its batch with the cause; the next one leaves", async () => {
  const { store, ask } = make();
  const calls = many(3);
  ask(...calls);
  await microtasks();
  const waiting = new TestCall(2);
  ask(waiting);
  const [gone] = calls as [TestCall];
  gone.gone = true;
  const cause = new Error("WRONGTYPE");
  store.last.fail(cause);
  await microtasks();
  assert.equal(
    calls.map(({ failures }) => failures.length),
    [0, 1, 1],
  );
  const [error] = (calls[1] as TestCall).failures as [StoreUnavailableError];
  assert.is(error.cause, cause);
  assert.is(error.code, "STORE_UNAVAILABLE");
  assert.equal(error.facts, { limiter: "test", timeoutMs: 1000 });
  assert.match(error.message, /"test".*WRONGTYPE/);
  assert.is(packed(store.last), "2x1");
  await store.grant();
  assert.equal(waiting.replies, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("an outage costs one time-out: later calls fail at once until recovery", async () => {
  const { store, link, activePolicies, ask } = make();
  const first = new TestCall();
  ask(first);
  await timers.tickAsync(600);
  const second = new TestCall(2);
  ask(second);
  await timers.tickAsync(399);
  assert.is(first.failures.length, 0);
  await timers.tickAsync(1);
  const [error] = first.failures as [StoreUnavailableError];
  assert.match(error.message, "no answer within 1000 ms");
  assert.is((error.cause as Error).name, "TimeoutError");
  assert.is(second.failures.length, 1, "it has not left, and fails without waiting");
  assert.ok(link.isUnavailable);
  const third = new TestCall(3);
  ask(third);
  assert.equal(third.failures[0]?.cause, error.cause);

  first.returnToStore = (answer) => link.returnToStore(1, answer);
  store.batches[0]?.reply([answerOf(5, [3])], "s6");
  await microtasks();
  assert.is(activePolicies.numbers, "s6");
  assert.is(
    store.batches.length,
    1,
    "the reply is too late: the store still counts as unavailable",
  );
  await timers.tickAsync(25);
  assert.is(packed(store.last), "pause");
  await store.grant();
  assert.not(link.isUnavailable);
  // give-backs are sent first
  assert.equal(store.last.requests, [{ verb: "back", amount: 1, receipts: [3] }]);
  await store.grant();
  const fourth = new TestCall(4);
  ask(fourth);
  await microtasks();
  await store.grant();
  assert.equal([fourth.replies, fourth.failures], [[GRANTED], []]);
  assert.equal([second.replies, second.undone, second.failures.length], [[], [], 1]);
  await timers.tickAsync(10_000);
  assert.is(store.batches.length, 4);
  assert.is(timers.countTimers(), 0);
});

trouble("probes have longer and longer pauses; the first reply ends the outage", async () => {
  const { store, ask } = make({ timeoutMs: 5000 });
  ask(new TestCall());
  await timers.tickAsync(5000);
  for (let probes = 1; probes <= 9; probes++) {
    const before = timers.now;
    while (store.batches.length === probes) await timers.tickAsync(1);
    const longest = Math.min(1000, 25 * 2 ** (probes - 1));
    const pause = timers.now - before;
    assert.ok(pause >= Math.floor(longest / 2) && pause <= longest + 1, `pause ${pause} ms`);
    assert.is(packed(store.last), "pause");
    store.last.fail(new Error("refused"));
    await microtasks();
  }
  await timers.tickAsync(1000);
  await store.grant();
  // neither a late grant nor a late failure of the lost batch affects later calls
  const next = new TestCall(3);
  ask(next);
  await microtasks();
  store.batches[0]?.fail(new Error("connection lost"));
  await microtasks();
  await store.grant();
  assert.equal(next.replies, [GRANTED]);
  await timers.tickAsync(10_000);
  assert.is(timers.countTimers(), 0);
});

trouble("a probe that is not answered in time is followed by another", async () => {
  const { store, ask, link } = make({ timeoutMs: 1e6 });
  ask(new TestCall());
  await timers.tickAsync(1e6 + 25);
  assert.is(store.batches.length, 2);
  await timers.tickAsync(1e6 - 25);
  assert.is(store.batches.length, 2);
  await timers.tickAsync(100);
  assert.is(store.batches.length, 3);
  // a store that is too slow counts as unavailable
  store.batches[1]?.reply([]);
  await microtasks();
  assert.ok(link.isUnavailable);
  store.batches[2]?.reply([]);
  await microtasks();
  assert.not(link.isUnavailable);
  assert.is(timers.countTimers(), 0);
});

trouble("one probe informs all links of the connection, whichever link sent it", async () => {
  const store = new HandStore(new Breaker());
  const links = ["a", "b"].map((key) => make({ store, key }).link);
  const calls = many(3);
  links[0]?.send(calls[0] as TestCall);
  await timers.tickAsync(1000);
  links[1]?.send(calls[1] as TestCall);
  assert.is(calls[1]?.failures.length, 1, "the second link fails without a try of its own");
  assert.is(store.batches.length, 1);
  await timers.tickAsync(25);
  assert.is(store.batches.length, 2, "one probe for both");
  store.last.fail(new Error("refused"));
  await timers.tickAsync(50);
  assert.equal(
    store.batches.slice(1).map(({ key }) => key),
    ["a", "b"],
    "in turn",
  );
  await store.grant();
  assert.equal(
    links.map(({ isUnavailable }) => isUnavailable),
    [false, false],
  );
  links[1]?.send(calls[2] as TestCall);
  await microtasks();
  await store.grant();
  assert.equal(calls[2]?.replies, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("calls that were about to leave when the store was lost are not sent", async () => {
  const breaker = new Breaker();
  const { store, link } = make({ store: new HandStore(breaker), when: "early" });
  const calls = many(5) as [TestCall, TestCall, TestCall, TestCall, TestCall];
  const other = {
    ...{ timeoutMs: 1000, isAwaited: false, isIdle: true, isPermanent: () => false },
    ...{ probe: async () => {}, found: () => {}, forgotten: () => {} },
  };
  link.send(calls[0]);
  breaker.join(other, new Error("gone"));
  link.send(calls[1]);
  await microtasks();
  assert.equal(
    calls.map(({ failures }) => failures.length),
    [1, 1, 0, 0, 0],
  );
  assert.is(store.batches.length, 0);
  // the store recovers within the same turn: one batch leaves, not two
  breaker.close();
  link.send(calls[2]);
  breaker.join(other, new Error("gone"));
  link.send(calls[3]);
  breaker.close();
  link.send(calls[4]);
  await microtasks();
  assert.is(store.batches.length, 1);
  await store.grant();
  assert.is(calls[4].replies.length, 1);
  breaker.leave(other);
});

trouble("a link with only give-backs left is not idle", async () => {
  const { store, link, ask } = make();
  ask(new TestCall());
  await timers.tickAsync(1000);
  assert.ok(link.isUnavailable && link.isIdle);
  await link.returnToStore(1, answerOf(5, [3]));
  assert.not(link.isIdle);
  await timers.tickAsync(25);
  await store.grant();
  await store.grant();
  assert.ok(link.isIdle && !link.isUnavailable);
});

trouble("failOnDisconnect: a call fails on a disconnect or at the first failure", async () => {
  const breaker = new Breaker();
  const { store, link: yielding } = make({ store: new HandStore(breaker), when: "early" });
  const { link: failing } = make({ store });
  const calls = many(5) as [TestCall, TestCall, TestCall, TestCall, TestCall];
  yielding.send(calls[0]);
  await microtasks();
  store.last.fail(new Error("OOM"));
  await microtasks();
  assert.match(`${calls[0].failures[0]?.cause}`, "OOM");
  assert.ok(yielding.isUnavailable);
  breaker.reconnected();
  await store.grant();
  assert.not(yielding.isUnavailable);

  failing.send(calls[1]);
  await microtasks();
  store.last.fail(new Error("OOM"));
  await microtasks();
  assert.equal([calls[1].failures.length, failing.isUnavailable], [1, false]);

  breaker.disconnected(new Error("closed"));
  failing.send(calls[2]);
  assert.is(calls[2].failures.length, 0, "the call may get through in time");
  yielding.send(calls[3]);
  assert.match(`${calls[3].failures[0]?.cause}`, "closed");
  // the first reply shows that the store is available
  await microtasks();
  await store.grant();
  assert.equal(
    [calls[2].replies, yielding.isUnavailable, breaker.isOpen],
    [[GRANTED], false, false],
  );
  breaker.reconnected();
  yielding.send(calls[4]);
  await microtasks();
  await store.grant();
  assert.equal(calls[4].replies, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("a queue that never empties makes no call time out", async () => {
  const { store, ask } = make();
  const calls = many(6000);
  ask(...calls);
  for (let round = 0; round < 30; round++) {
    await timers.tickAsync(100);
    const { length } = calls.filter(({ failures }) => failures.length > 0);
    assert.is(length, 0, `${length} calls failed after ${round * 100} ms`);
    // each answered call is followed by a new one at once
    const next = many(4096);
    calls.push(...next);
    ask(...next);
    await store.grant();
  }
});

trouble("a time-out of more than 2^31 ms is a long time too", async () => {
  const { store, ask } = make({ timeoutMs: 1e10 });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1e6);
  assert.is(call.failures.length, 0);
  await store.grant();
  assert.equal(call.replies, [GRANTED]);
});

trouble("waitForStore: probes have longer and longer pauses, then calls are resent", async () => {
  const { store, ask } = make({ when: "wait" });
  const calls = [new TestCall(1), new TestCall(2), new TestCall(3)];
  ask(...calls);
  await microtasks();
  const pauses: number[] = [];
  for (let i = 0; i < 9; i++) {
    store.last.fail(new Error("away"));
    await microtasks();
    if (i === 0) ask(new TestCall(4));
    if (i === 1) (calls[1] as TestCall).gone = true;
    const before = timers.now;
    const { length } = store.batches;
    while (store.batches.length === length) await timers.tickAsync(1);
    assert.is(packed(store.last), "pause");
    pauses.push(timers.now - before);
  }
  for (const [i, pause] of pauses.entries()) {
    const mean = Math.min(1000, 25 * 2 ** i);
    // the fake timers count whole milliseconds only
    assert.ok(pause >= Math.floor(mean / 2) && pause <= mean * 1.5 + 1, `pause ${i}: ${pause} ms`);
  }
  await store.grant();
  assert.is(packed(store.last), "1x1 3x1 4x1");
  await store.grant();
  assert.equal([calls[0]?.replies, calls[0]?.failures], [[GRANTED], []]);
  assert.equal([calls[1]?.replies, calls[1]?.undone], [[], []]);

  ask(new TestCall(5));
  await microtasks();
  store.last.fail(new Error("unavailable again"));
  await microtasks();
  const { length } = store.batches;
  await timers.tickAsync(38);
  assert.is(store.batches.length, length + 1);
  await store.grant();
  await store.grant();
  assert.is(timers.countTimers(), 0);
});

trouble("waitForStore: a late reply still counts", async () => {
  const { store, ask } = make({ when: "wait" });
  const [call, leaver] = [new TestCall(), new TestCall(2)];
  ask(call, leaver);
  await timers.tickAsync(1000);
  assert.is(call.delays, 1);
  leaver.gone = true;
  const behind = new TestCall(3);
  ask(behind);
  assert.is(behind.delays, 1);
  await timers.tickAsync(38);
  assert.is(packed(store.last), "pause");
  store.batches[0]?.reply([answerOf(7), answerOf(8)]);
  await microtasks();
  assert.equal([call.replies, call.undone], [[answerOf(7)], []]);
  assert.equal([leaver.replies, leaver.undone], [[], [answerOf(8)]]);
  assert.is(packed(store.last), "3x1");
  await store.grant();
  assert.equal(behind.replies, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("waitForStore: a batch that was lost is sent again after recovery", async () => {
  const { store, ask } = make({ when: "wait" });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1038);
  store.last.reply([]);
  await microtasks();
  assert.is(packed(store.last), "1x1");
  store.batches[0]?.reply([answerOf(7)]);
  await microtasks();
  assert.equal([call.replies, call.undone], [[], [answerOf(7)]]);
  await store.grant();
  assert.equal(call.replies, [GRANTED]);
});

trouble("a late probe reply from an earlier outage does not end the next one", async () => {
  const { store, ask } = make({ when: "wait" });
  const [first, second] = [new TestCall(1), new TestCall(2)];
  ask(first);
  await timers.tickAsync(1038);
  assert.is(packed(store.last), "pause");
  store.batches[0]?.reply([GRANTED]);
  ask(second);
  await microtasks();
  assert.is(packed(store.last), "2x1");
  await timers.tickAsync(1000);
  store.batches[1]?.reply([]); // the probe of the first outage
  await microtasks();
  assert.is(store.batches.length, 3);
  store.batches[2]?.reply([GRANTED]);
  await microtasks();
  assert.equal([first.replies, second.replies, second.undone], [[GRANTED], [GRANTED], []]);
  assert.is(timers.countTimers(), 0);
});

trouble("the overdue reply and the probe's reply arrive together", async () => {
  const { store, ask } = make({ when: "wait" });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1038);
  store.batches[0]?.reply([answerOf(7)]);
  store.batches[1]?.reply([]);
  await microtasks();
  assert.equal([call.replies, call.undone, store.batches.length], [[answerOf(7)], [], 2]);
});

trouble("waitForStore: the overdue batch fails in the end", async () => {
  const { store, ask } = make({ when: "wait" });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1000);
  store.batches[0]?.fail(new Error("connection lost"));
  await timers.tickAsync(38);
  assert.is(packed(store.last), "pause");
  await store.grant();
  assert.is(packed(store.last), "1x1");
  await store.grant();
  assert.equal([call.replies, call.failures], [[GRANTED], []]);
  assert.is(timers.countTimers(), 0);
});

for (const fault of [
  "WRONGTYPE Operation against a key holding the wrong kind of value",
  "NOPERM this user has no permissions to run the 'evalsha' command",
  "NOAUTH Authentication required.",
  "MOVED 15307 127.0.0.1:18793",
  "ERR The user executing the script can't run this command or subcommand script: 477f, on @user_script:358.",
  "ERR unknown command 'evalsha', with args beginning with: '477f' '1' 'l:x'",
  "ERR user_script:235: bad argument #2 to 'unpack' (data string too short)",
  "user_script:70: attempt to compare number with nil",
]) {
  trouble(`waitForStore: waiting does not fix ${fault}`, async () => {
    const { store, ask } = make({ when: "wait" });
    const [first, second] = [new TestCall(), new TestCall(2)];
    ask(first);
    await microtasks();
    store.last.fail(new Error(fault));
    await microtasks();
    assert.match(`${first.failures[0]?.cause}`, fault);
    ask(second);
    await microtasks();
    store.last.fail(new Error("away"));
    await timers.tickAsync(38);
    store.last.fail(new Error(fault)); // the probe
    await microtasks();
    assert.is(packed(store.last), "2x1");
    store.last.fail(new Error(fault));
    await microtasks();
    assert.match(`${second.failures[0]?.cause}`, fault);
    assert.is(timers.countTimers(), 0);
  });
}

for (const fault of [
  "OOM command not allowed when used memory > 'maxmemory'. script: 477f, on @user_script:358.",
  "Too many Cluster redirections. Last error: ReplyError: MOVED 15307 127.0.0.1:18793",
]) {
  trouble(`waitForStore: waiting fixes ${fault}`, async () => {
    const { store, ask } = make({ when: "wait" });
    const call = new TestCall();
    ask(call);
    await microtasks();
    store.last.fail(new Error(fault));
    await timers.tickAsync(38);
    await store.grant();
    await store.grant();
    assert.equal([call.replies, call.failures], [[GRANTED], []]);
  });
}

trouble("waitForStore: more calls than fit one batch succeed after an outage", async () => {
  const { store, ask } = make({ when: "wait" });
  const calls = many(5000);
  ask(...calls);
  await microtasks();
  store.last.fail(new Error("away"));
  await microtasks();
  ask(...many(5000).map((call) => calls[calls.push(call) - 1] as TestCall));
  await timers.tickAsync(38);
  await store.grant();
  while (calls.some(({ replies }) => replies.length === 0)) {
    await timers.tickAsync(400);
    assert.is(calls.filter(({ failures }) => failures.length > 0).length, 0);
    await store.grant();
  }
  assert.ok(calls.every(({ replies }) => replies.length === 1));
});

trouble.run();

const messages = withTimers("permit link, calls");

const decide = (late: number) => ({ verb: "decide", amount: 3, late }) as const;

messages("the reply resolves the promise", async () => {
  const { store, send } = make();
  const arrival = send(decide, { taken: 3 });
  await microtasks();
  store.last.reply([answerOf(5)]);
  assert.equal(await arrival, answerOf(5));
});

messages("permits that a late reply grants are given back", async () => {
  const { store, send } = make();
  const failed = send(decide, { taken: 3 }).catch((error: StoreUnavailableError) => error.code);
  await timers.tickAsync(1000);
  assert.is(await failed, "STORE_UNAVAILABLE");
  await store.grant();
  await timers.tickAsync(25);
  await store.grant(); // the probe
  assert.equal(store.last.requests, [{ verb: "back", amount: 3, receipts: [] }]);
  await store.grant();
});

messages("a call that takes nothing gives nothing back", async () => {
  const { store, send } = make();
  const failed = send(() => ({ verb: "pause", micros: 5 })).catch(() => "failed");
  await timers.tickAsync(1000);
  assert.is(await failed, "failed");
  await store.grant();
  await timers.tickAsync(25);
  await store.grant(); // the probe
  assert.is(store.batches.length, 2);
});

messages("a give-back that fails is an error for callers that await it", async () => {
  const { store, link } = make();
  const given = link.returnToStore(2, answerOf(0, [1])).catch((error) => error.code);
  await microtasks();
  assert.equal(store.last.requests, [{ verb: "back", amount: 2, receipts: [1] }]);
  store.last.fail(new Error("away"));
  assert.is(await given, "STORE_UNAVAILABLE");
});

messages("waitForStore: a give-back waits too", async () => {
  const { store, send } = make({ when: "wait" });
  const arrival = send(decide, { taken: 3 });
  await microtasks();
  store.last.fail(new Error("away"));
  await timers.tickAsync(38);
  await store.grant();
  await store.grant();
  assert.equal(await arrival, GRANTED);
});

messages("waitForStore: a call that must not run twice may be late, but is not lost", async () => {
  const { store, send } = make({ when: "wait" });
  const refund = () =>
    send(() => ({ verb: "back", amount: 1, receipts: [] }), { again: false })
      .then(() => "done")
      .catch((error: StoreUnavailableError) => error.code);
  const late = refund();
  await timers.tickAsync(1000);
  await store.grant();
  assert.is(await late, "done");
  const lost = refund();
  await timers.tickAsync(1038);
  await store.grant(); // the probe
  assert.is(await lost, "STORE_UNAVAILABLE");
  assert.is(store.batches.length, 3);
  assert.is(timers.countTimers(), 0);
});

messages("waitForStore: a call that must not run twice is not sent again", async () => {
  const { store, send } = make({ when: "wait" });
  const refund = send(() => ({ verb: "back", amount: 1, receipts: [] }), { again: false }).catch(
    (error: StoreUnavailableError) => error.code,
  );
  await microtasks();
  store.last.fail(new Error("connection lost"));
  assert.is(await refund, "STORE_UNAVAILABLE");
  await timers.tickAsync(10_000);
  assert.is(store.batches.length, 1);
});

messages.run();
