/** The commands that show what limiters have stored on Redis. */
import { setTimeout as sleep } from "node:timers/promises";
import { CliError, colorsOf, type Io, json, printable } from "../io.ts";
import { type RedisOptions, type Server, withRedis } from "./connect.ts";
import { type Entry, findKeys, PREFIXES, readEntry } from "./entries.ts";
import { describe, tableOf } from "./text.ts";

export interface ListOptions extends RedisOptions {
  readonly prefix: readonly string[];
  /** The most limiters that are listed. */
  readonly top: number;
}

export interface WatchOptions extends ListOptions {
  /** ms between two lists. */
  readonly every: number;
  /** How often the list is printed; 0: until the command is stopped. */
  readonly count: number;
}

/** How many limiters are read at once: the time-out of a command begins when it is sent, and none waits long for its turn. */
const AT_ONCE = 500;

/** Lists the limiters. */
export async function list(redis: Server, options: ListOptions, io: Io): Promise<void> {
  const { entries, more } = await readAll(redis, options);
  if (options.json) io.stdout.write(json(entries));
  else io.stdout.write(`${tableOf(entries, more, colorsOf(io, io.stdout))}\n`);
}

/** Shows one limiter. @returns whether there is one */
export async function show(
  redis: Server,
  key: string,
  { json: isJson }: RedisOptions,
  io: Io,
): Promise<boolean> {
  const entry = await readEntry(redis, key);
  const nothing = `${printable(key)}: nothing is stored; "redis ls" lists the keys`;
  const text = isJson ? json(entry ?? null) : `${entry ? describe(entry) : nothing}\n`;
  io.stdout.write(text);
  return entry !== undefined;
}

/** Lists the limiters again and again while its output is read, and connects again after an outage. */
export async function watch(options: WatchOptions, io: Io): Promise<void> {
  const colors = colorsOf(io, io.stdout);
  let looks = 0;
  let isRead = true;
  io.stdout.once("error", () => {
    isRead = false;
  });
  const isOver = () => looks === options.count || !isRead;
  const print = (facts: object, text: string) => {
    looks += 1;
    if (options.json) {
      io.stdout.write(`${JSON.stringify({ atMs: Date.now(), ...facts })}\n`);
      return;
    }
    // to the top left corner, and clears what is below
    if (io.stdout.isTTY) io.stdout.write("\u001b[H\u001b[J");
    io.stdout.write(`${new Date().toISOString().slice(11, 19)} UTC\n${text}\n`);
  };
  for (;;) {
    try {
      return await withRedis(options, io, async (redis) => {
        for (;;) {
          const { entries, more } = await readAll(redis, options);
          print({ limiters: entries }, tableOf(entries, more, colors));
          if (isOver()) return;
          await sleep(options.every);
        }
      });
    } catch (error) {
      // a wrong address is an error at once
      if (looks === 0 || !(error instanceof CliError)) throw error;
      print({ error: error.message }, colors.red(`${printable(error.message)}; trying again`));
      if (isOver()) throw error;
      await sleep(options.every);
    }
  }
}

async function readAll(
  redis: Server,
  { prefix, top }: ListOptions,
): Promise<{ entries: readonly Entry[]; more: number }> {
  const keys = await findKeys(redis, prefix.length > 0 ? prefix : PREFIXES);
  const entries: Entry[] = [];
  for (let from = 0; from < Math.min(top, keys.length); from += AT_ONCE) {
    const some = keys.slice(from, Math.min(top, from + AT_ONCE));
    const found = await Promise.all(some.map((key) => readEntry(redis, key)));
    entries.push(...found.filter((entry) => entry !== undefined));
  }
  return { entries, more: Math.max(0, keys.length - top) };
}
