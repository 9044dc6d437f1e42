import { type Command, InvalidArgumentError } from "commander";
import type { Io } from "../io.ts";
import {
  type ChangeOptions,
  type ListOptions,
  list,
  pause,
  type RedisOptions,
  reset,
  resetLimit,
  resetLimitKey,
  resetRate,
  type SetLimitOptions,
  type SetRateOptions,
  setLimit,
  setLimitKey,
  setRate,
  show,
  type WatchOptions,
  watch,
} from "./commands.ts";

type NewCommand = (name: string, description: string) => Command;

/** Adds `redis` and its commands to the program. */
export function addRedisCommands(program: Command, io: Io, exit: (code: number) => void): void {
  const redis = program
    .command("redis")
    .description("shows and changes what limiters have stored on Redis");
  const command = (name: string, description: string) =>
    redis
      .command(name)
      .description(description)
      .option("--url <url>", "the URL of Redis; default $REDIS_URL, or redis://127.0.0.1:6379")
      .option("--json", "the result as JSON");
  const listing = (name: string, description: string) =>
    command(name, description)
      .option(
        "--prefix <text>",
        "lists keys with this prefix; default l:, c: and g:; may be repeated",
        more,
        [],
      )
      .option(
        "--top <count>",
        "how many limiters at most, in the order of their keys",
        whole,
        1000,
      );
  const changing = (name: string, description: string) =>
    command(name, description)
      .argument("<key>", "as ls prints it, such as l:github")
      .option("--dry-run", "prints the change without making it");

  listing("ls", "lists the limiters and their state").action(async (options: ListOptions) => {
    exit(await list(options, io));
  });
  listing("watch", "prints the list repeatedly")
    .option("--every <ms>", "ms between two lists", positive, 1000)
    .option("--count <times>", "how many lists; 0: until the command is stopped", whole, 0)
    .action(async (options: WatchOptions) => {
      exit(await watch(options, io));
    });
  command("show", "shows one limiter: its numbers, and the holders of its leases")
    .argument("<key>", "as ls prints it, such as l:github")
    .action(async (key: string, options: RedisOptions) => {
      exit(await show(key, options, io));
    });
  changing("set-rate", "sets the permits per second, for all code that declares the same numbers")
    .argument("<rate>", "permits per second", positive)
    .option("--policy <index>", "which policy of several, from 1", whole)
    .action(async (key: string, rate: number, options: SetRateOptions) => {
      exit(await setRate(key, rate, options, io));
    });
  changing("reset-rate", "puts the declared numbers back in force").action(
    async (key: string, options: ChangeOptions) => {
      exit(await resetRate(key, options, io));
    },
  );
  changing("reset", "clears what was used, charged and paused").action(
    async (key: string, options: ChangeOptions) => {
      exit(await reset(key, options, io));
    },
  );
  changing("pause", "grants no call for that time")
    .argument("<ms>", "how long, ms", positive)
    .action(async (key: string, ms: number, options: ChangeOptions) => {
      exit(await pause(key, ms, options, io));
    });
  addLimitCommands(changing, io, exit);
}

function addLimitCommands(changing: NewCommand, io: Io, exit: (code: number) => void): void {
  const DECLARED = [
    "--declared <limit>",
    "the limit in the code, if it is not known",
    atLeastOne,
  ] as const;
  changing("set-limit", "sets the number of leases, for all code that declares the same limit")
    .argument("<limit>", "how many: a whole number from 1", atLeastOne)
    .option(...DECLARED)
    .action(async (key: string, limit: number, options: SetLimitOptions) => {
      exit(await setLimit(key, limit, options, io));
    });
  changing("reset-limit", "puts the declared number of leases back in force")
    .option(...DECLARED)
    .action(async (key: string, options: SetLimitOptions) => {
      exit(await resetLimit(key, options, io));
    });
  changing(
    "set-limit-key",
    "sets a limit that is kept in a key: the limitKey of limiters and rules",
  )
    .argument("<limit>", "0 refuses all requests", zeroOrMore)
    .action(async (key: string, limit: number, options: ChangeOptions) => {
      exit(await setLimitKey(key, limit, options, io));
    });
  changing("reset-limit-key", "removes a limit that is kept in a key").action(
    async (key: string, options: ChangeOptions) => {
      exit(await resetLimitKey(key, options, io));
    },
  );
}

function more(value: string, before: readonly string[]): readonly string[] {
  return [...before, value];
}

function whole(value: string): number {
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new InvalidArgumentError("It must be a whole number, 0 to 999999.");
}

function atLeastOne(value: string): number {
  if (/^[1-9]\d{0,8}$/.test(value)) return Number(value);
  throw new InvalidArgumentError("It must be a whole number, 1 to 999999999.");
}

function zeroOrMore(value: string): number {
  return value === "0" ? 0 : positive(value);
}

function positive(value: string): number {
  const number = Number(value);
  if (value.trim() !== "" && number > 0 && number < Infinity) return number;
  throw new InvalidArgumentError("It must be a number above 0.");
}
