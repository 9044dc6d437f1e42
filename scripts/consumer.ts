// A folder under .cache/ with the packed core installed in it beside the tools of a test: those that
// test/fixtures/<name>/ pins in a package.json and a package-lock.json of its own, so that `npm ci` at
// the root stays light. The tools are installed again only when the lock file has changed.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Returns the absolute path of the folder, which has the files of test/fixtures/<name>/ too. */
export function consumer(name: string): string {
  const fixture = join("test/fixtures", name);
  const folder = join(process.cwd(), ".cache", name);
  const lock = (path: string) => join(path, "package-lock.json");
  const isCurrent =
    existsSync(join(folder, "node_modules")) &&
    existsSync(lock(folder)) &&
    readFileSync(lock(folder), "utf8") === readFileSync(lock(fixture), "utf8");
  if (!isCurrent) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    cpSync(join(fixture, "package.json"), join(folder, "package.json"));
    cpSync(lock(fixture), lock(folder));
    console.log(`installing the tools of ${fixture}`);
    const quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    // the versions of the lock file; `npm ci` also wants the packages of other platforms to be listed
    run(folder, "npm", "install", "--no-save", ...quiet);
  }
  cpSync(fixture, folder, { recursive: true });
  installPacked(join(folder, "node_modules", "smooth-limiter"));
  return folder;
}

function installPacked(installed: string): void {
  const scratch = mkdtempSync(join(tmpdir(), "smooth-limiter-packed-"));
  try {
    const into = ["--pack-destination", scratch];
    const [tarball] = JSON.parse(run(".", "npm", "pack", "--json", ...into));
    rmSync(installed, { recursive: true, force: true });
    mkdirSync(installed, { recursive: true });
    const archive = join(scratch, tarball.filename);
    run(".", "tar", "-xzf", archive, "-C", installed, "--strip-components=1");
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Runs a command and returns what it prints. @throws Error with what it printed when it fails */
function run(cwd: string, command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${status}\n${stdout}${stderr}`);
  return stdout;
}
