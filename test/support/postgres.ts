// Real PostgreSQL servers for the tests: that of $POSTGRES (the path of `postgres`), an installed one, or
// Debian's, which is fetched into .cache/postgres/ without root. `initdb` is expected beside it.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, chownSync, cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import pg from "pg";
import { FetchedProgram, inPath, type Program } from "./programs/fetched-program.ts";

const run = promisify(execFile);
const cache = fileURLToPath(new URL("../.cache/postgres", import.meta.url));

const fetched = new FetchedProgram(
  "postgres",
  "usr/lib/postgresql/*/bin/postgres",
  ["postgresql"],
  "No PostgreSQL: install postgresql, or set POSTGRES to the path of postgres",
);

/** PostgreSQL refuses to run as root, so root runs it as "nobody". */
const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};

// Waits for the end of its input, which comes when this process closes the pipe or dies. Each line before
// that is the id of the server's current process.
const WATCHDOG = `
  while read -r next; do pid=$next; done
  [ -z "$pid" ] || kill -QUIT "$pid" 2> /dev/null
  sleep 1
  rm -rf "$1"
`;

/** Returns the path of an installed PostgreSQL. Debian keeps it outside PATH. */
function installed(): string | undefined {
  const debian = "/usr/lib/postgresql";
  const found = process.env.POSTGRES || inPath("postgres");
  if (found !== undefined) return found;
  try {
    const command = join(debian, readdirSync(debian)[0] ?? "", "bin/postgres");
    accessSync(command);
    return command;
  } catch {
    return undefined;
  }
}

async function program(folder: string): Promise<Program> {
  const command = installed();
  if (command !== undefined) return { command, env: process.env };
  const { command: own, env } = await fetched.get();
  if (nobody.uid === undefined) return { command: own, env };
  // "nobody" may not be allowed to enter the folder of this checkout
  const copy = join(folder, "program");
  cpSync(cache, copy, { recursive: true, verbatimSymlinks: true });
  const { LD_LIBRARY_PATH = "" } = env;
  const libraries = LD_LIBRARY_PATH.replaceAll(cache, copy);
  return { command: join(copy, relative(cache, own)), env: { ...env, LD_LIBRARY_PATH: libraries } };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** A server with an empty database. It ends with this process, also by a crash. */
export class PostgresServer {
  readonly url: string;
  readonly #program: Program;
  readonly #folder: string;
  readonly #port: number;
  readonly #fsync: "on" | "off";
  readonly #watchdog: ChildProcess;
  #process: ChildProcess | undefined;

  /** @param fsync whether commits wait for the disk, as they do by default; off is faster */
  static async start(fsync: "on" | "off" = "off"): Promise<PostgresServer> {
    const folder = mkdtempSync(join(tmpdir(), "smooth-limiter-postgres-"));
    try {
      return await PostgresServer.#startIn(folder, fsync);
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  static async #startIn(folder: string, fsync: "on" | "off"): Promise<PostgresServer> {
    if (nobody.uid !== undefined) chownSync(folder, nobody.uid, nobody.gid);
    const found = await program(folder);
    const data = join(folder, "data");
    const initdb = join(dirname(found.command), "initdb");
    const args = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"];
    await run(initdb, args, { env: found.env, cwd: folder, ...nobody });
    for (let tries = 0; ; tries++) {
      const server = new PostgresServer(found, folder, await freePort(), fsync);
      try {
        await server.restart();
        return server;
      } catch (error) {
        // another program may have taken the port
        if (tries === 3) throw error;
      }
    }
  }

  private constructor(program: Program, folder: string, port: number, fsync: "on" | "off") {
    this.#program = program;
    this.#folder = folder;
    this.#port = port;
    this.#fsync = fsync;
    this.url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    // In its own session the watchdog survives a signal to the whole group of this process.
    this.#watchdog = spawn("/bin/sh", ["-c", WATCHDOG, "watchdog", folder], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#watchdog.unref();
  }

  /** Starts the server, again on the same port and data. */
  async restart(): Promise<void> {
    const { command, env } = this.#program;
    const settings = [
      `port=${this.#port}`,
      "listen_addresses=127.0.0.1",
      "unix_socket_directories=",
      `fsync=${this.#fsync}`,
      "jit=off",
    ];
    const args = ["-D", join(this.#folder, "data"), ...settings.flatMap((each) => ["-c", each])];
    const child = spawn(command, args, { env, cwd: this.#folder, stdio: "ignore", ...nobody });
    child.unref();
    this.#process = child;
    this.#watchdog.stdin?.write(`${child.pid}\n`);
    for (let tries = 0; !(await this.#answers()); tries++) {
      if (child.exitCode !== null || tries > 600) {
        this.#watchdog.stdin?.write("\n");
        throw new Error("PostgreSQL does not start");
      }
      await sleep(50);
    }
  }

  async #answers(): Promise<boolean> {
    const client = new pg.Client(this.url);
    client.on("error", () => {});
    try {
      await client.connect();
      await client.query("SELECT 1");
      return true;
    } catch {
      return false;
    } finally {
      await client.end().catch(() => {});
    }
  }

  /** Ends the server at once; what it has not written to disk is lost, as in a crash. */
  async crash(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null) return;
    const ended = once(child, "exit");
    child.ref();
    child.kill("SIGQUIT");
    await ended;
  }

  async stop(): Promise<void> {
    await this.crash();
    this.#watchdog.stdin?.end();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
