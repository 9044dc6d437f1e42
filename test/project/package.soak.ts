import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Metafile } from "esbuild";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

// The packages as users install them: built and packed from a copy of the project, so that the
// working dist/ stays as it is, and installed offline into otherwise empty folders.
const scratch = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), "smooth-limiter-package-")));
const project = join(scratch, "project");
const consumer = join(scratch, "consumer");
const host = join(scratch, "host");

/** The files of each package after packing. */
const packed = {
  "smooth-limiter": [] as string[],
  "smooth-limiter-gateway": [] as string[],
  "smooth-limiter-cli": [] as string[],
};
/** How large the core is once it is installed, bytes. */
let installedBytes = 0;
const folders = {
  "smooth-limiter": ".",
  "smooth-limiter-gateway": "gateway",
  "smooth-limiter-cli": "cli",
} as const;
type Name = keyof typeof packed;
const names = Object.keys(packed) as Name[];

function run(cwd: string, command: string, ...args: string[]): string {
  // Without this, c8 would measure these processes too.
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${status}\n${stdout}${stderr}`);
  return stdout;
}

function manifest(name: Name) {
  return JSON.parse(fs.readFileSync(join(folders[name], "package.json"), "utf8"));
}

function link(target: string, path: string): void {
  fs.mkdirSync(dirname(path), { recursive: true });
  fs.symlinkSync(target, path, "junction");
}

/** @returns the tarball */
function pack(name: Name): string {
  const folder = join(project, folders[name]);
  const [{ filename, files, unpackedSize }] = JSON.parse(run(folder, "npm", "pack", "--json"));
  packed[name] = files.map((file: { path: string }) => file.path);
  if (name === "smooth-limiter") installedBytes = unpackedSize;
  return join(folder, filename);
}

function installCore(folder: string, tarball: string): void {
  run(folder, "npm", "install", "--offline", "--no-audit", "--no-fund", tarball);
}

/** Installs like npm, but without a network. */
function install(folder: string, name: Name, tarball: string): void {
  const modules = join(folder, "node_modules");
  const installed = join(modules, name);
  const { bin = {}, dependencies } = manifest(name);
  fs.mkdirSync(installed);
  run(project, "tar", "-xzf", tarball, "-C", installed, "--strip-components=1");
  for (const other of Object.keys(dependencies)) {
    const path = join(modules, other);
    if (!names.includes(other as Name) && !fs.existsSync(path)) {
      link(resolve("node_modules", other), path);
    }
  }
  for (const [command, file] of Object.entries<string>(bin)) {
    fs.chmodSync(join(installed, file), 0o755);
    link(join(installed, file), join(modules, ".bin", command));
  }
}

const test = suite("packages", { timeoutMs: 120_000 });

test.before(() => {
  const leftOut = ["node_modules", "dist", "coverage", ".git", ".cache"];
  fs.cpSync(".", project, { recursive: true, filter: (path) => !leftOut.includes(basename(path)) });
  for (const name of fs.readdirSync("node_modules")) {
    const isOurs = names.includes(name as Name);
    const target = isOurs ? join(project, folders[name as Name]) : resolve("node_modules", name);
    link(target, join(project, "node_modules", name));
  }
  run(project, "npm", "run", "build");
  const [core, gateway] = [pack("smooth-limiter"), pack("smooth-limiter-gateway")];
  const cli = pack("smooth-limiter-cli");

  fs.cpSync("test/fixtures/consumer", consumer, { recursive: true });
  installCore(consumer, core);
  fs.mkdirSync(host);
  fs.writeFileSync(join(host, "package.json"), '{ "private": true }');
  installCore(host, core);
  install(host, "smooth-limiter-gateway", gateway);
  install(host, "smooth-limiter-cli", cli);
});

test.after(() => fs.rmSync(scratch, { recursive: true, force: true }));

for (const name of names) {
  test(`${name} contains every file that it exports, and no development file`, () => {
    const { exports, bin = {} } = manifest(name);
    const targets = JSON.stringify([exports, bin]).match(/(?<="(?:\.\/)?)dist\/[^"]+/g) ?? [];
    assert.ok(targets.length > 0);
    for (const target of targets) {
      assert.ok(packed[name].includes(target), `${target} is missing`);
    }
    const strangers = packed[name].filter(
      (path) => !/^dist\/|^(README\.md|LICENSE|package\.json|rules\.schema\.json)$/.test(path),
    );
    assert.equal(strangers, []);
  });
}

test("smooth-limiter has no dependencies: an install is one package", () => {
  assert.is(manifest("smooth-limiter").dependencies, undefined);
  const installed = fs.readdirSync(join(consumer, "node_modules"));
  assert.equal(
    installed.filter((name) => !name.startsWith(".")),
    ["smooth-limiter"],
  );
});

test("smooth-limiter takes at most 1.018 MB on disk, source maps included", () => {
  assert.ok(installedBytes > 0 && installedBytes <= 1.018e6, `${installedBytes} bytes`);
});

for (const name of names) {
  test(`${name} contains no code of another package`, () => {
    const maps = packed[name].filter((path) => path.endsWith(".map"));
    assert.ok(maps.length > 0);
    const sources = maps.flatMap((path) => {
      const file = join(project, folders[name], path);
      const { sources } = JSON.parse(fs.readFileSync(file, "utf8"));
      return sources.map((source: string) => resolve(dirname(file), source));
    });
    const own = join(project, folders[name], "src");
    assert.equal(
      sources.filter((source: string) => !source.startsWith(own)),
      [],
    );
  });
}

/** Bundles for a platform without modules of its own. Returns what esbuild says about the files. */
async function bundle(code: string): Promise<Metafile> {
  const { metafile } = await build({
    stdin: { contents: code, resolveDir: host },
    bundle: true,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    external: ["p-queue"],
    metafile: true,
    write: false,
    logLevel: "silent",
  });
  return metafile;
}

test("both builds of smooth-limiter load one copy of the Lua, and a bundle what it uses of it", async () => {
  const withLua = packed["smooth-limiter"].filter((path) => {
    const code = /^dist\/.*js$/.test(path) && fs.readFileSync(join(project, path), "utf8");
    return code && /redis\.p?call\(|struct\.unpack\(/.test(code);
  });
  assert.ok(withLua.length > 10);
  assert.ok(
    withLua.every((path) => path.startsWith("dist/lua/")),
    `${withLua}`,
  );
  const { outputs } = await bundle('export { RedisRateLimiter } from "smooth-limiter/redis";');
  const [{ inputs } = { inputs: {} }] = Object.values(outputs);
  const bundled = (script: string) =>
    Object.keys(inputs).some((path) => path.endsWith(`/dist/lua/${script}.cjs`));
  const used = ["transition", "smooth", "smoothLua", "gcraLua"];
  const unused = ["gcra", "concurrency"];
  assert.equal([...used, ...unused].filter(bundled), used);
});

for (const entry of Object.keys(manifest("smooth-limiter").exports)) {
  const from = join("smooth-limiter", entry);
  if (entry.endsWith(".json")) continue;
  if (entry === "./streams/node") {
    test(`${from} is for Node, as its name says`, async () => {
      const error = await bundle(`export * from "${from}";`).catch(String);
      assert.match(String(error), /Could not resolve "node:stream"/);
    });
  } else {
    test(`${from} imports no module of Node`, async () => {
      const { inputs } = await bundle(`export * from "${from}";`);
      assert.ok(Object.keys(inputs).length > 1);
    });
  }
}

for (const from of ["smooth-limiter-gateway", "smooth-limiter-gateway/web"]) {
  test(`${from} bundles for an edge runtime, without Node`, async () => {
    const metafile = await bundle(`
      import { createGateway, fetchGateway, honoGateway, readRules } from "${from}";
      globalThis.all = [createGateway, fetchGateway, honoGateway, readRules];
    `);
    const inputs = Object.keys(metafile.inputs);
    assert.equal(
      inputs.filter((path) => path.includes("chokidar")),
      [],
    );
    assert.ok(inputs.some((path) => path.includes("js-yaml")));
  });
}

test("on Node smooth-limiter-gateway has what the web entry lacks", () => {
  const print = (from: string) =>
    run(
      host,
      process.execPath,
      "--input-type=module",
      "-e",
      `
      import * as gateway from "${from}";
      console.log(Object.keys(gateway).sort().join(" "));
    `,
    ).split(/\s/);
  const web = print("smooth-limiter-gateway/web");
  const more = print("smooth-limiter-gateway").filter((name) => !web.includes(name));
  assert.equal(more, ["fileSource", "upgradeGateway"]);
});

test("the package works as an ES module", () => {
  run(consumer, process.execPath, "esm.js");
});

test("the package works through require", () => {
  run(consumer, process.execPath, "--no-experimental-require-module", "required.cjs");
});

test("in Node import and require load one copy", () => {
  const code = `import { createRequire } from "node:module";
    const require = createRequire(import.meta.url);
    for (const name of ["smooth-limiter", "smooth-limiter/redis", "smooth-limiter-gateway/limit"]) {
      const required = require(name);
      const imported = await import(name);
      for (const [key, value] of Object.entries(required)) {
        if (imported[key] !== value) throw new Error(name + " " + key);
      }
    }`;
  run(host, process.execPath, "--input-type=module", "-e", code);
});

test("smooth-limiter-gateway/limit loads neither a schema, nor YAML, nor the watching of files", async () => {
  const { inputs } = await bundle('export * from "smooth-limiter-gateway/limit";');
  const heavy = Object.keys(inputs).filter((path) => /zod|yaml|chokidar|stores.redis/.test(path));
  assert.equal(heavy, []);
});

test("with source maps, stack traces of both builds name files and lines of src", () => {
  const lineOf = (file: string, code: string) => {
    const lines = fs.readFileSync(file, "utf8").split("\n");
    return `${file}:${lines.findIndex((line) => line.includes(code)) + 1}:`;
  };
  const throwing = `try { RateLimiter.create(0); } catch ({ stack }) { console.log(stack); }
    try { throttleNode(); } catch ({ stack }) { console.log(stack); }`;
  const esm = `import { RateLimiter } from "smooth-limiter";
    import { throttleNode } from "smooth-limiter/streams/node"; ${throwing}`;
  const cjs = `const { RateLimiter } = require("smooth-limiter");
    const { throttleNode } = require("smooth-limiter/streams/node"); ${throwing}`;
  for (const args of [
    ["--input-type=module", "-e", esm],
    ["--no-experimental-require-module", "-e", cjs],
  ]) {
    const stack = run(consumer, process.execPath, "--enable-source-maps", ...args);
    for (const [file, code] of [
      ["src/ground/check.ts", "throw new Kind("],
      ["src/local/rate-limiter.ts", "} = smoothArguments(permitsPerSecond"],
      ["src/adapters/streams/options.ts", "throw new TypeError(`limiter must have"],
    ] as const) {
      assert.match(stack, `/smooth-limiter/${lineOf(file, code)}`);
    }
  }
});

