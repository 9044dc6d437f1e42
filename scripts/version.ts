// Makes the next version from the notes in .changeset: the versions of the packages, which move together, their
// changelogs, and the version by which copies of the core recognize each other.

import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

/** A dependency on a package of this repository. */
const OURS = /"(smooth-limiter(?:-gateway)?)": "[\^*][\d.]*"/g;

// below 1.0.0 changesets makes 1.0.0 of a minor version that the range of a peer dependency does not allow
edit("gateway/package.json", (text) => text.replace(OURS, '"$1": "*"'));
run("node_modules/@changesets/cli/bin.js", "version");
const { version } = JSON.parse(readFileSync("package.json", "utf8"));
for (const folder of ["gateway", "cli"]) {
  edit(`${folder}/package.json`, (text) => text.replace(OURS, `"$1": "^${version}"`));
}
edit("src/ground/copies.ts", (text) => text.replace(/(?<=VERSION = ")[^"]+/, version));

function edit(file: string, change: (text: string) => string): void {
  writeFileSync(file, change(readFileSync(file, "utf8")));
}

function run(...args: readonly string[]): void {
  const { status } = spawnSync(process.execPath, args, { stdio: "inherit" });
  if (status !== 0) process.exit(1);
}
