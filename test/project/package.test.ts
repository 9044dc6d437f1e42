import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import * as assert from "uvu/assert";
import { VERSION } from "../../src/ground/copies.ts";
import { suite } from "../support/suite.ts";

// The package as its users get it: built and packed from a copy of the project, so that the
// working dist/ stays as it is, and installed offline into an otherwise empty folder.
const scratch = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), "smooth-limiter-package-")));
const project = join(scratch, "project");
const consumer = join(scratch, "consumer");
let packed: string[];

const { dependencies: byName = {} } = JSON.parse(fs.readFileSync("package.json", "utf8"));
const dependencies = Object.keys(byName);

function run(cwd: string, command: string, ...args: string[]): string {
  // Without this, c8 would measure these processes too.
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${status}\n${stdout}${stderr}`);
  return stdout;
}

const test = suite("package", { timeoutMs: 60_000 });

test.before(() => {
  const leftOut = ["node_modules", "dist", "coverage", ".git"];
  fs.cpSync(".", project, { recursive: true, filter: (path) => !leftOut.includes(basename(path)) });
  fs.symlinkSync(resolve("node_modules"), join(project, "node_modules"), "junction");
  run(project, "npm", "run", "build");
  const [tarball] = JSON.parse(run(project, "npm", "pack", "--json"));
  packed = tarball.files.map((file: { path: string }) => file.path);

  fs.cpSync("test/fixtures/consumer", consumer, { recursive: true });
  const modules = join(consumer, "node_modules");
  const installed = join(modules, "smooth-limiter");
  fs.mkdirSync(installed, { recursive: true });
  const into = ["-C", installed, "--strip-components=1"];
  run(project, "tar", "-xzf", tarball.filename, ...into);
  // as npm would, but without a network
  for (const name of dependencies)
    fs.symlinkSync(resolve("node_modules", name), join(modules, name), "junction");
});

test.after(() => fs.rmSync(scratch, { recursive: true, force: true }));

test("holds every file that it exports, and nothing of the workshop", () => {
  const { exports } = JSON.parse(fs.readFileSync("package.json", "utf8"));
  const targets = JSON.stringify(exports).match(/(?<="\.\/)dist\/[^"]+/g) ?? [];
  assert.ok(targets.length > 0);
  for (const target of targets) assert.ok(packed.includes(target), `${target} is missing`);

  const strangers = packed.filter(
    (path) => !/^(dist|src)\/|^[A-Z]+(\.md)?$|^package\.json$/.test(path),
  );
  assert.equal(strangers, []);
});

test("brings no client along: only what the gateway and the command line need", () => {
  const clients = ["ioredis", "iovalkey", "redis", "p-queue", "bullmq"];
  assert.equal(
    dependencies.filter((name) => clients.includes(name)),
    [],
  );
});

test("works from an ES module", () => {
  run(consumer, process.execPath, "esm.js");
});

test("works through require", () => {
  run(consumer, process.execPath, "--no-experimental-require-module", "required.cjs");
});

test("its ES modules and its CommonJS build work together in one process", () => {
  run(consumer, process.execPath, "both-builds.js");
});

test("the version that copies of the package recognise each other by is its own", () => {
  const { version } = JSON.parse(fs.readFileSync("package.json", "utf8"));
  assert.equal(VERSION, version);
});

test("has a command that runs where it is installed", () => {
  const { bin } = JSON.parse(fs.readFileSync("package.json", "utf8"));
  const command = join(consumer, "node_modules", "smooth-limiter", bin["smooth-limiter"]);
  assert.match(fs.readFileSync(command, "utf8"), /^#!\/usr\/bin\/env node\n/);
  assert.match(run(consumer, process.execPath, command, "--version"), /^\d+\.\d+\.\d+\n$/);
  fs.writeFileSync(join(consumer, "rules.yaml"), "[]");
  fs.writeFileSync(join(consumer, "log.jsonl"), '{"time":0,"url":"/"}');
  const replay = ["replay", "rules.yaml", "log.jsonl", "--html", "report.html"];
  assert.match(run(consumer, process.execPath, command, ...replay), /1 request: /);
  assert.ok(fs.existsSync(join(consumer, "report.html")));
});

// With Node's types, and without them but with those of the browser; library files checked too.
for (const options of [
  ["--module", "nodenext", "--types", "node", "--typeRoots", resolve("node_modules/@types")],
  ["--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,esnext.disposable,dom"],
]) {
  test(`has sound types: tsc ${options.slice(0, 4).join(" ")}`, () => {
    const tsc = resolve("node_modules/typescript/bin/tsc");
    run(consumer, process.execPath, tsc, "--noEmit", "--strict", ...options, "types.ts");
  });
}

test("loads no dependency, not even one that is there", () => {
  const loaded = join(scratch, "loaded");
  execFileSync(process.execPath, [join(project, "dist", "index.js")], {
    env: { ...process.env, NODE_V8_COVERAGE: loaded }, // which lists every script of the process
  });
  const scripts = fs
    .readdirSync(loaded)
    .flatMap((file) => JSON.parse(fs.readFileSync(join(loaded, file), "utf8")).result)
    .map((script: { url: string }) => script.url)
    .filter((url) => url.startsWith("file:"))
    .map((url) => fileURLToPath(url));
  assert.ok(scripts.includes(join(project, "dist", "index.js")));
  const strangers = scripts.filter((path) => !path.startsWith(join(project, "dist")));
  assert.equal(strangers, []);
});

test.run();
