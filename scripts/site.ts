// Serves, builds and tests the site. site.ts <step>… runs these steps, in this order, on the packages that `npm run build` made:
//
//   serve   serves the site, and shows changes of the docs at once
//   build   writes static files to site/dist; set SITE_BASE=/path/ if the site is not at the root of its host
//   test    checks the types, and runs site/browser in headless Chromium on the output of `build`
//
// `npm ci` does not install the tools of the site. This script installs them into site/node_modules when they are missing.

import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";

const STEPS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  serve: [["site/node_modules/vitepress/bin/vitepress.js", "dev", "site"]],
  build: [["site/node_modules/vitepress/bin/vitepress.js", "build", "site"]],
  test: [
    ["node_modules/typescript/bin/tsc", "--noEmit", "-p", "site"],
    ["--import", "tsx", "site/browser/run.ts"],
  ],
};

const wanted = process.argv.slice(2);
const unknown = wanted.find((step) => STEPS[step] === undefined);
if (wanted.length === 0 || unknown !== undefined) {
  console.error(`site.ts expects ${Object.keys(STEPS).join(", ")}; got ${unknown ?? "nothing"}`);
  process.exit(1);
}
if (!isInstalled()) run("npm", ["ci", "--workspaces=false", "--no-audit", "--no-fund"], "site");
for (const args of wanted.flatMap((step) => STEPS[step] ?? [])) run(process.execPath, args);

/** Returns whether site/node_modules is newer than the lock file. */
function isInstalled(): boolean {
  const [lock, found] = ["site/package-lock.json", "site/node_modules/.package-lock.json"].map(
    (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return Number(lock) < Number(found);
}

function run(command: string, args: readonly string[], cwd = "."): void {
  const { status } = spawnSync(command, args, { stdio: "inherit", cwd });
  if (status !== 0) process.exit(status ?? 1);
}
