import * as assert from "uvu/assert";
import { IMPORTS, sizeOf } from "../../scripts/sizes.ts";
import { suite } from "../support/suite.ts";

/** The most that an import may cost in a bundle, kB. */
const MOST: Readonly<Record<keyof typeof IMPORTS, number>> = {
  RateLimiter: 12.6,
  "Limiter and all algorithms": 17.2,
  RedisRateLimiter: 45.9,
};

const test = suite("sizes of bundles");

for (const [name, [entry, names]] of Object.entries(IMPORTS)) {
  test(`an import of ${name} stays within its bound`, async () => {
    const size = await sizeOf(entry, names);
    const most = MOST[name as keyof typeof IMPORTS];
    assert.ok(size <= most, `${size} kB, at most ${most} kB`);
  });
}

test.run();
