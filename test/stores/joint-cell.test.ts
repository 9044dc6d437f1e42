import * as assert from "uvu/assert";
import { fixedWindow, tokenBucket } from "../../src/index.ts";
import { openCell } from "../../src/stores/joint-cell.ts";
import { listPolicies } from "../../src/stores/policies.ts";
import { suite } from "../support/suite.ts";

const SECOND = 1_000_000;

const test = suite("the state of a key in this process");

test("what is owed is told for each policy, in their order", () => {
  const bucket = tokenBucket({ capacity: 10, refill: 1, everyMs: 1000 });
  const alone = openCell(listPolicies(bucket), 0, 0);
  alone.take(0, 12);
  assert.equal(
    [0, SECOND, 100 * SECOND].map((now) => alone.owed(now)),
    [[12], [11], [0]],
  );

  const window = fixedWindow({ limit: 3, windowMs: 1000 });
  const both = openCell(listPolicies({ window, bucket }), 0, 0);
  both.take(0, [2, undefined]);
  both.take(0, [1, 4]);
  assert.equal(both.owed(0), [3, 4]);
  assert.equal(both.owed(SECOND), [0, 3]);
});

test.run();
