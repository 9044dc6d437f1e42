// What can be said of the packages without a build: of their manifests, and of the files that they contain.
// package.soak.ts tests them as users install them.

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import * as assert from "uvu/assert";
import { VERSION } from "../../src/ground/copies.ts";
import { suite } from "../support/suite.ts";

const folders = {
  "smooth-limiter": ".",
  "smooth-limiter-gateway": "gateway",
  "smooth-limiter-cli": "cli",
} as const;
type Name = keyof typeof folders;
const names = Object.keys(folders) as Name[];

function manifest(name: Name) {
  return JSON.parse(readFileSync(join(folders[name], "package.json"), "utf8"));
}

/** The files that npm packs, except built ones. */
function packed(name: Name): string[] {
  const listed: string[] = ["README.md", "LICENSE", ...manifest(name).files];
  return listed
    .filter((path) => path !== "dist")
    .flatMap((path) => {
      const from = join(folders[name], path);
      if (!statSync(from).isDirectory()) return path;
      return readdirSync(from, { recursive: true, encoding: "utf8" }).map((file) =>
        join(path, file),
      );
    });
}

const pagesOf = (name: Name) =>
  packed(name)
    .filter((path) => path.endsWith(".md"))
    .map((path) => ({ path, text: readFileSync(join(folders[name], path), "utf8") }));

const pages = suite("pages of packages");

for (const name of names) {
  pages(`the links between the pages of ${name} lead to files that are installed`, () => {
    const installed = packed(name);
    const broken = pagesOf(name).flatMap(({ path, text }) =>
      [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)]
        .map(([, to = ""]) => join(dirname(path), to))
        .filter((to) => !installed.some((file) => file === to || file.startsWith(join(to, "/"))))
        .map((to) => `${path}: ${to}`),
    );
    assert.equal(broken, []);
  });

  pages(`the files of the repository that pages of ${name} name exist`, () => {
    const missing = pagesOf(name)
      .filter(({ path }) => path !== "CHANGELOG.md")
      .flatMap(({ path, text }) =>
        [...text.matchAll(/`((?:gateway\/|cli\/)?(?:bench|examples|src|scripts|test)\/[^` ]+)`/g)]
          .map(([, file = ""]) => file)
          .filter((file) => !/[*<]/.test(file) && !existsSync(file))
          .map((file) => `${path}: ${file}`),
      );
    assert.equal(missing, []);
  });

  pages(`pages of ${name} contain no marks of a merge conflict`, () => {
    const marked = pagesOf(name).filter(({ text }) => /^[<>]{7} /m.test(text));
    assert.equal(
      marked.map(({ path }) => path),
      [],
    );
  });
}

pages("the examples in smooth-limiter import only the package and modules of Node", () => {
  const examples = packed("smooth-limiter").filter((path) => path.startsWith("examples/"));
  assert.ok(examples.length > 0);
  const imports = examples.flatMap((path) =>
    [...readFileSync(path, "utf8").matchAll(/ from "([^"]+)"/g)].map(([, from = ""]) => from),
  );
  assert.equal(
    imports.filter((from) => !/^(node:|smooth-limiter)/.test(from)),
    [],
  );
});

pages.run();

const manifests = suite("manifests of packages");

manifests("smooth-limiter has no dependencies", () => {
  assert.is(manifest("smooth-limiter").dependencies, undefined);
});

for (const name of ["smooth-limiter-gateway", "smooth-limiter-cli"] as const) {
  manifests(
    `${name} installs no client, and the packages of this project in its own version`,
    () => {
      const { dependencies, peerDependencies } = manifest(name);
      const clients = ["ioredis", "iovalkey", "redis", "express", "fastify", "koa", "hono"];
      assert.equal(
        Object.keys(dependencies).filter((each) => clients.includes(each)),
        [],
      );
      const all = { ...peerDependencies, ...dependencies };
      const ours = names.filter((each) => all[each] !== undefined);
      assert.ok(ours.includes("smooth-limiter"));
      for (const each of ours) assert.is(all[each], `^${manifest(each).version}`);
    },
  );
}

manifests(
  "the gateway uses its user's smooth-limiter; what only the command line needs is not installed with it",
  () => {
    const { bin, dependencies } = manifest("smooth-limiter-gateway");
    assert.is(bin, undefined);
    assert.equal(Object.keys(dependencies).sort(), [
      "@noble/hashes",
      "chokidar",
      "ipaddr.js",
      "js-yaml",
      "zod",
    ]);
  },
);

manifests("copies of the package recognize each other by the version in package.json", () => {
  assert.equal(VERSION, manifest("smooth-limiter").version);
});

manifests.run();
