import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { keyOf } from "../../src/actors/key.ts";

const test = suite("keys of actors");

test("in this process a short value is its own key, and a long one is hashed", () => {
  assert.is(keyOf("=ann", "local"), "=ann");
  assert.is(keyOf("x".repeat(64), "local"), "x".repeat(64));
  assert.match(keyOf("x".repeat(65), "local"), /^#[\w-]{43}$/);
});

test("in this process no value equals the key of another value", () => {
  const long = "x".repeat(65);
  const forged = keyOf(long, "local");
  assert.is.not(keyOf(forged, "local"), forged);
  assert.is.not(keyOf("#", "local"), "#");
});

test("on Redis all values are hashed, well-formed or not, and no two keys are the same", async () => {
  assert.match(keyOf("", "global"), /^#[\w-]{43}$/);
  const text = fc.string({ unit: "grapheme" });
  await fc.assert(
    fc.property(text, text, (one, other) => {
      assert.is(keyOf(one, "global") === keyOf(other, "global"), one === other);
      assert.match(keyOf(`${one}\ud800`, "global"), /^#[\w-]{43}$/);
    }),
  );
});

test.run();
