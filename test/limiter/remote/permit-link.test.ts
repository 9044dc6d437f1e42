import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import type { StoreUnavailableError } from "../../../src/ground/errors.ts";
import type { Amount } from "../../../src/ground/permits.ts";
import { smoothBursty } from "../../../src/index.ts";
import { InForce } from "../../../src/limiter/remote/in-force.ts";
import { OutageStats } from "../../../src/limiter/remote/outage-stats.ts";
import type { Parts } from "../../../src/limiter/remote/parts.ts";
import { PermitLink } from "../../../src/limiter/remote/permit-link.ts";
import {
  type PermitRequest,
  reserving,
  StoreCall,
} from "../../../src/limiter/remote/permit-request.ts";
import type { WaitLine } from "../../../src/limiter/remote/wait-line.ts";
import { ThrowWhenUnavailable } from "../../../src/limiter/remote/when-unavailable/throw.ts";
import { WaitWhenUnavailable } from "../../../src/limiter/remote/when-unavailable/wait.ts";
import { Breaker } from "../../../src/stores/breaker.ts";
import { listPolicies } from "../../../src/stores/policies.ts";
import { isPermanent } from "../../../src/stores/redis/permanent.ts";
import type { Answer, Store, StoreReply, StoreRequest } from "../../../src/stores/store.ts";
import { suite } from "../../support/suite.ts";

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

/** Answers when it is told to. */
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

/** What became of a request. */
class TestCall implements PermitRequest {
  gone = false;
  readonly told: Answer[] = [];
  readonly undone: Answer[] = [];
  readonly failures: StoreUnavailableError[] = [];
  sentAt: number | undefined;
  delays = 0;
  readonly toStore: PermitRequest["toStore"];
  readonly isRepeatable = true;

  constructor(amount: Amount = 1, longest = Infinity) {
    this.toStore = (late, last) => reserving(amount, longest, late, last);
  }

  taken(): Amount {
    return 0;
  }

