import { spawnSync } from "node:child_process";
import * as assert from "uvu/assert";
import { atExit } from "../../src/ground/at-exit.ts";
import { smoothBursty } from "../../src/index.ts";
import { bundled } from "../support/bundled.ts";
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

test("prefetched permits keep no process alive", async () => {
  const program = await bundled("test/support/programs/at-exit-prefetcher.ts");
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const options = { encoding: "utf8", timeout: 15_000, env } as const;
  const { stdout, stderr } = spawnSync(process.execPath, [program], options);
  assert.match(stdout, /^back 1 .*\n$/, stderr);
});

test.run();
