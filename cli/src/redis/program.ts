import type { Command } from "commander";
import { type Io, unescaped } from "../io.ts";
import { positive, repeatable, wholeNumber } from "../options.ts";
import {
  addLimitChanges,
  addLimitKeyChanges,
  addRateChanges,
  type ChangeOptions,
  make,
  type Plan,
} from "./changes.ts";
import { type RedisOptions, withRedis } from "./connect.ts";
import { refuseDivided } from "./entries.ts";
import { type ListOptions, list, show, type WatchOptions, watch } from "./views.ts";

/** Adds `redis` and its commands to the program. */
export function addRedisCommands(program: Command, io: Io, fail: () => void): void {
  const redis = program
    .command("redis")
    .description("shows and changes what limiters have stored on Redis");
  const command = (name: string, description: string) =>
    redis
      .command(name)
      .description(description)
      .option("--url <url>", "the URL of Redis; default $REDIS_URL, or redis://127.0.0.1:6379")
      .option("--json", "the result as JSON")
      .option(
        "--timeout <ms>",
        "how long to wait for a connection, and for each answer of Redis",
        wholeNumber(1, 999_999),
        5000,
      );
  const listing = (name: string, description: string) =>
    command(name, description)
      .addOption(
        repeatable("--prefix <text>", "lists keys with this prefix").default([], "l:, c: and g:"),
      )
      .option(
        "--top <count>",
        "how many limiters at most, in the order of their keys",
        wholeNumber(0, 999_999),
        1000,
      );
  listing("ls", "lists the limiters and their state").action((options: ListOptions) =>
    withRedis(options, io, (redis) => list(redis, options, io)),
  );
  listing("watch", "prints the list repeatedly")
    .option("--every <ms>", "ms between two lists", positive, 1000)
    .option(
      "--count <times>",
      "how many lists; 0: until the command is stopped",
      wholeNumber(0, 999_999),
      0,
    )
    .action((options: WatchOptions) => watch(options, io));
  command("show", "shows one limiter: its numbers, and the holders of its leases")
    .argument("<key>", "as ls prints it, such as l:github", unescaped)
    .action(async (key: string, options: RedisOptions) => {
      if (!(await withRedis(options, io, (redis) => show(redis, key, options, io)))) fail();
    });

  const change = (keys: string) => (name: string, description: string, plan: Plan) => {
    const added = command(name, description)
      .argument("<key>", keys, unescaped)
      .option("--dry-run", "prints the change without making it");
    return added.action((key: string, value: number) => {
      const options = added.opts<ChangeOptions>();
      return withRedis(options, io, async (redis) => {
        await refuseDivided(redis, key);
        await make(key, await plan(redis, key, value, options), options, io);
      });
    });
  };
  addRateChanges(change("as ls prints it, such as l:github"));
  addLimitChanges(change("as ls prints it, such as c:reports"));
  addLimitKeyChanges(change("the limitKey in the code or in the rules, such as limits:github"));
}
