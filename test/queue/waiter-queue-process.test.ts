import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

// in one file each: compiled once, and loaded quickly by each of the processes
const folder = mkdtempSync(join(tmpdir(), "smooth-limiter-process-"));
await build({
  entryPoints: { limiter: "src/index.ts", testing: "src/testing/index.ts" },
  outdir: folder,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
});
const SOURCES = pathToFileURL(folder).href;

/**
 * Runs a program in a process of its own. Returns what it printed, line by line, and how it ended.
 */
function run(program: string): Promise<{ lines: string[]; status: number | null }> {
  const source = `
    import { RateLimiter, Limiter, smoothBursty } from "${SOURCES}/limiter.mjs";
    import { FakeClock } from "${SOURCES}/testing.mjs";
    process.on("exit", () => console.log("exit"));
    ${program}`;
  const args = ["--expose-gc", "--input-type=module", "--eval", source];
  const child = spawn(process.execPath, args, {
    env: { ...process.env, NODE_V8_COVERAGE: "" },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 50_000,
    killSignal: "SIGKILL",
  });
  let printed = "";
  child.stdout.on("data", (data) => {
    printed += data;
  });
  child.stderr.on("data", (data) => {
    printed += data;
  });
  return new Promise((resolve) => {
    child.on("close", (status) => resolve({ lines: printed.trim().split("\n"), status }));
  });
}

const alive = suite("waiter queue, the process");

alive(
  "the process stays alive while a caller waits, and an idle limiter does not keep it alive",
  async () => {
    const { lines, status } = await run(`
    const limiter = RateLimiter.create(10, { burstSeconds: 0 });
    await limiter.acquire();
    limiter.acquire().then(() => console.log("acquired"));
    limiter.tryAcquire(1, 1000).then((ok) => console.log("tried", ok));
    limiter.reserve().ready().then(() => console.log("ready"));
  `);
    assert.equal(lines, ["acquired", "tried true", "ready", "exit"]);
    assert.is(status, 0);
  },
);

alive(
  "the process ends if no caller waits: debts, pauses and cancelled waiters do not keep it alive",
  async () => {
    const { lines, status } = await run(`
    const limiter = RateLimiter.create(1);
    limiter.charge(1_000_000);
    limiter.pause(1_000_000);
    limiter.reserve();
    const cancelled = limiter.reserve();
    cancelled.ready().catch(({ code }) => console.log(code));
    cancelled.cancel();
    const controller = new AbortController();
    limiter.acquire(1, { signal: controller.signal }).catch((reason) => console.log(reason));
    limiter.tryAcquire(1, { signal: AbortSignal.any([controller.signal]) }).catch((reason) => console.log(reason));
    controller.abort("aborted");
  `);
    assert.equal(lines, ["RESERVATION_CANCELLED", "aborted", "aborted", "exit"]);
    assert.is(status, 0);
  },
);

alive.run();

/** The number of objects given to `keep` that survive a collection, as a program's text. */
const WATCHED = `
  const watched = [];
  const keep = (object) => void watched.push(new WeakRef(object));
  const held = async () => {
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setImmediate(resolve));
      gc();
    }
    return watched.filter((ref) => ref.deref() !== undefined).length;
  };
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1000, { burstSeconds: 0, clock });
  limiter.charge(1000);
`;

const memory = suite("waiter queue, memory");

memory.after(() => rmSync(folder, { recursive: true }));

memory("cancelled waiters behind a long wait are dropped", async () => {
  const { lines } = await run(`${WATCHED}
    for (let i = 0; i < 5000; i++) limiter.acquire();
    await clock.advance(10_000);
    limiter.charge(1000);
    const head = limiter.acquire();
    for (let round = 0; round < 20; round++) {
      const controllers = Array.from({ length: 500 }, () => new AbortController());
      for (const { signal } of controllers) {
        const promise = limiter.acquire(1, { signal });
        promise.catch(() => {});
        keep(promise);
      }
      for (const controller of controllers) controller.abort();
      for (let i = 0; i < 50; i++) {
        const reservation = limiter.reserve();
        keep(reservation);
        reservation.cancel();
      }
    }
    console.log((await held()) <= 5);
    console.log(typeof head, limiter.peek().waitMs);
  `);
  assert.equal(lines, ["true", "object 1001", "exit"]);
});

memory("a reservation that is over and still referenced does not retain later ones", async () => {
  const ends = ["", "first.cancel();", "third.cancel(); second.cancel(); first.cancel();"];
  for (const over of ends) {
    const { lines } = await run(`${WATCHED}
      const before = limiter.acquire();
      const first = limiter.reserve();
      const [second, third] = [limiter.reserve(), limiter.reserve()];
      limiter.acquire();
      await clock.advance(0);
      ${over}
      for (let i = 0; i < 1000; i++) {
        const reservation = limiter.reserve();
        reservation.ready();
        keep(reservation);
        limiter.acquire();
        await clock.advance(i === 0 ? 1000 : 1);
      }
      await clock.advance(500);
      console.log((await held()) <= 510, typeof before, first.waitMs);
    `);
    assert.equal(lines, ["true object 1001", "exit"], over || "released");
  }
});

memory.run();
