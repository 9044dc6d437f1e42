// Finds a redis-server for the tests, examples and benches: $REDIS_SERVER, else redis-server or
// valkey-server in PATH, else Debian's or Ubuntu's, fetched into .cache/redis/ without being root.
// That folder is in the project but not under node_modules, which `npm ci` deletes.

import { execFile } from "node:child_process";
import { accessSync, constants, mkdirSync, mkdtempSync, readdirSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export interface Program {
  /** The path of the executable. */
  command: string;
  /** What its environment has to be: it may need libraries that were fetched with it. */
  env: NodeJS.ProcessEnv;
}

const run = promisify(execFile);
const cache = fileURLToPath(new URL("../.cache/", import.meta.url));
const fetched = join(cache, "redis");

let server: Promise<Program> | undefined;

/**
 * A redis-server that runs here, looked for once per process.
 *
 * @throws Error in one line that says what to install
 */
export function redisServer(): Promise<Program> {
  server ??= find();
  return server;
}

/**
 * The environment in which `program` sees a clock that is `offsetMs` ahead of the machine's, or
 * behind it when negative.
 *
 * @throws Error where there is no apt-get to fetch libfaketime with
 */
export async function withClockOffset(program: Program, offsetMs: number): Promise<Program> {
  const { env } = await fetchedServer().catch((cause: unknown) => {
    throw new Error("A shifted clock needs libfaketime, which could not be fetched", { cause });
  });
  return {
    command: program.command,
    env: {
      ...env,
      // libfaketime allocates before it is ready, and jemalloc reads the clock when it allocates:
      // with libc before jemalloc in the order of look-up, malloc is libc's.
      LD_PRELOAD: "libfaketime.so.1 libc.so.6",
      FAKETIME: `${offsetMs < 0 ? "" : "+"}${(offsetMs / 1000).toFixed(6)}`,
    },
  };
}

async function find(): Promise<Program> {
  const command =
    process.env.REDIS_SERVER || inPath("redis-server") || inPath("valkey-server") || undefined;
  return command === undefined ? fetchedServer() : { command, env: process.env };
}

function inPath(name: string): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  return folders
    .map((folder) => join(folder, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

let fetching: Promise<Program> | undefined;

function fetchedServer(): Promise<Program> {
  fetching ??= (async () => {
    // What is there may be for another machine: the checkout may be shared with a container.
    if (!(await runs())) await fetchServer();
    return unpacked();
  })();
  return fetching;
}

async function runs(): Promise<boolean> {
  try {
    const { command, env } = unpacked();
    await run(command, ["--version"], { env });
    return true;
  } catch {
    return false;
  }
}

function unpacked(): Program {
  const libraries = readdirSync(fetched, { recursive: true, encoding: "utf8" })
    .filter((file) => file.includes(".so."))
    .map((file) => dirname(join(fetched, file)));
  const folders = [...new Set(libraries), process.env.LD_LIBRARY_PATH].filter(Boolean);
  return {
    command: join(fetched, "usr/bin/redis-server"),
    env: { ...process.env, LD_LIBRARY_PATH: folders.join(delimiter) },
  };
}

// apt-get with lists and a cache of its own needs no root and leaves the system's alone.
async function fetchServer(): Promise<void> {
  if (inPath("apt-get") === undefined || inPath("dpkg-deb") === undefined) {
    throw new Error("No redis-server: install redis or valkey, or set REDIS_SERVER to its path");
  }
  mkdirSync(cache, { recursive: true });
  const scratch = mkdtempSync(`${fetched}-`);
  try {
    const debs = await download(scratch);
    const root = join(scratch, "root");
    for (const deb of debs) await run("dpkg-deb", ["-x", deb, root]);
    await putInPlace(root);
  } catch (error) {
    const { stderr } = error as { stderr?: string };
    const why = `${stderr || error}`.trim().replaceAll("\n", "; ");
    throw new Error(
      `No redis-server, and apt-get could not fetch one: install redis-server, or set REDIS_SERVER to its path (${why})`,
    );
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Everything that the packages need and that is not installed, as apt-get resolves it. */
async function download(scratch: string): Promise<string[]> {
  const settings = `
    Dir::Cache "${scratch}";
    Debug::NoLocking "true";
    APT::Sandbox::User "root";
    Acquire::Languages "none";
    #clear APT::Update::Post-Invoke;
    #clear APT::Update::Post-Invoke-Success;
  `;
  const own = join(scratch, "own.conf");
  const system = join(scratch, "system.conf");
  await writeFile(own, `${settings} Dir::State::Lists "${scratch}/lists";`);
  mkdirSync(join(scratch, "lists", "partial"), { recursive: true });
  await writeFile(system, settings);

  // The program itself is in redis-tools. Where that is installed already, only --reinstall
  // downloads it.
  const packages = ["redis-server", "redis-tools", "libfaketime"];
  const install = ["install", "-y", "--no-install-recommends", "--download-only", "--reinstall"];
  try {
    await run("apt-get", ["-c", own, "update"]);
    await run("apt-get", ["-c", own, ...install, ...packages]);
  } catch {
    await run("apt-get", ["-c", system, ...install, ...packages]);
  }
  const archives = join(scratch, "archives");
  return readdirSync(archives)
    .filter((file) => file.endsWith(".deb"))
    .map((file) => join(archives, file));
}

async function putInPlace(root: string): Promise<void> {
  try {
    await rename(root, fetched);
  } catch (error) {
    // Another process was faster, or what is there does not run.
    if (await runs()) return;
    await rm(fetched, { recursive: true, force: true });
    await rename(root, fetched).catch(async () => {
      if (!(await runs())) throw error;
    });
  }
}
