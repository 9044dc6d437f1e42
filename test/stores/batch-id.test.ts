import * as assert from "uvu/assert";
import { BatchCounter } from "../../src/stores/batch-id.ts";
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

test("after 2^32 - 1 batches it goes on under another id", () => {
  const counter = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const [last, next] = [counter.next(), counter.next()];
  assert.equal([last.number, next.number], [2 ** 32 - 1, 1]);
  assert.is.not(next.caller, last.caller);
});

test("a batch that changed nothing gives its number back, unless a later one is under way", () => {
  const counter = new BatchCounter();
  const first = counter.next();
  counter.replied(first, false, undefined);
  const again = counter.next();
  const later = counter.next();
  counter.replied(again, false, undefined);
  assert.equal([first.number, again.number, later.number, counter.next().number], [1, 1, 2, 3]);
});

test("a state that remembers an earlier batch than one that changed it has gone back", () => {
  const counter = new BatchCounter();
  const reply = (hasChanged: boolean, remembered?: number) =>
    counter.replied(counter.next(), hasChanged, remembered);
  assert.equal([reply(true), reply(true), reply(true)], [0, 0, 0]);
  assert.is(reply(false, 1), 2);
  assert.is(reply(false, 1), 0, "it is reported once");
  assert.is(reply(true, 1), 0);
  assert.is(reply(true, 3), 1, "the batch before changed the state");
});

test("a gap that a lost request leaves is not a step back, nor is a state without this caller", () => {
  const counter = new BatchCounter();
  counter.replied(counter.next(), true, undefined);
  counter.next();
  assert.is(counter.replied(counter.next(), true, 1), 0);
  assert.is(counter.replied(counter.next(), true, undefined), 0);
});

test("the counters of several keys have one id, and a new one starts above all numbers", () => {
  const counter = new BatchCounter();
  const [one, other] = [counter.forKey(), counter.forKey()];
  const numbers = [one.next(), one.next(), other.next(), counter.forKey().next()];
  assert.equal(
    numbers.map(({ number }) => number),
    [1, 2, 1, 3],
  );
  assert.is(new Set(numbers.map(({ caller }) => caller)).size, 1);
});

test("a reply to a batch of the previous id says nothing", () => {
  const counter = new BatchCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const last = counter.next();
  counter.next();
  assert.is(counter.replied(last, true, 5), 0);
});

test.run();
