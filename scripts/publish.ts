// Publishes the packages whose version is not on the registry yet, and tags the commit. It runs in a workflow, whose
// repository becomes the address in each package.json; elsewhere it publishes nothing.
//
//   npm run release               publishes
//   npm run release -- --dry-run  shows what it would publish

import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** The gateway depends on the core, and the command line on both. */
const FOLDERS = [".", "gateway", "cli"];

/**
 * Returns where a package comes from, as fields of its package.json. npm resolves the links of a README by them, and
 * compares them with the provenance of the package.
 *
 * @throws Error if the environment names no repository
 */
export function addresses(env: NodeJS.ProcessEnv, folder: string) {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = env;
  if (!server || !name) {
    throw new Error(
      "GITHUB_SERVER_URL and GITHUB_REPOSITORY must name the repository; publish in a workflow",
    );
  }
  const url = `${server}/${name}`;
  const directory = folder === "." ? {} : { directory: folder };
  return {
    repository: { type: "git", url: `git+${url}.git`, ...directory },
    homepage: folder === "." ? `${url}#readme` : `${url}/tree/HEAD/${folder}#readme`,
    bugs: `${url}/issues`,
  };
}

function publish(folder: string, isDry: boolean): void {
  const file = `${folder}/package.json`;
  const text = readFileSync(file, "utf8");
  const manifest = { ...JSON.parse(text), ...addresses(process.env, folder) };
  const id = `${manifest.name}@${manifest.version}`;
  if (!isDry && run(".", "npm", "view", id, "version") === manifest.version) return;
  writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`);
  try {
    const kind = isDry ? "--dry-run" : "--provenance";
    const output = run(folder, "npm", "publish", "--access", "public", kind);
    if (output === undefined) throw new Error(`${id} was not published`);
    console.log(output);
  } finally {
    writeFileSync(file, text);
  }
}

/** Runs a command. Returns its output, or nothing if it fails. */
function run(cwd: string, command: string, ...args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  return status === 0 ? stdout.trim() : undefined;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const isDry = process.argv.includes("--dry-run");
  for (const folder of FOLDERS) publish(folder, isDry);
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  if (!isDry) run(".", "git", "tag", `v${version}`);
}