test("an uncaught error prints a line of code that fits on a terminal, not a whole file", () => {
  const code = 'require("smooth-limiter").RateLimiter.create(0)';
  const { status, stderr } = spawnSync(process.execPath, ["-e", code], {
    cwd: consumer,
    encoding: "utf8",
  });
  assert.is(status, 1);
  assert.match(stderr, "RangeError: permitsPerSecond must be");
  assert.equal(
    stderr.split("\n").filter((line) => line.length > 400),
    [],
  );
});

test("its ES modules and its CommonJS build work together in one process", () => {
  run(consumer, process.execPath, "-C", "module", "both-builds.js");
});

test("classes have their own names in both builds", () => {
  const renamed = packed["smooth-limiter"]
    .filter((path) => path.endsWith(".js"))
    .flatMap((path) =>
      fs.readFileSync(join(project, path), "utf8").match(/\bclass (_\w+|\w+\d)\b/g),
    );
  assert.equal(
    renamed.filter((name) => name !== null),
    [],
  );
});

test("npx smooth-limiter runs where smooth-limiter-cli is installed", () => {
  const npx = (...args: string[]) => run(host, "npx", "--offline", "smooth-limiter", ...args);
  const { version } = manifest("smooth-limiter-cli");
  assert.is(npx("--version"), `${version}\n`);
  // npx also takes the name of a package with one command
  assert.is(run(host, "npx", "--offline", "smooth-limiter-cli", "--version"), `${version}\n`);
  const rule = "{ url: /, rules: [{ actor: device, unit: minute, rpu: 60 }] }";
  fs.writeFileSync(join(host, "rules.yaml"), rule);
  fs.writeFileSync(join(host, "log.jsonl"), '{"time":0,"url":"/"}');
  assert.match(npx("check", "rules.yaml"), /1 rule for 1 URL: fine/);
  const replay = npx("replay", "rules.yaml", "log.jsonl", "--html", "report.html");
  assert.match(replay, /1 request: /);
  assert.ok(fs.existsSync(join(host, "report.html")));
});

