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
  const trips = new TripCounter(2 ** 32 - 2);
  const [last, next] = [trips.next(), trips.next()];
  assert.equal([last.number, next.number], [2 ** 32 - 1, 1]);
  assert.is.not(next.caller, last.caller);
});

test.run();
