/** The examples for frameworks and edge platforms: run, and bundled as the platforms do. */
import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import * as assert from "uvu/assert";
import { bundled } from "../../../test/support/bundled.ts";
import { suite } from "../../../test/support/suite.ts";

const run = promisify(execFile);

const test = suite("frameworks");

const EXAMPLES: Readonly<Record<string, readonly RegExp[]>> = {
  nestjs: [
    /^(?:list 200 cats\n){3}list 429/,
    /search 200 found 429 .* 200 found/,
    /health 200 fine/,
  ],
  trpc: [/^hello 200 .*r=9;/m, /^hello,report 200 .*r=3;/m, /^report 429 .*r=3;/m],
  worker: [/^(?:200 .*\n){2}429 /],
  deno: [/^(?:200 .*\n){2}429 /],
  bun: [/^(?:200 .*\n){2}429 /],
  "next-middleware": [/^200 true\n200 true\n429 false\n$/],
};

test("nestjs runs", async () => {
  const { stdout } = await run("node", [await bundled("gateway/examples/nestjs.ts")]);
  for (const words of EXAMPLES.nestjs ?? []) assert.match(stdout, words);
});

for (const name of ["worker", "deno", "bun", "next-middleware", "trpc"]) {
  test(`${name} is bundled without a module of Node, and runs`, async () => {
    const { outputFiles, metafile } = await build({
      entryPoints: [`gateway/examples/${name}.ts`],
      bundle: true,
      format: "esm",
      platform: "browser",
      conditions: ["worker", "browser"],
      metafile: true,
      write: false,
      logLevel: "silent",
    });
    const imports = Object.values(metafile.outputs).flatMap((output) => output.imports);
    assert.equal(imports, []);
    const file = join(await mkdtemp(join(tmpdir(), "bundle-")), "bundle.mjs");
    await writeFile(file, outputFiles[0]?.contents ?? "");
    const { stdout } = await run("node", [file]);
    for (const words of EXAMPLES[name] ?? []) assert.match(stdout, words);
  });
}

test.run();
