// What can be said of the packages without a build: of their manifests and pages.
// package.soak.ts tests them as users install them.

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
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

/** The pages of a package, in the repository. */
const pagesOf = (name: Name) =>
  ["README.md", "CHANGELOG.md", "docs"]
    .map((path) => join(folders[name], path))
    .flatMap((path) =>
      statSync(path).isDirectory()
        ? readdirSync(path, { recursive: true, encoding: "utf8" }).map((file) => join(path, file))
        : path,
    )
    .filter((path) => path.endsWith(".md"))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }));

const pages = suite("pages of packages");

for (const name of names) {
  pages(`the files of the repository that pages of ${name} name exist`, () => {
    const missing = pagesOf(name)
      .filter(({ path }) => !path.endsWith("CHANGELOG.md"))
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

pages.run();

const manifests = suite("manifests of packages");

for (const name of names) {
  manifests(
    `${name} contains its code; the changelog, docs and examples are in the repository`,
    () => {
      const files: string[] = manifest(name).files;
      const known = ["dist", "rules.schema.json"];
      assert.equal(
        files.filter((file) => !known.includes(file)),
        [],
      );
      assert.ok(files.includes("dist"));
    },
  );
}

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
