import * as assert from "uvu/assert";
import { fairShares } from "../../src/index.ts";
import { Deadlines } from "../../src/queue/deadlines.ts";
import { FIFO, orderIn } from "../../src/queue/order.ts";
import { suite } from "../support/suite.ts";

const test = suite("the order of waiters");

test("the order is first in, first out unless fairShares() is passed", () => {
  assert.is(orderIn({}), FIFO);
  assert.is(orderIn({ order: undefined }), FIFO);
  const fair = fairShares();
  assert.is(orderIn({ order: fair }), fair);
  for (const order of [null, 5, "fair", {}, { entryOf: true }, fairShares] as never[]) {
    assert.throws(() => orderIn({ order }), /^order must be what fairShares\(\) returns, got/);
  }
});

test("first in, first out has no shares, and refuses options that name one", () => {
  assert.is(FIFO.entryOf(undefined, 1), undefined);
  assert.is(FIFO.entryOf({}, 1), undefined);
  assert.is(FIFO.ranks(), undefined);
  for (const options of [{ share: "a" }, { weight: 2 }, { priority: "high" }]) {
    assert.throws(() => FIFO.entryOf(options, 1), /need a limiter .* fairShares\(\)/);
  }
});

test("the first of several deadlines, whichever come and leave", () => {
  const deadlines = new Deadlines<{ deadline: number }>();
  const [late, soon, never] = [30, 10, Infinity].map((deadline) => ({ deadline }));
  assert.is(deadlines.first, undefined);
  for (const item of [never, late, soon]) deadlines.add(item as { deadline: number });
  assert.is(deadlines.first, soon);
  deadlines.delete(soon as { deadline: number });
  deadlines.delete(soon as { deadline: number });
  assert.is(deadlines.first, late);
  deadlines.delete(late as { deadline: number });
  assert.is(deadlines.first, undefined, "a caller without a deadline is never late");
  deadlines.delete(never as { deadline: number });
  assert.is(deadlines.first, undefined);
});

test.run();
