import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
import * as assert from "uvu/assert";
import { freshUrl } from "../../scripts/redis/server.ts";
import { suite } from "../support/suite.ts";

// Every ts block of these pages is a program: it compiles, it runs, and it prints what the comments behind its
// console.log lines say. "about 200" is for real time, which may be late and is never early.
// They live inside the project, where its packages are found.
const PAGES = [
  "README.md",
  "docs/api.md",
  "docs/availability.md",
  "docs/choose.md",
  "docs/diagnostics.md",
  "docs/fetch.md",
  "docs/guarantees.md",
  "docs/guava.md",
  "docs/job-queues.md",
  "docs/llm.md",
  "docs/stores.md",
  "docs/streams.md",
  "docs/testing.md",
  "bench/RESULTS.md",
  "gateway/README.md",
  "gateway/docs/cli.md",
  "gateway/docs/gateway.md",
  "gateway/docs/http.md",
  "gateway/docs/nginx.md",
  "gateway/docs/security.md",
];
const pages = PAGES.map((page) => ({ page, text: readFileSync(page, "utf8") }));
mkdirSync(".cache", { recursive: true });
const scratch = mkdtempSync(resolve(".cache/readme-"));
const blocks = pages
  .flatMap(({ text }) => [...text.matchAll(/^```ts\n(.*?)^```$/gms)])
  .map(([, code = ""], i) => ({ code, file: join(scratch, `block-${i + 1}.mts`) }));

for (const { code, file } of blocks) writeFileSync(file, code);

const readme = suite("README");

readme.before(async () => {
  process.env.REDIS_URL = await freshUrl();
});
readme.after(() => rmSync(scratch, { recursive: true, force: true }));

readme("has blocks of code that compile together", () => {
  assert.ok(blocks.length > 0);
  const project = {
    extends: resolve("tsconfig.json"),
    compilerOptions: { typeRoots: [resolve("node_modules/@types")] },
    include: ["*.mts"],
  };
  writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(project));
  const tsc = resolve("node_modules/typescript/bin/tsc");
  const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", scratch], {
    encoding: "utf8",
    env: { ...process.env, NODE_V8_COVERAGE: "" },
  });
  assert.is(status, 0, stdout);
});

for (const [i, { code, file }] of blocks.entries()) {
  const title = code.split("\n").find((line) => !/^(import .*)?$/.test(line));
  readme(`block ${i + 1} runs and prints what it says: ${title}`, async () => {
    const promised = [...code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, says]) => says);
    const url = pathToFileURL(file).href;
    // on a busy machine a wait may be late, and the next one shorter by that
    for (let attempt = 1; ; attempt++) {
      const printed = await prints(() => import(`${url}?${attempt}`));
      const wrong = promised.findIndex((says = "", line) => !keeps(printed[line], says));
      if (wrong < 0 && (promised.length === 0 || printed.length === promised.length)) return;
      assert.ok(attempt < 5, `it printed ${printed.join(" | ")}, not ${promised.join(" | ")}`);
    }
  });
}

function keeps(printed: string | undefined, says: string): boolean {
  const about = /^about (\d+)$/.exec(says)?.[1];
  return about === undefined ? printed === says : Number(printed) > 0.6 * Number(about);
}

async function prints(run: () => Promise<unknown>): Promise<string[]> {
  const lines: string[] = [];
  const { log } = console;
  console.log = (...values) => void lines.push(format(...values));
  try {
    await run();
  } finally {
    console.log = log;
  }
  return lines;
}

readme("names files that exist", () => {
  const missing = pages.flatMap(({ page, text }) =>
    [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)]
      .map(([, file = ""]) => join(dirname(page), file))
      .filter((file) => !existsSync(file)),
  );
  assert.equal(missing, []);
});

readme.run();
