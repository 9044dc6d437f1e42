import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import * as assert from "uvu/assert";
import { suite } from "../../support/suite.ts";

// p-queue 10 declares Node 22, and loads on later versions of Node 20 too: where it loads, the
// tests run.
const loads = await import("p-queue-10").then(
  () => true,
  () => false,
);

const test = suite("p-queue 10");

function run(...args: string[]): void {
  // as one of several processes it would leave the files to the others
  const { TEST_SHARD: _, TEST_CLAIMS: __, ...env } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    encoding: "utf8",
    env: { ...env, P_QUEUE: "10", NODE_V8_COVERAGE: "" },
  });
  assert.is(status, 0, `${stdout}${stderr}`);
}

test("PacedQueue passes the same tests with p-queue 10 as with p-queue 9", () => {
  const hook = "./test/support/p-queue/use-p-queue-10.ts";
  const files = ["paced-queue", "as-p-queue", "accounts", "rate-limited", "on-full"].map(
    (file) => `p-queue/${file}`,
  );
  if (loads) run("--import", "tsx", "--import", hook, "scripts/test.ts", ...files);
});

const USE = `
import PQueue from "p-queue";
import { RateLimiter } from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";

const queue = new PacedQueue({ limiter: RateLimiter.create(5), concurrency: 2, timeout: 100 });
const plain: Omit<PQueue, "add" | "addAll" | "sizeBy"> = queue;
const text: string = await queue.add(async ({ signal }) => String(signal?.aborted));
const number: number = await queue.add(() => 5, { permits: { tokens: 5 }, priority: 1, id: "a" });
await queue.addAll([() => 1, async () => 2], { permits: 2 });
queue.start().sizeBy({ priority: 1 });
// @ts-expect-error the limiter sets the pace
new PacedQueue({ limiter: RateLimiter.create(5), interval: 5 });
// @ts-expect-error permits are numbers
await queue.add(() => 5, { permits: "1" });
console.log(plain, text, number);
`;

test("the types match", () => {
  mkdirSync(".cache", { recursive: true });
  const scratch = mkdtempSync(resolve(".cache/p-queue-"));
  try {
    writeFileSync(join(scratch, "use.mts"), USE);
    const project = {
      extends: resolve("tsconfig.json"),
      compilerOptions: {
        typeRoots: [resolve("node_modules/@types")],
        paths: {
          "smooth-limiter": [resolve("src/index.ts")],
          "smooth-limiter/p-queue": [resolve("src/adapters/p-queue/index.ts")],
          "p-queue": [resolve("node_modules/p-queue-10/dist/index.d.ts")],
        },
      },
      include: ["*.mts"],
    };
    writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(project));
    run(resolve("node_modules/typescript/bin/tsc"), "-p", scratch, "--singleThreaded");
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});

test.run();