// With Node's types, and without them but with those of the browser; library files checked too.
for (const options of [
  ["--module", "nodenext", "--types", "node", "--typeRoots", resolve("node_modules/@types")],
  ["--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,esnext.disposable,dom"],
]) {
  test(`the types are sound: tsc ${options.slice(0, 4).join(" ")}`, () => {
    const tsc = resolve("node_modules/typescript/bin/tsc");
    run(consumer, process.execPath, tsc, "--noEmit", "--strict", ...options, "types.ts");
  });
}

test("each entry of each package has sound types on its own", () => {
  for (const peer of ["p-queue", "@nestjs/common", "@nestjs/core", "reflect-metadata", "rxjs"]) {
    link(resolve("node_modules", peer), join(host, "node_modules", peer));
  }
  const imports = names.flatMap((name) =>
    Object.keys(manifest(name).exports)
      .filter((entry) => !entry.endsWith(".json"))
      .map((entry) => `export type * from "${join(name, entry)}";`),
  );
  const files = imports.map((text, i) => {
    fs.writeFileSync(join(host, `entry-${i}.mts`), text);
    return `entry-${i}.mts`;
  });
  const tsc = resolve("node_modules/typescript/bin/tsc");
  const options = ["--module", "nodenext", "--types", "node", "--typeRoots"];
  run(
    host,
    process.execPath,
    tsc,
    "--noEmit",
    "--strict",
    ...options,
    resolve("node_modules/@types"),
    ...files,
  );
});

test("the package loads no dependency, not even an installed one", () => {
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
