import * as assert from "uvu/assert";
import { Waiter } from "../../src/queue/waiter.ts";
import { suite } from "../support/suite.ts";

const test = suite("waiter");

class Caller extends Waiter {
  override release(): void {}
  override abort(): void {}
}

test("a waiter is cancelled by the signal of its call, if it has one", () => {
  const { signal } = new AbortController();
  assert.equal(new Caller(0, 1, signal).signals, [signal]);
  assert.equal(new Caller(0, 1).signals, []);
});

test("a waiter takes what it waits for, has no deadline, and is not dropped", () => {
  const caller = new Caller(0, 3);
  assert.equal([caller.taken, caller.awaited, caller.deadline], [3, true, Infinity]);
  assert.equal([caller.signals, caller.fairEntry, caller.drop], [[], undefined, undefined]);
});

test.run();
