// Fetches programs that tests need and that a machine may lack, from Debian or Ubuntu into .cache/. That
// needs no root. The folder is not under node_modules, because `npm ci` deletes that one.

import { execFile } from "node:child_process";
import { accessSync, constants, mkdirSync, mkdtempSync, readdirSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export interface Program {
  /** The path of the executable. */
  command: string;
  /** The environment to run it in: it may need libraries that were fetched with it. */
  env: NodeJS.ProcessEnv;
}

const run = promisify(execFile);
const cache = fileURLToPath(new URL("../../../.cache/", import.meta.url));

/** Returns the path of the first of these commands that is in PATH. */
export function inPath(...names: readonly string[]): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  return names
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** A program from Debian's packages. Create one object per process, so that it is fetched once. */
export class FetchedProgram {
  readonly #folder: string;
  readonly #command: string;
  readonly #packages: readonly string[];
  readonly #advice: string;
  #fetching: Promise<Program> | undefined;

  /**
   * @param folder name of the folder in .cache/
   * @param command path of the executable below the root of the file system; `*` stands for the first folder
   *   there, such as that of a version
   * @param packages names of the packages that contain it; missing dependencies are fetched too
   * @param advice start of the error's message when it cannot be fetched: "No …: install …"
   */
  constructor(folder: string, command: string, packages: readonly string[], advice: string) {
    this.#folder = join(cache, folder);
    this.#command = command;
    this.#packages = packages;
    this.#advice = advice;
  }

  /** @throws Error in one line that says what to install */
  get(): Promise<Program> {
    this.#fetching ??= (async () => {
      // A fetched program may not run here: the checkout may be shared with a container.
      if (!(await this.#runs())) await this.#fetch();
      return this.#unpacked();
    })();
    return this.#fetching;
  }

  async #runs(): Promise<boolean> {
    try {
      const { command, env } = this.#unpacked();
      await run(command, ["--version"], { env });
      return true;
    } catch {
      return false;
    }
  }

  #unpacked(): Program {
    const libraries = readdirSync(this.#folder, { recursive: true, encoding: "utf8" })
      .filter((file) => /\.so(\.|$)/.test(file))
      .map((file) => dirname(join(this.#folder, file)));
    const folders = [...new Set(libraries), process.env.LD_LIBRARY_PATH].filter(Boolean);
    const env = { ...process.env, LD_LIBRARY_PATH: folders.join(delimiter) };
    const command = this.#command
      .split("/")
      .reduce(
        (path, part) => join(path, part === "*" ? (readdirSync(path)[0] ?? "") : part),
        this.#folder,
      );
    return { command, env };
  }

  // With its own lists and cache, apt-get needs no root and leaves the system's files alone.
  async #fetch(): Promise<void> {
    if (inPath("apt-get") === undefined || inPath("dpkg-deb") === undefined) {
      throw new Error(this.#advice);
    }
    mkdirSync(cache, { recursive: true });
    const scratch = mkdtempSync(`${this.#folder}-`);
    try {
      const debs = await download(scratch, this.#packages);
      const root = join(scratch, "root");
      for (const deb of debs) await run("dpkg-deb", ["-x", deb, root]);
      await this.#putInPlace(root);
    } catch (error) {
      const { stderr } = error as { stderr?: string };
      const why = `${stderr || error}`.trim().replaceAll("\n", "; ");
      throw new Error(`${this.#advice} (apt-get could not fetch it: ${why})`);
    } finally {
      await rm(scratch, { recursive: true, force: true });
    }
  }

  async #putInPlace(root: string): Promise<void> {
    try {
      await rename(root, this.#folder);
    } catch (error) {
      // Another process was faster, or the program that is there does not run.
      if (await this.#runs()) return;
      await rm(this.#folder, { recursive: true, force: true });
      await rename(root, this.#folder).catch(async () => {
        if (!(await this.#runs())) throw error;
      });
    }
  }
}

/** Returns the packages and their missing dependencies, as apt-get resolves them. */
async function download(scratch: string, packages: readonly string[]): Promise<string[]> {
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

  // A package that is installed already is downloaded only with --reinstall.
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
