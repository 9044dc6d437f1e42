import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { type Part, type Piece, Shelf } from "../../../src/limiter/remote/shelf.ts";
import { suite } from "../../suite.ts";

const answer = { wait: 0, receipts: [], slowest: 0, quotas: [], owed: [] };

function piece(due: number, size: number): Piece {
  return { due, answer, size, left: size };
}

function shelfOf(...pieces: readonly [due: number, size: number][]): Shelf {
  const shelf = new Shelf();
  for (const [due, size] of pieces) shelf.add(piece(due, size));
  return shelf;
}

const told = (parts: readonly Part[]) => parts.map(({ piece, permits }) => [piece.due, permits]);

const test = suite("shelf");

test("the earliest goes first, however they came", () => {
  const shelf = shelfOf([30, 1], [10, 2], [20, 3], [30, 4]);
  assert.is(shelf.left, 10);
  assert.equal(
    [1, 2, 3, 5, 6, 10].map((permits) => shelf.dueOf(permits)),
    [10, 10, 20, 20, 30, 30],
  );
  assert.equal(
    [9, 10, 20, 29, 30].map((instant) => shelf.readyAt(instant)),
    [0, 2, 5, 5, 10],
  );
  const parts: Part[] = [];
  shelf.draw(4, parts);
  assert.equal(told(parts), [
    [10, 2],
    [20, 2],
  ]);
  assert.equal([shelf.left, shelf.head?.due, shelf.head?.left], [6, 20, 1]);
});

test("what is put back lies where it lay", () => {
  const shelf = shelfOf([10, 2], [20, 3], [30, 1]);
  const parts: Part[] = [];
  shelf.draw(4, parts);
  shelf.putBack(parts);
  assert.equal([shelf.left, shelf.dueOf(2), shelf.dueOf(3), shelf.dueOf(6)], [6, 10, 20, 30]);
});

test("what is too much is taken away from the end", () => {
  const shelf = shelfOf([10, 2], [20, 3], [30, 1]);
  assert.equal(told(shelf.dropBeyond(3)), [
    [30, 1],
    [20, 2],
  ]);
  assert.equal([shelf.left, shelf.dueOf(3)], [3, 20]);
  assert.equal(told(shelf.dropBeyond(0)), [
    [20, 1],
    [10, 2],
  ]);
  assert.equal([shelf.left, shelf.head, shelf.dropBeyond(0)], [0, undefined, []]);
});

test("neither mints nor loses, whatever happens in whichever order", async () => {
  const size = fc.constantFrom(0.1, 0.3, 1, 2, 7);
  const step = fc.oneof(
    fc.record({ kind: fc.constant("add" as const), due: fc.nat(50), size }),
    fc.record({ kind: fc.constant("draw" as const), size, undone: fc.boolean() }),
    fc.record({ kind: fc.constant("drop" as const), size }),
  );
  await fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const shelf = new Shelf();
      let left = 0;
      for (const one of steps) {
        if (one.kind === "add") {
          shelf.add(piece(one.due, one.size));
          left += one.size;
        } else if (one.kind === "drop") {
          const parts = shelf.dropBeyond(one.size);
          left -= parts.reduce((sum, { permits }) => sum + permits, 0);
        } else if (one.size <= shelf.left) {
          const due = shelf.dueOf(one.size);
          const parts: Part[] = [];
          shelf.draw(one.size, parts);
          assert.ok(parts.every((part) => part.piece.due <= due));
          assert.ok((shelf.head?.due ?? Infinity) >= due);
          if (one.undone) shelf.putBack(parts);
          else left -= one.size;
        }
        assert.ok(Math.abs(shelf.left - left) < 1e-9, `${shelf.left}, not ${left}`);
        assert.ok(Math.abs(shelf.readyAt(Infinity) - shelf.left) < 1e-9);
      }
    }),
  );
});

test.run();
