import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import * as assert from "uvu/assert";
import * as limits from "../../gateway/src/limit.ts";
import { suite } from "../support/suite.ts";

// What is added again and again is known to its registration alone, so that an addition touches no other code.

const sources = ["src", "gateway/src", "cli/src"].flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => join(folder, file).replaceAll(sep, "/")),
);
const imports = sources.map((file) => {
  const paths = readFileSync(file, "utf8").matchAll(/(?:from|import) "(\.[^"]+)"/g);
  const imported = [...paths].map(([, path = ""]) =>
    join(dirname(file), path).replaceAll(sep, "/"),
  );
  return [file, imported] as const;
});

/** Returns the files outside of these that import one of them. */
function importersOf(path: string): string[] {
  return imports
    .filter(
      ([file, imported]) => !file.startsWith(path) && imported.some((to) => to.startsWith(path)),
    )
    .map(([file]) => file);
}

const foldersIn = (folder: string) =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);

const test = suite("additions");

for (const name of foldersIn("src/algorithms")) {
  test(`the algorithm ${name} is known to its registration alone`, () => {
    const others: Readonly<Record<string, readonly string[]>> = {
      // a token bucket that refills continuously is a GCRA
      gcra: ["src/algorithms/token-bucket/token-bucket.ts"],
      // the limiters of Guava are made for this algorithm
      smooth: ["src/local/rate-limiter.ts", "src/remote/remote-rate-limiter.ts"],
      // their permits come back at instants
      "fixed-window": ["src/algorithms/instants.ts"],
      "token-bucket": ["src/algorithms/instants.ts"],
    };
    const known = ["src/algorithms/index.ts", "src/index.ts", ...(others[name] ?? [])];
    assert.equal(importersOf(`src/algorithms/${name}/`).sort(), known.sort());
  });
}

for (const name of foldersIn("src/adapters")) {
  test(`the adapter ${name} is an entry of its own, and no other code knows it`, () => {
    assert.equal(importersOf(`src/adapters/${name}/`), []);
    const { exports } = JSON.parse(readFileSync("package.json", "utf8"));
    assert.ok(exports[`./${name}`], `"exports" of package.json have no "./${name}"`);
    const { compilerOptions } = JSON.parse(readFileSync("tsconfig.json", "utf8"));
    const paths = compilerOptions.paths[`smooth-limiter/${name}`];
    assert.equal(paths, [`./src/adapters/${name}/index.ts`]);
  });
}

test("a store is known to its entry alone", () => {
  const stores = foldersIn("src/stores").filter((name) => existsSync(`src/${name}.ts`));
  assert.ok(stores.includes("postgres"));
  for (const name of stores) {
    assert.equal(importersOf(`src/stores/${name}/`), [`src/${name}.ts`]);
  }
});

test("a server adapter is known to the list of adapters alone", () => {
  const hosts = Object.keys(limits).flatMap((name) => /^(\w+)Gateway$/.exec(name)?.[1] ?? []);
  assert.ok(hosts.includes("koa"));
  // the requests of Node and of fetch are what other adapters are made of
  for (const name of hosts.filter((host) => host !== "node" && host !== "fetch")) {
    assert.equal(importersOf(`gateway/src/hosts/${name}.ts`), ["gateway/src/limit.ts"], name);
  }
});

test.run();
