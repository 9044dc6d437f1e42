import { getEventListeners } from "node:events";
import * as assert from "uvu/assert";
import { AbortGroups } from "../../src/ground/abort-groups.ts";
import { suite } from "../support/suite.ts";

interface Aborted {
  member: string;
  reason: unknown;
}

function made() {
  const aborted: Aborted[] = [];
  const groups = new AbortGroups<string>((member, reason) => aborted.push({ member, reason }));
  const controller = new AbortController();
  const { signal } = controller;
  const listeners = () => getEventListeners(signal, "abort").length;
  return { aborted, groups, controller, signal, listeners };
}

const test = suite("abort groups");

test("each signal has one listener, as long as it has members", () => {
  const { groups, signal, listeners } = made();
  const other = new AbortController().signal;
  for (const member of ["a", "b", "c"]) groups.add(signal, member);
  groups.add(other, "d");
  assert.equal([listeners(), getEventListeners(other, "abort").length], [1, 1]);
  groups.delete(signal, "b");
  groups.delete(signal, "a");
  assert.is(listeners(), 1);
  groups.delete(signal, "c");
  assert.is(listeners(), 0);
  groups.add(signal, "a");
  assert.is(listeners(), 1);
});

test("an abort calls every member, in order, with the signal's reason", () => {
  const { aborted, groups, controller, signal } = made();
  for (const member of ["a", "b", "c"]) groups.add(signal, member);
  groups.delete(signal, "b");
  const reason = {};
  controller.abort(reason);
  assert.equal(
    aborted.map(({ member }) => member),
    ["a", "c"],
  );
  assert.ok(aborted.every((each) => each.reason === reason));
});

test("members that leave during the abort are called once, and the listener is removed", () => {
  const aborted: string[] = [];
  const controller = new AbortController();
  const { signal } = controller;
  const groups = new AbortGroups<string>((member) => {
    aborted.push(member);
    groups.delete(signal, member);
    if (member === "a") groups.delete(signal, "b");
  });
  for (const member of ["a", "b", "c"]) groups.add(signal, member);
  controller.abort();
  assert.equal(aborted, ["a", "c"]);
  assert.is(getEventListeners(signal, "abort").length, 0);
});

test("deleting an unknown member has no effect", () => {
  const { aborted, groups, controller, signal, listeners } = made();
  groups.delete(signal, "a");
  groups.add(signal, "a");
  groups.delete(signal, "b");
  assert.is(listeners(), 1);
  controller.abort();
  assert.is(aborted.length, 1);
});

test.run();
