// Makes a folder under .cache/ in which the packed core and the tools of a test are installed. The tools
// are pinned by the package.json and package-lock.json of test/fixtures/<name>/, which keeps `npm ci` at
// the root small. They are installed again only when that lock file has changed.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Returns the absolute path of the folder, which also contains the files of test/fixtures/<name>/. */
export function packIntoFixture(name: string): string {
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
    // installs the versions of the lock file; `npm ci` would also demand entries for other platforms' packages
    run(folder, "npm", "install", "--no-save", ...quiet);
  }
  cpSync(fixture, folder, { recursive: true });
  installPacked(".", join(folder, "node_modules", "smooth-limiter"));
  return folder;
}

/** Adds the packed gateway, with the dependencies that are installed at the root. */
export function addGateway(folder: string): void {
  const modules = join(folder, "node_modules");
  installPacked("gateway", join(modules, "smooth-limiter-gateway"));
  const { dependencies } = JSON.parse(readFileSync("gateway/package.json", "utf8"));
  for (const name of Object.keys(dependencies).filter((each) => each !== "smooth-limiter")) {
    cpSync(join("node_modules", name), join(modules, name), { recursive: true });
  }
}

function installPacked(packed: string, installed: string): void {
  const scratch = mkdtempSync(join(tmpdir(), "smooth-limiter-packed-"));
  try {
    const into = ["--pack-destination", scratch];
    const [tarball] = JSON.parse(run(packed, "npm", "pack", "--json", ...into));
    rmSync(installed, { recursive: true, force: true });
    mkdirSync(installed, { recursive: true });
    const archive = join(scratch, tarball.filename);
    run(".", "tar", "-xzf", archive, "-C", installed, "--strip-components=1");
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Runs a command and returns its output. @throws Error with the output when the command fails */
function run(cwd: string, command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${status}\n${stdout}${stderr}`);
  return stdout;
}
