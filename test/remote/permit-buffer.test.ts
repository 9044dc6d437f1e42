import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { type Chunk, type DrawnPermits, PermitBuffer } from "../../src/remote/permit-buffer.ts";
import { suite } from "../support/suite.ts";

function chunk(due: number, size: number): Chunk {
  return { due, receipts: [], size, left: size };
}

function bufferOf(...chunks: readonly [due: number, size: number][]): PermitBuffer {
  const buffer = new PermitBuffer();
  for (const [due, size] of chunks) buffer.add(chunk(due, size));
  return buffer;
}

const summaryOf = (parts: readonly DrawnPermits[]) =>
  parts.map(({ chunk, permits }) => [chunk.due, permits]);

const test = suite("permit buffer");

test("the earliest permits leave first, in whichever order they arrived", () => {
  const buffer = bufferOf([30, 1], [10, 2], [20, 3], [30, 4]);
  assert.is(buffer.left, 10);
  assert.equal(
    [1, 2, 3, 5, 6, 10].map((permits) => buffer.dueOf(permits)),
    [10, 10, 20, 20, 30, 30],
  );
  assert.equal(
    [9, 10, 20, 29, 30].map((instant) => buffer.readyAt(instant)),
    [0, 2, 5, 5, 10],
  );
  const parts: DrawnPermits[] = [];
  buffer.draw(4, parts);
  assert.equal(summaryOf(parts), [
    [10, 2],
    [20, 2],
  ]);
  assert.equal([buffer.left, buffer.head?.due, buffer.head?.left], [6, 20, 1]);
});

test("permits that are put back return to their place", () => {
  const buffer = bufferOf([10, 2], [20, 3], [30, 1]);
  const parts: DrawnPermits[] = [];
  buffer.draw(4, parts);
  buffer.putBack(parts);
  assert.equal([buffer.left, buffer.dueOf(2), buffer.dueOf(3), buffer.dueOf(6)], [6, 10, 20, 30]);
});

test("surplus permits are removed from the end", () => {
  const buffer = bufferOf([10, 2], [20, 3], [30, 1]);
  assert.equal(summaryOf(buffer.dropBeyond(3)), [
    [30, 1],
    [20, 2],
  ]);
  assert.equal([buffer.left, buffer.dueOf(3)], [3, 20]);
  assert.equal(summaryOf(buffer.dropBeyond(0)), [
    [20, 1],
    [10, 2],
  ]);
  assert.equal([buffer.left, buffer.head, buffer.dropBeyond(0)], [0, undefined, []]);
});

test("random operations neither create nor lose permits", async () => {
  const size = fc.constantFrom(0.1, 0.3, 1, 2, 7);
  const step = fc.oneof(
    fc.record({ kind: fc.constant("add" as const), due: fc.nat(50), size }),
    fc.record({ kind: fc.constant("draw" as const), size, undone: fc.boolean() }),
    fc.record({ kind: fc.constant("drop" as const), size }),
  );
  await fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const buffer = new PermitBuffer();
      let left = 0;
      for (const one of steps) {
        if (one.kind === "add") {
          buffer.add(chunk(one.due, one.size));
          left += one.size;
        } else if (one.kind === "drop") {
          const parts = buffer.dropBeyond(one.size);
          left -= parts.reduce((sum, { permits }) => sum + permits, 0);
        } else if (one.size <= buffer.left) {
          const due = buffer.dueOf(one.size);
          const parts: DrawnPermits[] = [];
          buffer.draw(one.size, parts);
          assert.ok(parts.every((part) => part.chunk.due <= due));
          assert.ok((buffer.head?.due ?? Infinity) >= due);
          if (one.undone) buffer.putBack(parts);
          else left -= one.size;
        }
        assert.ok(Math.abs(buffer.left - left) < 1e-9, `${buffer.left}, not ${left}`);
        assert.ok(Math.abs(buffer.readyAt(Infinity) - buffer.left) < 1e-9);
      }
    }),
  );
});

test.run();
