import * as assert from "uvu/assert";
import { BatchCounter, BatchCounters, type CallerRecord } from "../../src/stores/batch-id.ts";
import { suite } from "../support/suite.ts";

const test = suite("batch counter");

test("each batch has the caller's id and a higher number", () => {
  const counter = new BatchCounter();
  const [first, second] = [counter.next(), counter.next()];
  assert.match(first.caller, /^[\w-]{8}$/);
  assert.equal([first.number, second.number], [1, 2]);
  assert.is(second.caller, first.caller);
});

test("no two counters have one id", () => {
  const callers = Array.from({ length: 1000 }, () => new BatchCounter().next().caller);
  assert.is(new Set(callers).size, 1000);
});

test("after 2^32 - 1 batches the counter continues under another id", () => {
  const counter = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const [last, next] = [counter.next(), counter.next()];
  assert.equal([last.number, next.number], [2 ** 32 - 1, 1]);
  assert.is.not(next.caller, last.caller);
});

test("a batch that changed nothing gives its number back, unless a later one is in flight", () => {
  const counter = new BatchCounter();
  const first = counter.next();
  counter.replied(first, false, undefined);
  const again = counter.next();
  const later = counter.next();
  counter.replied(again, false, undefined);
  assert.equal([first.number, again.number, later.number, counter.next().number], [1, 1, 2, 3]);
});

test("a state that remembers an earlier batch than one that changed it was rolled back", () => {
  const counter = new BatchCounter();
  const reply = (hasChanged: boolean, remembered?: number) =>
    counter.replied(counter.next(), hasChanged, remembered);
  assert.equal([reply(true), reply(true), reply(true)], [0, 0, 0]);
  assert.is(reply(false, 1), 2);
  assert.is(reply(false, 1), 0, "it is reported once");
  assert.is(reply(true, 1), 0);
  assert.is(reply(true, 3), 1, "the batch before changed the state");
});

test("a gap that a lost request leaves, or a state without this caller, is no rollback", () => {
  const counter = new BatchCounter();
  counter.replied(counter.next(), true, undefined);
  counter.next();
  assert.is(counter.replied(counter.next(), true, 1), 0);
  assert.is(counter.replied(counter.next(), true, undefined), 0);
});

test("the counters of several keys have the same ids, and a new one starts above all numbers", () => {
  const callers: CallerRecord[] = [];
  const forKey = () => new BatchCounters(() => {}, callers);
  const [one, other] = [forKey(), forKey()];
  const [first, second] = [one.take(), one.take()];
  const there = other.take();
  const ids = [first.next(), first.next(), there.next(), forKey().take().next(), second.next()];
  assert.equal(
    ids.map(({ number }) => number),
    [1, 2, 1, 3, 1],
  );
  const same = ids.map(({ caller }) => caller === ids[0]?.caller);
  assert.equal(same, [true, true, true, true, false]);
});

test("no two calls at once have one counter; the counter of the latest change is used next", () => {
  const counters = new BatchCounters(() => {});
  const [one, other] = [counters.take(), counters.take()];
  assert.is.not(one, other);
  counters.replied(one, one.next(), true);
  counters.release(one);
  counters.replied(other, other.next(), false);
  counters.release(other);
  assert.equal([counters.take() === one, counters.take() === other], [true, true]);
});

test("a rollback that several counters could find is reported once, and a later one again", () => {
  const found: number[] = [];
  const counters = new BatchCounters((lost) => found.push(lost));
  const [one, other] = [counters.take(), counters.take()];
  const changed = (counter: BatchCounter, remembered?: number) =>
    counters.replied(counter, counter.next(), true, remembered);
  for (let i = 0; i < 3; i++) for (const counter of [one, other]) changed(counter);
  changed(one, 1);
  changed(other, 1);
  assert.equal(found, [2]);
  changed(other, 3);
  changed(one, 3);
  assert.equal(found, [2, 1]);
});

test("a reply to a batch of the previous id is ignored", () => {
  const counter = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const last = counter.next();
  counter.next();
  assert.is(counter.replied(last, true, 5), 0);
});

test.run();
