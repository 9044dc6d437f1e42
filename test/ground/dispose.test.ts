import * as assert from "uvu/assert";
import { asyncDispose, dispose, wellKnown } from "../../src/ground/dispose.ts";
import { suite } from "../support/suite.ts";

const test = suite("dispose");

test("the symbols are the platform's where it has them, otherwise the polyfills'", () => {
  assert.is(dispose, Symbol.dispose);
  assert.is(asyncDispose, Symbol.asyncDispose);
  assert.is(wellKnown("dispose", {}), Symbol.for("Symbol.dispose"));
  assert.is(wellKnown("asyncDispose", {}), Symbol.for("Symbol.asyncDispose"));
});

test.run();