  answer(answer: Answer, sentAt: number): void {
    this.told.push(answer);
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

/** Fails, as "throw" does, at the first error and at the client's word. */
class FailEarly extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  override readonly awayOnDisconnect = true;
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
  readonly epoch?: number;
  readonly now?: () => number;
  readonly lateBy?: () => number;
}

async function microtasks(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

function make({ key = "key", when = "throw", ...options }: Made = {}) {
  const { store = new HandStore(), timeoutMs = 1000, epoch } = options;
  const { now = () => 77, lateBy = () => 0 } = options;
  const line = { now, lateBy } as Partial<WaitLine> as WaitLine;
  const strategy = STRATEGIES[when]();
  const declared = listPolicies(smoothBursty({ permitsPerSecond: 5 }));
  const stats = new OutageStats("test");
  const inForce = new InForce("test", declared);
  const parts = {
    ...{ name: "test", timeoutMs, epoch, declared, line, stats, inForce },
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
  return { store, link, inForce, strategy, ask, send };
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

sharing("a lone call leaves with the microtasks of its turn", async () => {
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
  assert.equal([call.told, call.sentAt], [[GRANTED], 77]);
});

sharing("calls of one turn travel together, and each gets its own answer", async () => {
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
    calls.map(({ told }) => told[0]?.wait),
    [0, 1, 2, 3, 4, 6, 7],
  );
  assert.equal((await charged).wait, 5);
});

sharing("neighbours are one request where they ask the same of each policy", async () => {
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

sharing("calls that come during a batch take the next one, in their order", async () => {
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

sharing("who has gone before the batch leaves does not travel", async () => {
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
  assert.equal([first.told, first.undone], [[], [GRANTED]]);
  assert.equal([second.told, second.undone], [[], []]);
  assert.equal([third.told, third.undone], [[GRANTED], []]);
});

sharing("no batch is longer than 4096 calls; the rest takes the next ones", async () => {
  const { store, ask } = make();
  const calls = many(10_000);
  ask(...calls);
  await microtasks();
  for (const expected of ["1x4096", "1x4096", "1x1808"]) {
    assert.is(packed(store.last), expected);
    await store.grant();
  }
  assert.is(store.batches.length, 3);
  assert.ok(calls.every(({ told }) => told.length === 1));
});

sharing("the time and the lateness are those of the departure", async () => {
  let now = 5;
  let late = 3;
  const { store, ask } = make({ now: () => now, lateBy: () => late, epoch: 0 });
  const call = new TestCall();
  ask(call);
  await microtasks();
  assert.equal([store.last.now, store.last.requests[0]], [5, call.toStore(3, undefined)]);
  now = 9;
  late = 0;
  await store.grant();
  assert.is(call.sentAt, 5);
});

sharing("the numbers in force are those of the last reply", async () => {
  const { store, inForce, ask } = make();
  assert.is(inForce.numbers, "s5");
  ask(new TestCall());
  await microtasks();
  store.last.reply([GRANTED], "s9");
  await microtasks();
  assert.is(inForce.numbers, "s9");
});

sharing.run();

const trouble = withTimers("permit link, trouble");

trouble(
  "an error is everybody's who travelled, with its cause; the next batch leaves",
  async () => {
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
    assert.equal(waiting.told, [GRANTED]);
    assert.is(timers.countTimers(), 0);
  },
);

trouble("nobody pays for the outage: late once, then at once, until it is back", async () => {
  const { store, link, inForce, ask } = make();
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
  assert.is(second.failures.length, 1, "it has not left, and does not wait any longer");
  assert.ok(link.isAway);
  const third = new TestCall(3);
  ask(third);
  assert.equal(third.failures[0]?.cause, error.cause);

  first.returnToStore = (answer) => link.returnToStore(1, answer);
  store.batches[0]?.reply([answerOf(5, [3])], "s6");
  await microtasks();
  assert.is(inForce.numbers, "s6");
  assert.is(store.batches.length, 1, "too late an answer: it is away still");
  await timers.tickAsync(25);
  assert.is(packed(store.last), "pause");
  await store.grant();
  assert.not(link.isAway);
  // what is given back goes first
  assert.equal(store.last.requests, [{ verb: "back", amount: 1, receipts: [3] }]);
  await store.grant();
  const fourth = new TestCall(4);
  ask(fourth);
  await microtasks();
  await store.grant();
  assert.equal([fourth.told, fourth.failures], [[GRANTED], []]);
  assert.equal([second.told, second.undone, second.failures.length], [[], [], 1]);
  await timers.tickAsync(10_000);
  assert.is(store.batches.length, 4);
  assert.is(timers.countTimers(), 0);
});

trouble("looked for with longer and longer pauses; the first answer will do", async () => {
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
  // neither a late grant nor a late failure of the lost batch matters to those who come now
  const next = new TestCall(3);
  ask(next);
  await microtasks();
  store.batches[0]?.fail(new Error("connection lost"));
  await microtasks();
  await store.grant();
  assert.equal(next.told, [GRANTED]);
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
  // too slow is no better than away
  store.batches[1]?.reply([]);
  await microtasks();
  assert.ok(link.isAway);
  store.batches[2]?.reply([]);
  await microtasks();
  assert.not(link.isAway);
  assert.is(timers.countTimers(), 0);
});

trouble("a probe tells all who share the connection, whoever has sent it", async () => {
  const store = new HandStore(new Breaker());
  const links = ["a", "b"].map((key) => make({ store, key }).link);
  const calls = many(3);
  links[0]?.send(calls[0] as TestCall);
  await timers.tickAsync(1000);
  links[1]?.send(calls[1] as TestCall);
  assert.is(calls[1]?.failures.length, 1, "it does not try for itself");
  assert.is(store.batches.length, 1);
  await timers.tickAsync(25);
  assert.is(store.batches.length, 2, "one probe for both");
  store.last.fail(new Error("refused"));
  await timers.tickAsync(50);
  assert.equal(
    store.batches.slice(1).map(({ key }) => key),
    ["a", "b"],
    "by turns",
  );
  await store.grant();
  assert.equal(
    links.map(({ isAway }) => isAway),
    [false, false],
  );
  links[1]?.send(calls[2] as TestCall);
  await microtasks();
  await store.grant();
  assert.equal(calls[2]?.told, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("whoever was about to leave when the store was lost stays", async () => {
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
  // found again within the same turn: one batch leaves, not two
  breaker.close();
  link.send(calls[2]);
  breaker.join(other, new Error("gone"));
  link.send(calls[3]);
  breaker.close();
  link.send(calls[4]);
  await microtasks();
  assert.is(store.batches.length, 1);
  await store.grant();
  assert.is(calls[4].told.length, 1);
  breaker.leave(other);
});

trouble("who has only something to give back is not idle", async () => {
  const { store, link, ask } = make();
  ask(new TestCall());
  await timers.tickAsync(1000);
  assert.ok(link.isAway && link.isIdle);
  await link.returnToStore(1, answerOf(5, [3]));
  assert.not(link.isIdle);
  await timers.tickAsync(25);
  await store.grant();
  await store.grant();
  assert.ok(link.isIdle && !link.isAway);
});

trouble("who yields goes at the client's word, and at the first failure", async () => {
  const breaker = new Breaker();
  const { store, link: yielding } = make({ store: new HandStore(breaker), when: "early" });
  const { link: failing } = make({ store });
  const calls = many(5) as [TestCall, TestCall, TestCall, TestCall, TestCall];
  yielding.send(calls[0]);
  await microtasks();
  store.last.fail(new Error("OOM"));
  await microtasks();
  assert.match(`${calls[0].failures[0]?.cause}`, "OOM");
  assert.ok(yielding.isAway);
  breaker.reconnected();
  await store.grant();
  assert.not(yielding.isAway);

  failing.send(calls[1]);
  await microtasks();
  store.last.fail(new Error("OOM"));
  await microtasks();
  assert.equal([calls[1].failures.length, failing.isAway], [1, false]);

  breaker.disconnected(new Error("closed"));
  failing.send(calls[2]);
  assert.is(calls[2].failures.length, 0, "it may get through in time");
  yielding.send(calls[3]);
  assert.match(`${calls[3].failures[0]?.cause}`, "closed");
  // the first answer shows that it is there
  await microtasks();
  await store.grant();
  assert.equal([calls[2].told, yielding.isAway, breaker.isOpen], [[GRANTED], false, false]);
  breaker.reconnected();
  yielding.send(calls[4]);
  await microtasks();
  await store.grant();
  assert.equal(calls[4].told, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("a queue that never empties makes nobody's time run out", async () => {
  const { store, ask } = make();
  const calls = many(6000);
  ask(...calls);
  for (let round = 0; round < 30; round++) {
    await timers.tickAsync(100);
    const { length } = calls.filter(({ failures }) => failures.length > 0);
    assert.is(length, 0, `${length} calls failed after ${round * 100} ms`);
    // whoever is answered asks again at once
    const next = many(4096);
    calls.push(...next);
    ask(...next);
    await store.grant();
  }
});

trouble("more than 2^31 ms is a long time too", async () => {
  const { store, ask } = make({ timeoutMs: 1e10 });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1e6);
  assert.is(call.failures.length, 0);
  await store.grant();
  assert.equal(call.told, [GRANTED]);
});

trouble(
  "patient: looked for with longer and longer pauses, then asked again in their order",
  async () => {
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
      // the fake timers know whole milliseconds only
      assert.ok(
        pause >= Math.floor(mean / 2) && pause <= mean * 1.5 + 1,
        `pause ${i}: ${pause} ms`,
      );
    }
    await store.grant();
    assert.is(packed(store.last), "1x1 3x1 4x1");
    await store.grant();
    assert.equal([calls[0]?.told, calls[0]?.failures], [[GRANTED], []]);
    assert.equal([calls[1]?.told, calls[1]?.undone], [[], []]);

    ask(new TestCall(5));
    await microtasks();
    store.last.fail(new Error("away again"));
    await microtasks();
    const { length } = store.batches;
    await timers.tickAsync(38);
    assert.is(store.batches.length, length + 1);
    await store.grant();
    await store.grant();
    assert.is(timers.countTimers(), 0);
  },
);

trouble("patient: a late answer is as good as one in time", async () => {
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
  assert.equal([call.told, call.undone], [[answerOf(7)], []]);
  assert.equal([leaver.told, leaver.undone], [[], [answerOf(8)]]);
  assert.is(packed(store.last), "3x1");
  await store.grant();
  assert.equal(behind.told, [GRANTED]);
  assert.is(timers.countTimers(), 0);
});

trouble("patient: asked again if the store is back and the batch is lost", async () => {
  const { store, ask } = make({ when: "wait" });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1038);
  store.last.reply([]);
  await microtasks();
  assert.is(packed(store.last), "1x1");
  store.batches[0]?.reply([answerOf(7)]);
  await microtasks();
  assert.equal([call.told, call.undone], [[], [answerOf(7)]]);
  await store.grant();
  assert.equal(call.told, [GRANTED]);
});

trouble(
  "an answer to who looked for the store before says nothing of the next silence",
  async () => {
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
    store.batches[1]?.reply([]); // the probe of the first silence
    await microtasks();
    assert.is(store.batches.length, 3);
    store.batches[2]?.reply([GRANTED]);
    await microtasks();
    assert.equal([first.told, second.told, second.undone], [[GRANTED], [GRANTED], []]);
    assert.is(timers.countTimers(), 0);
  },
);

trouble("the overdue reply and that of who looks for the store come together", async () => {
  const { store, ask } = make({ when: "wait" });
  const call = new TestCall();
  ask(call);
  await timers.tickAsync(1038);
  store.batches[0]?.reply([answerOf(7)]);
  store.batches[1]?.reply([]);
  await microtasks();
  assert.equal([call.told, call.undone, store.batches.length], [[answerOf(7)], [], 2]);
});

trouble("patient: and if the batch fails after all", async () => {
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
  assert.equal([call.told, call.failures], [[GRANTED], []]);
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
  trouble(`patient, but waiting does not mend ${fault}`, async () => {
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
  trouble(`patient: waiting mends ${fault}`, async () => {
    const { store, ask } = make({ when: "wait" });
    const call = new TestCall();
    ask(call);
    await microtasks();
    store.last.fail(new Error(fault));
    await timers.tickAsync(38);
    await store.grant();
    await store.grant();
    assert.equal([call.told, call.failures], [[GRANTED], []]);
  });
}

trouble("patient: many more than fit one batch come through after it was away", async () => {
  const { store, ask } = make({ when: "wait" });
  const calls = many(5000);
  ask(...calls);
  await microtasks();
  store.last.fail(new Error("away"));
  await microtasks();
  ask(...many(5000).map((call) => calls[calls.push(call) - 1] as TestCall));
  await timers.tickAsync(38);
  await store.grant();
  while (calls.some(({ told }) => told.length === 0)) {
    await timers.tickAsync(400);
    assert.is(calls.filter(({ failures }) => failures.length > 0).length, 0);
    await store.grant();
  }
  assert.ok(calls.every(({ told }) => told.length === 1));
});

trouble.run();

const messages = withTimers("permit link, calls");

const decide = (late: number) => ({ verb: "decide", amount: 3, late }) as const;

messages("the answer is the promise's", async () => {
  const { store, send } = make();
  const arrival = send(decide, { taken: 3 });
  await microtasks();
  store.last.reply([answerOf(5)]);
  assert.equal(await arrival, answerOf(5));
});

messages("what a late reply says that was taken is given back", async () => {
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

messages("what takes nothing is not given back", async () => {
  const { store, send } = make();
  const failed = send(() => ({ verb: "pause", micros: 5 })).catch(() => "failed");
  await timers.tickAsync(1000);
  assert.is(await failed, "failed");
  await store.grant();
  await timers.tickAsync(25);
  await store.grant(); // the probe
  assert.is(store.batches.length, 2);
});

messages("what is given back in vain is an error for who wants to know", async () => {
  const { store, link } = make();
  const given = link.returnToStore(2, answerOf(0, [1])).catch((error) => error.code);
  await microtasks();
  assert.equal(store.last.requests, [{ verb: "back", amount: 2, receipts: [1] }]);
  store.last.fail(new Error("away"));
  assert.is(await given, "STORE_UNAVAILABLE");
});

messages("patient: a message waits too", async () => {
  const { store, send } = make({ when: "wait" });
  const arrival = send(decide, { taken: 3 });
  await microtasks();
  store.last.fail(new Error("away"));
  await timers.tickAsync(38);
  await store.grant();
  await store.grant();
  assert.equal(await arrival, GRANTED);
});

messages("patient: what must not be done twice may be late, but not lost", async () => {
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

messages("patient: what must not be done twice is not asked for again", async () => {
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
