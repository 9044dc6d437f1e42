import * as assert from "uvu/assert";
import { builtinModule, emitWarning } from "../../src/ground/node-process.ts";
import { suite } from "../support/suite.ts";

const test = suite("node process");

const { process: real } = globalThis;
const property = Object.getOwnPropertyDescriptor(globalThis, "process") ?? {};

/** Runs the action while another `process` is global. */
function withProcess(process: unknown, action: () => void): void {
  Object.defineProperty(globalThis, "process", { value: process, configurable: true });
  try {
    action();
  } finally {
    Object.defineProperty(globalThis, "process", property);
  }
}

test("a module of Node is returned", () => {
  assert.is(builtinModule("node:events"), real.getBuiltinModule("node:events"));
});

test("a platform without `process` has no modules, and ignores warnings", () => {
  withProcess(undefined, () => {
    assert.is(builtinModule("node:events"), undefined);
    emitWarning("careful");
  });
});

test("functions that throw when they are called count as absent", () => {
  const fail = () => {
    throw new Error("A Node.js API is used which is not supported in the Edge Runtime.");
  };
  withProcess({ getBuiltinModule: fail, emitWarning: fail }, () => {
    assert.is(builtinModule("node:events"), undefined);
    emitWarning("careful");
  });
});

test("a warning has the options that it is given", () => {
  const calls: unknown[] = [];
  withProcess({ emitWarning: (...args: unknown[]) => void calls.push(args) }, () => {
    emitWarning("careful", { type: "Kind", code: "CODE" });
  });
  assert.equal(calls, [["careful", { type: "Kind", code: "CODE" }]]);
});

test.run();
