import * as assert from "uvu/assert";
import { TripCounter } from "../../src/stores/trip.ts";
import { suite } from "../support/suite.ts";

const test = suite("trip counter");

test("each trip has the caller's id and a higher number", () => {
  const trips = new TripCounter();
  const [first, second] = [trips.next(), trips.next()];
  assert.match(first.caller, /^[\w-]{8}$/);
  assert.equal([first.number, second.number], [1, 2]);
  assert.is(second.caller, first.caller);
});

test("no two counters have one id", () => {
  const callers = Array.from({ length: 1000 }, () => new TripCounter().next().caller);
  assert.is(new Set(callers).size, 1000);
});

test("after 2^32 - 1 trips it goes on under another id", () => {
  const trips = new TripCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const [last, next] = [trips.next(), trips.next()];
  assert.equal([last.number, next.number], [2 ** 32 - 1, 1]);
  assert.is.not(next.caller, last.caller);
});

test("a trip that changed nothing gives its number back, unless a later one is under way", () => {
  const trips = new TripCounter();
  const first = trips.next();
  trips.replied(first, false, undefined);
  const again = trips.next();
  const later = trips.next();
  trips.replied(again, false, undefined);
  assert.equal([first.number, again.number, later.number, trips.next().number], [1, 1, 2, 3]);
});

test("a state that remembers an earlier trip than one that changed it has gone back", () => {
  const trips = new TripCounter();
  const reply = (hasChanged: boolean, remembered?: number) =>
    trips.replied(trips.next(), hasChanged, remembered);
  assert.equal([reply(true), reply(true), reply(true)], [0, 0, 0]);
  assert.is(reply(false, 1), 2);
  assert.is(reply(false, 1), 0, "it is reported once");
  assert.is(reply(true, 1), 0);
  assert.is(reply(true, 3), 1, "the trip before changed the state");
});

test("a gap that a lost request leaves is not a step back, nor is a state without this caller", () => {
  const trips = new TripCounter();
  trips.replied(trips.next(), true, undefined);
  trips.next();
  assert.is(trips.replied(trips.next(), true, 1), 0);
  assert.is(trips.replied(trips.next(), true, undefined), 0);
});

test("the counters of several keys have one id, and a new one starts above all numbers", () => {
  const trips = new TripCounter();
  const [one, other] = [trips.forKey(), trips.forKey()];
  const numbers = [one.next(), one.next(), other.next(), trips.forKey().next()];
  assert.equal(
    numbers.map(({ number }) => number),
    [1, 2, 1, 3],
  );
  assert.is(new Set(numbers.map(({ caller }) => caller)).size, 1);
});

test("a reply to a trip of the previous id says nothing", () => {
  const trips = new TripCounter({ id: "process0", highest: 2 ** 32 - 2 });
  const last = trips.next();
  trips.next();
  assert.is(trips.replied(last, true, 5), 0);
});

test.run();
