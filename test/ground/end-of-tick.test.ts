import * as assert from "uvu/assert";
import { atEndOfTick } from "../../src/ground/end-of-tick.ts";
import { suite } from "../support/suite.ts";

const test = suite("end of turn");

test("tasks run in order, after the callers of the turn, and with those that they add", async () => {
  const ran: string[] = [];
  atEndOfTick(() => {
    ran.push("a");
    atEndOfTick(() => ran.push("added"));
  });
  queueMicrotask(() => ran.push("microtask"));
  atEndOfTick(() => ran.push("b"));
  ran.push("caller");
  await Promise.resolve();
  assert.equal(ran, ["caller", "a", "b", "added", "microtask"]);
});

test("a task that throws is an unhandled rejection, and the tasks behind it run", async () => {
  const ran: string[] = [];
  const broken = new Error("broken");
  const unhandled = new Promise((resolve) => process.once("unhandledRejection", resolve));
  atEndOfTick(() => {
    throw broken;
  });
  atEndOfTick(() => ran.push("behind"));
  assert.is(await unhandled, broken);
  assert.equal(ran, ["behind"]);
  atEndOfTick(() => ran.push("later"));
  await Promise.resolve();
  assert.equal(ran, ["behind", "later"]);
});

test.run();
