import * as assert from "uvu/assert";
import { fixedWindow, tokenBucket } from "../../../src/index.ts";
import { listPolicies } from "../../../src/stores/policies.ts";
import { openPolicyState } from "../../../src/stores/state/several.ts";
import { suite } from "../../support/suite.ts";

const SECOND = 1_000_000;

const test = suite("the state of a key in this process");

test("the deficit is returned for each policy, in their order", () => {
  const bucket = tokenBucket({ capacity: 10, refill: 1, everyMs: 1000 });
  const alone = openPolicyState(listPolicies(bucket), 0, 0);
  alone.take(0, 12);
  assert.equal(
    [0, SECOND, 100 * SECOND].map((now) => alone.deficit(now)),
    [[12], [11], [0]],
  );

  const window = fixedWindow({ limit: 3, windowMs: 1000 });
  const both = openPolicyState(listPolicies({ window, bucket }), 0, 0);
  both.take(0, [2, undefined]);
  both.take(0, [1, 4]);
  assert.equal(both.deficit(0), [3, 4]);
  assert.equal(both.deficit(SECOND), [0, 3]);
});

test.run();
