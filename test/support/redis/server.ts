// Real Redis servers for tests, examples and benches. A server does not keep the process alive, and is
// stopped when the process ends, also by a crash.

import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Program, redisServer, withClockOffset } from "../programs/redis-server.ts";
import { ask, type Reply, until } from "./ask.ts";

export interface RedisOptions {
  /** Additional arguments of redis-server. They override those of the harness. */
  args?: string[];
  /** The port. Default: a free one. */
  port?: number;
  /** The folder of its data, log and socket. Default: a temporary folder that `stop()` removes. */
  dir?: string;
  /** The master that this server copies. */
  replicaOf?: { host: string; port: number };
  /** Whether the server runs in cluster mode; see startCluster. Default: false. */
  cluster?: boolean;
  /** Makes the server a Sentinel with these settings, one line each; see startSentinels. */
  sentinel?: readonly string[];
  /** By how many ms its clock is ahead of the machine's, or behind it when negative. Default: 0. */
  clockOffsetMs?: number;
}

// Waits for the end of its input, which comes when this process closes the pipe or dies. Each line before
// that is the id of the server's current process. A line is empty when that process has ended, so that no
// other process is killed by a reused id. A killed libfaketime leaves its shared memory behind. The
// arguments are the folders to remove.
const WATCHDOG = `
  clean() { rm -f /dev/shm/*faketime_*_"$pid"; }
  while read -r next; do [ -n "$next" ] || clean; pid=$next; done
  [ -z "$pid" ] || kill -9 "$pid"
  clean
  rm -rf "$@" || { sleep 1; rm -rf "$@"; }
`;

/** A server process, and the processes that replace it after a crash. Made by startRedis. */
export class RedisServer {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly socketPath: string;
  /** `redis://host:port` */
  readonly url: string;
  readonly dir: string;
  readonly #program: Program;
  readonly #args: string[];
  readonly #watchdog: ChildProcess;
  #process: ChildProcess | undefined;
  #suspended = false;

  constructor(program: Program, port: number, options: RedisOptions) {
    this.port = port;
    this.url = `redis://${this.host}:${port}`;
    this.dir = options.dir ?? mkdtempSync(join(tmpdir(), "smooth-limiter-redis-"));
    this.socketPath = join(this.dir, "redis.sock");
    this.#program = program;
    const settings: Record<string, string> = {
      port: `${port}`,
      bind: this.host,
      dir: this.dir,
      unixsocket: this.socketPath,
      save: "",
      appendonly: "no",
      "repl-diskless-sync-delay": "0",
    };
    if (options.cluster) settings["cluster-enabled"] = "yes";
    this.#args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
    if (options.replicaOf)
      this.#args.push("--replicaof", options.replicaOf.host, `${options.replicaOf.port}`);
    this.#args.push(...(options.args ?? []));
    if (options.sentinel) {
      // a Sentinel rewrites its configuration file
      const file = join(this.dir, "sentinel.conf");
      writeFileSync(file, options.sentinel.map((line) => `${line}\n`).join(""));
      this.#args.unshift(file, "--sentinel");
    }
    // In its own session the watchdog survives a signal to the whole group of this process.
    const folders = options.dir === undefined ? [this.dir] : [];
    this.#watchdog = spawn("/bin/sh", ["-c", WATCHDOG, "watchdog", ...folders], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#watchdog.unref();
  }

