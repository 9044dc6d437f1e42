import { readFileSync } from "node:fs";
import * as assert from "uvu/assert";
import { oncePerProcess, symbolOf, VERSION } from "../../src/ground/copies.ts";
import { LimiterError, QueueFullError, TooManyKeysError } from "../../src/ground/errors.ts";
import { suite } from "../support/suite.ts";

const load = (copy: string): Promise<typeof import("../../src/ground/errors.ts")> =>
  import(`../../src/ground/errors.ts?${copy}`);

const copies = suite("copies of the package");

copies("the version under which copies share values is that of package.json", () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.is(VERSION, version);
});

copies("a value exists once, and is not enumerable among the globals", () => {
  const first = oncePerProcess("a test's value", () => ({}));
  assert.is(
    oncePerProcess("a test's value", () => ({})),
    first,
  );
  assert.not(Object.prototype.propertyIsEnumerable.call(globalThis, symbolOf("a test's value")));
});

copies.run();

const errors = suite("errors of another copy");

errors("errors of another copy are instances of their class and of the base class", async () => {
  const other = await load("other");
  const full = new other.QueueFullError("name", 1, 1, 0);
  assert.is.not(other.QueueFullError, QueueFullError);
  assert.ok(full instanceof QueueFullError);
  assert.ok(full instanceof LimiterError);
  assert.not(full instanceof TooManyKeysError);
});

errors("errors of another copy are not instances of a user's own class", async () => {
  class OwnError extends QueueFullError {}
  const other = await load("other");
  assert.not(new other.QueueFullError("name", 1, 1, 0) instanceof OwnError);
  assert.ok(new OwnError("name", 1, 1, 0) instanceof OwnError);
  assert.ok(new OwnError("name", 1, 1, 0) instanceof other.QueueFullError);
});

errors("errors of another copy look like errors, and only they have the hidden mark", () => {
  assert.equal(Object.getOwnPropertySymbols({ ...new LimiterError("CODE", "message", {}) }), []);
  for (const value of [undefined, null, "text", {}, new Error("other"), { code: "QUEUE_FULL" }]) {
    assert.not((value as unknown) instanceof LimiterError);
    assert.not((value as unknown) instanceof QueueFullError);
  }
});

errors.run();
