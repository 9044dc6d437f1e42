// Installs the packed core into test/fixtures/consumers and uses it as users do: TypeScript from 5.4 to 7
// under each module resolution, Jest with ts-jest in CommonJS, a Nest app, plain import and require.

import { spawnSync } from "node:child_process";
import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { packIntoFixture } from "../test/support/pack-into-fixture.ts";

const COMPILERS = ["typescript-5.4", "typescript-5.9", "typescript-6", "typescript-7"];
const RESOLUTIONS = [
  { module: "node16", moduleResolution: "node16" },
  { module: "nodenext", moduleResolution: "nodenext" },
  { module: "esnext", moduleResolution: "bundler" },
];
/** One set has Node's types, the other only the browser's. */
const LIBRARIES = [
  { name: "@types/node", types: ["node"], dom: [], files: ["types", "types-node"] },
  { name: "dom", types: [], dom: ["dom", "dom.iterable"], files: ["types"] },
];

const folder = packIntoFixture("consumers");
cpSync("test/fixtures/consumer", join(folder, "plain"), { recursive: true });
let passed = 0;
let failed = 0;

function check(name: string, cwd: string, command: string, ...args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: "utf8" });
  console.log(`${status === 0 ? "passed" : "FAILED"}  ${name}`);
  if (status === 0) passed += 1;
  else failed += 1;
  if (status !== 0) console.log(`${stdout}${stderr}`);
}

const bin = (path: string) => join(folder, "node_modules", path);

for (const compiler of COMPILERS) {
  for (const resolution of RESOLUTIONS) {
    for (const { name, types, dom, files } of LIBRARIES) {
      // the extension makes a file an ES module or CommonJS; "bundler" makes no difference between them
      const ends = resolution.moduleResolution === "bundler" ? ["ts"] : ["mts", "cts"];
      const sources = files.flatMap((file) => ends.map((end) => ({ file, end })));
      for (const { file, end } of sources)
        cpSync(join("test/fixtures/consumers", `${file}.ts`), join(folder, `${file}.${end}`));
      const compilerOptions = {
        target: "es2022",
        strict: true,
        noEmit: true,
        skipLibCheck: false,
        lib: ["es2023", "esnext.disposable", ...dom],
        types,
        ...resolution,
      };
      const config = { compilerOptions, files: sources.map(({ file, end }) => `${file}.${end}`) };
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
      const title = `${compiler} ${resolution.moduleResolution} ${name}`;
      check(title, folder, process.execPath, bin(`${compiler}/bin/tsc`), "-p", ".");
    }
  }
}
check("import", join(folder, "plain"), process.execPath, "esm.js");
const noRequire = "--no-experimental-require-module";
check("require", join(folder, "plain"), process.execPath, noRequire, "required.cjs");
check("both builds", join(folder, "plain"), process.execPath, "-C", "module", "both-builds.js");
check("Jest with ts-jest", join(folder, "jest"), process.execPath, bin("jest/bin/jest.js"));
check(
  "Nest compiles",
  join(folder, "nest"),
  process.execPath,
  bin("typescript/bin/tsc"),
  "-p",
  ".",
);
check("Nest runs", join(folder, "nest"), process.execPath, "out/main.js");

console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