  /** The id of the server's process. @throws Error when it is not running */
  get pid(): number {
    if (this.#process?.pid === undefined)
      throw new Error(`redis-server ${this.port} is not running`);
    return this.#process.pid;
  }

  get running(): boolean {
    return this.#process !== undefined;
  }

  get suspended(): boolean {
    return this.#suspended;
  }

  /** The server's log since it was first started. */
  get log(): string {
    return readFileSync(join(this.dir, "redis.log"), "utf8");
  }

  /** Sends the server one command. */
  ask(...command: string[]): Promise<Reply> {
    return ask({ host: this.host, port: this.port }, command);
  }

  /** Starts the server again on the same port and data. A server that still runs is killed first. */
  async restart(): Promise<void> {
    await this.kill9();
    const log = openSync(join(this.dir, "redis.log"), "a");
    const { command, env } = this.#program;
    const child = spawn(command, this.#args, { env, stdio: ["ignore", log, log] });
    closeSync(log);
    child.unref();
    this.#process = child;
    this.#suspended = false;
    this.#watchdog.stdin?.write(`${child.pid ?? ""}\n`);
    child.once("exit", () => {
      this.#process = undefined;
      this.#watchdog.stdin?.write("\n");
    });
    let failure: Error | undefined;
    child.once("error", (error) => {
      failure = error;
      this.#process = undefined;
    });

    // Another server cannot answer on the socket in this folder, and the socket opens after the port.
    await until(
      `redis-server on port ${this.port}`,
      async () => {
        if (this.#process === undefined) return true;
        const reply = await ask({ path: this.socketPath }, ["PING"]).catch(
          ({ message }) => message,
        );
        return reply === "PONG" || reply.startsWith("NOAUTH");
      },
      { everyMs: 5 },
    );
    if (this.#process === undefined) throw failure ?? new Error(`${command} ended: ${this.log}`);
  }

  /** Kills the server with SIGKILL, like a crash. Its port becomes free and its data are kept. */
  async kill9(): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    const exited = once(child, "exit");
    child.ref();
    child.kill("SIGKILL");
    await exited;
  }

  /** Suspends the server with SIGSTOP: connections stay open, but no command is answered. */
  suspend(): void {
    process.kill(this.pid, "SIGSTOP");
    this.#suspended = true;
  }

  resume(): void {
    process.kill(this.pid, "SIGCONT");
    this.#suspended = false;
  }

  /** Ends the server for good and removes its temporary folder. */
  async stop(): Promise<void> {
    await this.kill9();
    if (this.#watchdog.exitCode !== null) return;
    const cleaned = once(this.#watchdog, "exit");
    this.#watchdog.ref();
    this.#watchdog.stdin?.end();
    await cleaned;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/** Starts a server and waits until it answers. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const { port, clockOffsetMs = 0 } = options;
  const found = await redisServer();
  const program = clockOffsetMs === 0 ? found : await withClockOffset(found, clockOffsetMs);
  for (let attempt = 1; ; attempt++) {
    const server = new RedisServer(program, port ?? likelyFreePort(), options);
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      const taken = `${error}`.includes("Address already in use");
      if (port !== undefined || !taken || attempt === 20) throw error;
    }
  }
}

/** Starts a replica of `of`, and waits until it has copied the data. */
export async function startReplica(
  of: { host: string; port: number },
  options: RedisOptions = {},
): Promise<RedisServer> {
  const replica = await startRedis({ ...options, replicaOf: of });
  try {
    await until(`replica of port ${of.port}`, async () =>
      `${await replica.ask("INFO", "replication")}`.includes("master_link_status:up"),
    );
    return replica;
  } catch (error) {
    await replica.stop();
    throw error;
  }
}

/** Makes a replica a master. Its former master does not notice. */
export async function promote(replica: RedisServer): Promise<void> {
  await replica.ask("REPLICAOF", "NO", "ONE");
}

let shared: Promise<RedisServer> | undefined;
/** 0 is for clients that name no database. */
let databases = 1;

/** Returns the server that all tests of this process share, started at first use. Never stop it. */
export function sharedRedis(): Promise<RedisServer> {
  shared ??= startRedis({ args: ["--databases", "1000"] });
  return shared;
}

/** Returns the URL of an empty database of the shared server. Each call returns another database. */
export async function freshUrl(): Promise<string> {
  const { url } = await sharedRedis();
  return `${url}/${databases++}`;
}

/**
 * Returns a random port below 32768, where systems' ports for outgoing connections begin. From there on, an
 * outgoing connection could take the port while its server is down, even the connection that tries to reach
 * the server. A cluster also uses port + 10000. `Math.random` draws the same in each test, also of another process.
 */
export function likelyFreePort(): number {
  return randomInt(10_000, 22_000);
}
