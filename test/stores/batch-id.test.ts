import * as assert from "uvu/assert";
import { BatchCounter } from "../../src/stores/batch-id.ts";
import { suite } from "../support/suite.ts";

const test = suite("batch counter");

test("each batch has the caller's id and a higher number", () => {
  const batchIds = new BatchCounter();
  const [first, second] = [batchIds.next(), batchIds.next()];
  assert.match(first.caller, /^[\w-]{8}$/);
  assert.equal([first.number, second.number], [1, 2]);
  assert.is(second.caller, first.caller);
});

test("no two counters have one id", () => {
  const callers = Array.from({ length: 1000 }, () => new BatchCounter().next().caller);
  assert.is(new Set(callers).size, 1000);
});

test("after 2^32 - 1 batches it goes on under another id", () => {
  const batchIds = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const [last, next] = [batchIds.next(), batchIds.next()];
  assert.equal([last.number, next.number], [2 ** 32 - 1, 1]);
  assert.is.not(next.caller, last.caller);
});

test("a batch that changed nothing gives its number back, unless a later one is under way", () => {
  const batchIds = new BatchCounter();
  const first = batchIds.next();
  batchIds.replied(first, false, undefined);
  const again = batchIds.next();
  const later = batchIds.next();
  batchIds.replied(again, false, undefined);
  assert.equal([first.number, again.number, later.number, batchIds.next().number], [1, 1, 2, 3]);
});

test("a state that remembers an earlier batch than one that changed it has gone back", () => {
  const batchIds = new BatchCounter();
  const reply = (hasChanged: boolean, remembered?: number) =>
    batchIds.replied(batchIds.next(), hasChanged, remembered);
  assert.equal([reply(true), reply(true), reply(true)], [0, 0, 0]);
  assert.is(reply(false, 1), 2);
  assert.is(reply(false, 1), 0, "it is reported once");
  assert.is(reply(true, 1), 0);
  assert.is(reply(true, 3), 1, "the batch before changed the state");
});

test("a gap that a lost request leaves is not a step back, nor is a state without this caller", () => {
  const batchIds = new BatchCounter();
  batchIds.replied(batchIds.next(), true, undefined);
  batchIds.next();
  assert.is(batchIds.replied(batchIds.next(), true, 1), 0);
  assert.is(batchIds.replied(batchIds.next(), true, undefined), 0);
});

test("the counters of several keys have one id, and a new one starts above all numbers", () => {
  const batchIds = new BatchCounter();
  const [one, other] = [batchIds.forKey(), batchIds.forKey()];
  const numbers = [one.next(), one.next(), other.next(), batchIds.forKey().next()];
  assert.equal(
    numbers.map(({ number }) => number),
    [1, 2, 1, 3],
  );
  assert.is(new Set(numbers.map(({ caller }) => caller)).size, 1);
});

test("a reply to a batch of the previous id says nothing", () => {
  const batchIds = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const last = batchIds.next();
  batchIds.next();
  assert.is(batchIds.replied(last, true, 5), 0);
});

test.run();
