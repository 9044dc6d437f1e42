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

test("the counters of several keys have the same ids, and a new one starts above all numbers", () => {
  const callers: CallerRecord[] = [];
  const forKey = () => new BatchCounters(callers);
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

test("no two calls at once have one counter, and one that is released is used again", () => {
  const counters = new BatchCounters();
  const [one, other] = [counters.take(), counters.take()];
  assert.is.not(one, other);
  counters.release(one);
  assert.is(counters.take(), one);
});

test.run();
