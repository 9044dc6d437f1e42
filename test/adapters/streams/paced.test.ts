import * as assert from "uvu/assert";
import { paced } from "../../../src/adapters/streams/index.ts";
import { RateLimiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { suite } from "../../support/suite.ts";

const test = suite("streams, iterables");

test("a function in place of options weighs the items", async () => {
  const limiter = RateLimiter.create(10, { clock: new FakeClock() });
  const items: string[] = [];
  for await (const item of paced(["a", "b"], limiter, () => 0.25)) items.push(item);
  assert.equal(items, ["a", "b"]);
  assert.is(limiter.peek().waitMs, 50);
});

test("a break out of the loop ends the source, and gives back what was charged", async () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  let ended = false;
  async function* source() {
    try {
      for (;;) yield new Uint8Array(10);
    } finally {
      ended = true;
    }
  }
  let taken = 0;
  for await (const { length } of paced(source(), limiter)) {
    taken += length;
    if (taken === 20) break;
  }
  assert.ok(ended);
  assert.is(limiter.peek().waitMs, 20);
});

test("nothing happens before the first item is requested", () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  paced([new Uint8Array(10)], limiter);
  assert.ok(limiter.tryAcquire());
});

test("a source that is not iterable is refused", () => {
  const nothing = 5 as unknown as Iterable<Uint8Array>;
  assert.throws(
    () => paced(nothing, RateLimiter.create(1)),
    (error: unknown) => String(error) === "TypeError: iterable must be iterable, got 5",
  );
});

test.run();
