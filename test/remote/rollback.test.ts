/** A state that is replaced by an older copy of itself, on stores other than Redis. */
import * as assert from "uvu/assert";
import { casStore, StoreRateLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { suite } from "../support/suite.ts";

const test = suite("a state that was rolled back");

test("casStore: an older copy is detected once", async () => {
  const backend = new MapBackend();
  const limiter = StoreRateLimiter.create(casStore(backend), "api", 1e6);
  await limiter.acquire();
  const copies = [...backend.values];
  await limiter.acquire();
  assert.is(limiter.stats.rollbacks, 0);
  for (const [key, bytes] of copies) backend.values.set(key, bytes);
  await limiter.acquire();
  await limiter.acquire();
  assert.is(limiter.stats.rollbacks, 1);
});

test("memoryStore: refusals, other processes and a state that was cleared do not look like a rollback", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const create = () => StoreRateLimiter.create(store, "api", 1, { clock });
  const [here, there] = [create(), create()];
  for (let i = 0; i < 5; i++) {
    await Promise.all([here.tryAcquire(), here.tryAcquire(), there.tryAcquire(), here.peek()]);
    await there.refund(1);
    await here.decide();
    if (i === 2) store.forget();
    await clock.advance(900);
  }
  assert.equal([here.stats.rollbacks, there.stats.rollbacks], [0, 0]);
});

test.run();
