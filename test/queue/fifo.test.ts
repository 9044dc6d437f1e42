import * as assert from "uvu/assert";
import { Fifo } from "../../src/queue/fifo.ts";
import { suite } from "../support/suite.ts";

const test = suite("fifo");

test("a Fifo is first in, first out, also after it was empty and for an item that is added again", () => {
  const line = new Fifo<string>();
  assert.is(line.shift(), undefined);
  for (const name of ["a", "b", "c", "d"]) line.append(name);
  assert.is(line.shift(), "a");
  assert.is(line.remove("b"), true);
  assert.is(line.remove("b"), false);
  assert.is(line.remove("a"), false);
  assert.is(line.size, 2);
  line.append("a");
  assert.equal(
    [line.shift(), line.shift(), line.shift(), line.shift()],
    ["c", "d", "a", undefined],
  );
  line.append("e");
  assert.is(line.remove("e"), true);
  line.append("f");
  assert.is(line.shift(), "f");
  assert.is(line.shift(), undefined);
  line.append("g");
  assert.is(line.shift(), "g");
  assert.is(line.size, 0);
});

test("the head stays the head while others leave, and a Fifo shows its members in order", () => {
  const line = new Fifo<string>();
  for (const name of ["a", "b", "c", "d"]) line.append(name);
  assert.equal([line.head, line.head], ["a", "a"]);
  line.remove("b");
  assert.is(line.head, "a");
  assert.equal([...line], ["a", "c", "d"]);
  assert.equal(
    ["a", "b", "c"].map((name) => line.has(name)),
    [true, false, true],
  );
  line.shift();
  assert.equal([line.head, line.size], ["c", 2]);
});

test.run();
