/**
 * How to write a store: three processes share a limit of 20 a second through files in a folder, without
 * a server. `fileBackend` is the whole store: `get` and `compareAndSet` on bytes by key.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type CasBackend, casStore, StoreRateLimiter } from "smooth-limiter/store";

/** A file for each key: 8 bytes that say when the state expires, then the state. */
function fileBackend(folder: string): CasBackend {
  const pathOf = (key: string) => join(folder, encodeURIComponent(key));

  async function get(key: string): Promise<Buffer | undefined> {
    const bytes = await orAbsent(readFile(pathOf(key)), "ENOENT");
    if (bytes === undefined || bytes.readDoubleLE(0) <= Date.now()) return undefined;
    return bytes.subarray(8);
  }

  return {
    get,
    async compareAndSet(key, before, after, lifeMs) {
      const path = pathOf(key);
      // only one process can create the lock file; the others have lost the race and try again
      const lock = await orAbsent(open(`${path}.lock`, "wx"), "EEXIST");
      if (lock === undefined) return false;
      try {
        const now = await get(key);
        if (before === undefined ? now !== undefined : !now?.equals(before)) return false;
        const expiry = Buffer.alloc(8);
        expiry.writeDoubleLE(Date.now() + lifeMs);
        // a rename is atomic: a reader sees the old file or the new one, never a part
        await writeFile(`${path}.new`, Buffer.concat([expiry, after]));
        await rename(`${path}.new`, path);
        return true;
      } finally {
        await lock.close();
        await rm(`${path}.lock`);
      }
    },
  };
}

/** Resolves to undefined when the operation fails with that code. */
async function orAbsent<T>(promise: Promise<T>, code: string): Promise<T | undefined> {
  try {
    return await promise;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === code) return undefined;
    throw error;
  }
}

const RATE = 20;
const RUN_MS = 2000;

const [, , folder] = process.argv;
if (folder === undefined) await lead();
else await work(folder);

/** Runs one of the processes. It shares only the folder with the others. */
async function work(folder: string): Promise<void> {
  const store = casStore(fileBackend(folder));
  const limiter = StoreRateLimiter.create(store, "mails", RATE, { burstSeconds: 0 });
  process.on("disconnect", () => process.exit());
  for (;;) {
    await limiter.acquire();
    process.send?.(Date.now());
  }
}

async function lead(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "smooth-limiter-store-"));
  const file = fileURLToPath(import.meta.url);
  const workers = Array.from({ length: 3 }, () => fork(file, [folder]));
  await Promise.all(workers.map((worker) => once(worker, "message")));
  const counts = workers.map(() => 0);
  const start = Date.now();
  workers.forEach((worker, i) => {
    // while the last process starts, the first one has calls granted already
    worker.on("message", (grantedMs) => {
      if (Number(grantedMs) >= start) counts[i] = (counts[i] ?? 0) + 1;
    });
  });
  await sleep(RUN_MS);
  for (const worker of workers) worker.kill("SIGKILL");
  await Promise.all(workers.map((worker) => once(worker, "exit")));
  const seconds = (Date.now() - start) / 1000;
  await rm(folder, { recursive: true });

  const together = counts.reduce((sum, count) => sum + count, 0);
  console.log(`3 processes, one folder, ${RATE} permits a second:`);
  console.log(`${counts.join(" + ")} = ${together} permits in ${seconds.toFixed(1)} s`);
  // a second's more, because timers are late on a busy machine
  assert.ok(together > 0 && together <= RATE * (seconds + 1));
}
