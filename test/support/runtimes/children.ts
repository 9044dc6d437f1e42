import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";

const LIMIT_MS = 120_000;

/** Runs programs in a folder. Each is killed after `LIMIT_MS`. */
export class Children {
  readonly #cwd: string;
  readonly #env: NodeJS.ProcessEnv;

  constructor(cwd: string, env: NodeJS.ProcessEnv) {
    this.#cwd = cwd;
    this.#env = env;
  }

  /** Returns what a program prints. @throws Error with that if it fails */
  async outputOf(command: string, ...args: readonly string[]): Promise<string> {
    const child = this.#start(command, args);
    const [output, errors, code] = await within(
      Promise.all([text(child.stdout), text(child.stderr), exitOf(child)]),
      child,
    );
    if (code !== 0) throw new Error(`exit code ${code}\n${output}${errors}`);
    return output;
  }

  /** Starts a program, calls `ask` while it runs, then kills it and waits until nothing that it started holds its output. */
  async serving<T>(
    command: string,
    args: readonly string[],
    ask: () => Promise<T>,
    env: NodeJS.ProcessEnv = {},
  ): Promise<T> {
    const child = this.#start(command, args, env);
    const errors = text(child.stderr);
    const ended = exitOf(child).then(async (code) => {
      throw new Error(`exit code ${code}\n${await errors}`);
    });
    try {
      return await within(Promise.race([ask(), ended]), child);
    } finally {
      child.kill("SIGKILL");
      await ended.catch(() => {});
    }
  }

  #start(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    return spawn(command, args, {
      cwd: this.#cwd,
      env: { ...process.env, ...this.#env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
  }
}

async function exitOf(child: ChildProcess): Promise<unknown> {
  const [code, signal] = await once(child, "close");
  return code ?? signal;
}

/** Waits for `done`. Kills the child after the time limit. */
async function within<T>(done: Promise<T>, child: ChildProcess): Promise<T> {
  const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    return await done;
  } finally {
    clearTimeout(timer);
  }
}
