// Finds a redis-server for the tests, examples and benches: $REDIS_SERVER, else redis-server or
// valkey-server in PATH, else Debian's or Ubuntu's, which is fetched into .cache/redis/ without root.

import { FetchedProgram, inPath, type Program } from "./fetched-program.ts";

export type { Program } from "./fetched-program.ts";

// The program itself is in redis-tools.
const fetched = new FetchedProgram(
  "redis",
  "usr/bin/redis-server",
  ["redis-server", "redis-tools", "libfaketime"],
  "No redis-server: install redis or valkey, or set REDIS_SERVER to its path",
);

let server: Promise<Program> | undefined;

/**
 * Returns a redis-server that runs on this machine. The search happens once per process.
 *
 * @throws Error in one line that says what to install
 */
export function redisServer(): Promise<Program> {
  server ??= find();
  return server;
}

/**
 * Returns an environment in which `program` sees a clock that is `offsetMs` ahead of the machine's, or
 * behind it when negative.
 *
 * @throws Error when libfaketime could not be fetched with apt-get
 */
export async function withClockOffset(program: Program, offsetMs: number): Promise<Program> {
  const { env } = await fetched.get().catch((cause: unknown) => {
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
  const command = process.env.REDIS_SERVER || inPath("redis-server", "valkey-server");
  return command === undefined ? fetched.get() : { command, env: process.env };
}
