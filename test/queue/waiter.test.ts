import * as assert from "uvu/assert";
import { Waiter } from "../../src/queue/waiter.ts";
import { suite } from "../support/suite.ts";

const test = suite("waiter");

class Caller extends Waiter {
  override release(): void {}
  override abort(): void {}
}

test("thousands of waiters of one signal share the list of it", () => {
  const { signal } = new AbortController();
  const [one, two] = [new Caller(0, 1, signal), new Caller(5, 2, signal)];
  assert.equal(one.signals, [signal]);
  assert.is(one.signals, two.signals);
  assert.equal(new Caller(0, 1, new AbortController().signal).signals.length, 1);
  assert.is(new Caller(0, 1).signals, new Caller(0, 1).signals);
});

test("a waiter takes what it waits for, has no deadline, and is not dropped", () => {
  const caller = new Caller(0, 3);
  assert.equal([caller.taken, caller.awaited, caller.deadline], [3, true, Infinity]);
  assert.equal([caller.signals, caller.fairEntry, caller.drop], [[], undefined, undefined]);
});

test.run();
