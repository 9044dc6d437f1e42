import fc from "fast-check";
import * as assert from "uvu/assert";
import { Heap } from "../../src/ground/heap.ts";
import { suite } from "../support/suite.ts";

const test = suite("heap");

interface Item {
  key: number;
  index: number;
}

test("the first item is always the least, whatever joins, leaves and changes", () => {
  const step = fc.tuple(fc.constantFrom("push", "remove", "update"), fc.nat(20), fc.nat(50));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const heap = new Heap<Item>((a, b) => a.key < b.key);
      for (const [what, which, key] of steps) {
        const item = heap.items[which % Math.max(1, heap.items.length)];
        if (what === "push" || item === undefined) heap.push({ key, index: -1 });
        else if (what === "remove") {
          heap.remove(item);
          assert.is(item.index, -1);
        } else {
          item.key = key;
          heap.update(item);
        }
        assert.is(heap.first?.key, heap.items.map((one) => one.key).sort((a, b) => a - b)[0]);
        heap.items.forEach((one, i) => {
          assert.is(one.index, i);
        });
      }
    }),
  );
});

test.run();
