import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import * as assert from "uvu/assert";
import { atExit } from "../../src/ground/at-exit.ts";
import { smoothBursty } from "../../src/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { turn } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("at exit");
const AT_EXIT = new URL("../../src/ground/at-exit.ts", import.meta.url).href;
const listeners = () => process.listenerCount("beforeExit");

test("one listener serves all tasks, as long as there are any", async () => {
  // a copy of the module: limiters of other tests in this process may have a listener of their own
  const { atExit } = await import(`${AT_EXIT}?alone`);
  const before = listeners();
  const forget = [1, 2, 3].map(() => atExit(() => {}));
  assert.is(listeners(), before + 1);
  for (const each of [...forget.slice(0, 2), ...forget]) each();
  assert.is(listeners(), before);
});

test("each task runs, even if it removes itself", () => {
  const done: number[] = [];
  const forget = [1, 2].map((i) =>
    atExit(() => {
      done.push(i);
      for (const each of forget) each();
    }),
  );
  process.emit("beforeExit", 0);
  assert.equal(done, [1, 2]);
});

test("without a process object nothing happens", () => {
  const { process } = globalThis;
  Reflect.deleteProperty(globalThis, "process");
  try {
    atExit(() => {})();
  } finally {
    globalThis.process = process;
  }
});

test("a limiter with prefetched permits gives them back, and has no listener otherwise", async () => {
  const before = listeners();
  const policy = smoothBursty({ permitsPerSecond: 10 });
  const { store, limiter } = onHand(policy, { prefetch: { permits: 2, maxAgeMs: 1000 } });
  assert.is(listeners(), before);
  await limiter.acquire();
  await turn();
  assert.is(listeners(), Math.max(1, before));
  process.emit("beforeExit", 0);
  await turn();
  assert.is(store.sent(), "back 1 (), back 1 ()");
  assert.ok(listeners() <= before);
});

test("prefetched permits keep no process alive", () => {
  const url = (path: string) => JSON.stringify(pathToFileURL(resolve(path)).href);
  const story = `
    const { systemClock } = await import(${url("src/ground/clock.ts")});
    const { smoothBursty } = await import(${url("src/index.ts")});
    const { onHand } = await import(${url("test/support/limiter/remote.ts")});
    const prefetch = { permits: 5, maxAgeMs: 3_600_000 };
    const policy = smoothBursty({ permitsPerSecond: 10 });
    const { store, limiter } = onHand(policy, { prefetch, clock: systemClock });
    await limiter.acquire();
    process.on("exit", () => console.log(store.sent()));
  `;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ["--import", "tsx", "--input-type=module", "--eval", story],
    { encoding: "utf8", timeout: 15_000, env: { ...process.env, NODE_V8_COVERAGE: "" } },
  );
  assert.match(stdout, /^back 1 .*\n$/, stderr);
});

test.run();
