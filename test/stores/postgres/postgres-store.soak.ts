/** `postgresStore` on PGlite, PostgreSQL in WebAssembly: its start alone computes for seconds. */
import { PGlite } from "@electric-sql/pglite";
import * as assert from "uvu/assert";
import { tokenBucket } from "../../../src/index.ts";
import { postgresStore } from "../../../src/postgres.ts";
import { StoreLimiter } from "../../../src/store.ts";
import { suite } from "../../support/suite.ts";

const store = suite("PGlite", { timeoutMs: 300_000 });

store("limits, with one key and many", async () => {
  const db = new PGlite();
  const policy = tokenBucket({ capacity: 10, refill: 1, everyMs: 86_400_000 });
  const limiter = StoreLimiter.create(postgresStore(db), "a", policy, { timeoutMs: 60_000 });
  const answers = await Promise.all(Array.from({ length: 12 }, () => limiter.tryAcquire()));
  assert.is(answers.filter(Boolean).length, 10);
  for (let key = 0; key < 120; key++) assert.ok(await limiter.for(`${key}`).tryAcquire());
  await limiter.close();
  await db.close();
});

store.run();
