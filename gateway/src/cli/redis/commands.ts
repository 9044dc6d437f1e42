/** The commands on what limiters have stored on Redis. */
import { setTimeout as sleep } from "node:timers/promises";
import { RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { CliError, colorsOf, type Io, printable } from "../io.ts";
import { duration } from "../words.ts";
import { type Server, withRedis } from "./connect.ts";
import {
  atRate,
  declaredLimits,
  type Entry,
  findKeys,
  PREFIXES,
  rateOf,
  readEntry,
  requireLimitKey,
  requireRate,
  withLimiter,
} from "./entries.ts";
import { describe, tableOf } from "./text.ts";

export interface RedisOptions {
  readonly url?: string;
  readonly json?: boolean;
}

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

export interface ChangeOptions extends RedisOptions {
  readonly dryRun?: boolean;
}

export interface SetRateOptions extends ChangeOptions {
  /** Which policy, from 1. */
  readonly policy?: number;
}

export interface SetLimitOptions extends ChangeOptions {
  /** The limit that the code declares. */
  readonly declared?: number;
}

/** Lists the limiters. */
export function list(options: ListOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const { entries, more } = await readAll(redis, options);
    if (options.json) io.stdout.write(json(entries));
    else io.stdout.write(`${tableOf(entries, more, colorsOf(io, io.stdout))}\n`);
    return 0;
  });
}

/** Shows one limiter: exit code 1 if there is none. */
export function show(key: string, options: RedisOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const entry = await readEntry(redis, key);
    if (options.json) io.stdout.write(json(entry ?? null));
    else
      io.stdout.write(
        `${entry ? describe(entry, Date.now()) : `${printable(key)}: nothing is stored; "redis ls" lists the keys`}\n`,
      );
    return entry === undefined ? 1 : 0;
  });
}

/** Lists the limiters again and again, and connects again after an outage. */
export async function watch(options: WatchOptions, io: Io): Promise<number> {
  const colors = colorsOf(io, io.stdout);
  let looks = 0;
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
      return await withRedis(options.url, io, async (redis) => {
        for (;;) {
          const { entries, more } = await readAll(redis, options);
          print({ limiters: entries }, tableOf(entries, more, colors));
          if (looks === options.count) return 0;
          await sleep(options.every);
        }
      });
    } catch (error) {
      // a wrong address is an error at once
      if (looks === 0 || !(error instanceof CliError)) throw error;
      print({ error: error.message }, colors.red(`${printable(error.message)}; trying again`));
      if (looks === options.count) throw error;
      await sleep(options.every);
    }
  }
}

/** Sets the permits per second for all code that declares the same numbers. */
export function setRate(
  key: string,
  rate: number,
  options: SetRateOptions,
  io: Io,
): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const stored = await requireRate(redis, key);
    const { declared, inForce } = stored;
    if (options.policy === undefined && declared.length > 1) {
      const names = declared.map(({ algorithm }, i) => `${i + 1} (${algorithm.name})`);
      throw new CliError(`${key} has several policies: add --policy ${names.join(" or ")}`);
    }
    const index = (options.policy ?? 1) - 1;
    const [was, now] = [declared[index], inForce[index]];
    if (was === undefined || now === undefined) {
      throw new CliError(`${key} has ${declared.length} policies: --policy ${index + 1} is none`);
    }
    const plan = `${key}: from ${rateOf(now)} to ${rate} permits per second, for all code that declares ${rateOf(was)} per second; code that declares other numbers, or keeps its limit in a key (limitKey), does not follow`;
    const policies = atRate(declared, index, rate);
    return change(plan, { key, was: rateOf(now), declared: rateOf(was), rate }, options, io, () =>
      withLimiter(redis, key, stored, (limiter) => limiter.update(policies)),
    );
  });
}

/** Puts the declared numbers back in force. */
export function resetRate(key: string, options: ChangeOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const stored = await requireRate(redis, key);
    const declared = stored.declared.map(rateOf);
    const plan = stored.isSet
      ? `${key}: back to the declared ${declared.join(" and ")} permits per second`
      : `${key}: nothing is set over the declared ${declared.join(" and ")} permits per second`;
    return change(
      plan,
      { key, declared },
      options,
      io,
      () => withLimiter(redis, key, stored, (limiter) => limiter.resetPolicies()),
      stored.isSet,
    );
  });
}

/** Forgets what was used, charged and paused. */
export function reset(key: string, options: ChangeOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const stored = await requireRate(redis, key);
    const plan = `${key}: clears what was used, charged and paused; numbers that were set stay in force`;
    return change(plan, { key }, options, io, () =>
      withLimiter(redis, key, stored, (limiter) => limiter.reset()),
    );
  });
}

/** Grants no call for that time. */
export function pause(key: string, ms: number, options: ChangeOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const stored = await requireRate(redis, key);
    const plan = `${key}: grants no call for ${duration(ms)}; calls that were promised an instant keep it`;
    return change(plan, { key, ms }, options, io, () =>
      withLimiter(redis, key, stored, (limiter) => limiter.pause(ms)),
    );
  });
}

/** Sets another limit of how many run at once, for all code that declares the same limit. */
export function setLimit(
  key: string,
  limit: number,
  options: SetLimitOptions,
  io: Io,
): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const { declared, was } = await whichLimit(redis, key, options);
    const plan = `${key}: from ${was} to ${limit} at once, for all code that declares ${declared}; running calls go on, and code that declares other numbers does not follow`;
    return change(plan, { key, was, declared, limit }, options, io, () =>
      withPlaces(redis, key, declared, (limiter) => limiter.setLimit(limit)),
    );
  });
}

/** Puts the declared limit of how many run at once back in force. */
export function resetLimit(key: string, options: SetLimitOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const { declared, was } = await whichLimit(redis, key, options);
    const plan =
      was === declared
        ? `${key}: nothing is set over the declared ${declared} at once`
        : `${key}: from ${was} back to the declared ${declared} at once`;
    return change(
      plan,
      { key, was, declared },
      options,
      io,
      () => withPlaces(redis, key, declared, (limiter) => limiter.resetLimit()),
      was !== declared,
    );
  });
}

/** Finds the declared limit that a command means, and the one that applies in its place. */
async function whichLimit(redis: Server, key: string, { declared }: SetLimitOptions) {
  const { held, waiting, limits } = await declaredLimits(redis, key);
  const known = [...new Set([...held, ...waiting, ...limits].map((each) => each.declared))];
  const [only] = known.sort((a, b) => a - b);
  const found = declared ?? (known.length === 1 ? only : undefined);
  if (found === undefined) {
    throw new CliError(
      known.length === 0
        ? `${key}: no lease is held, so no code is known to declare a limit: add --declared and the limit in the code`
        : `${key}: code declares different limits: add --declared ${known.join(" or ")}`,
    );
  }
  return { declared: found, was: limits.find((each) => each.declared === found)?.inForce ?? found };
}

async function withPlaces(
  redis: Server,
  key: string,
  declared: number,
  deed: (limiter: RedisConcurrencyLimiter) => Promise<void>,
): Promise<void> {
  const limiter = RedisConcurrencyLimiter.create(redis, key, declared, { prefix: "" });
  try {
    await deed(limiter);
  } finally {
    await limiter.close();
  }
}

/** Sets a limit that is kept in a key. */
export function setLimitKey(
  key: string,
  limit: number,
  options: ChangeOptions,
  io: Io,
): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const was = await requireLimitKey(redis, key);
    const effect = limit === 0 ? "which refuse all requests" : "from their next request on";
    const plan = `${key}: from ${was ?? "no limit"} to ${limit}, for all limiters with this limitKey, ${effect}`;
    return change(plan, { key, was, limit }, options, io, async () => {
      await redis.set(key, String(limit));
    });
  });
}

/** Removes a limit that is kept in a key. */
export function resetLimitKey(key: string, options: ChangeOptions, io: Io): Promise<number> {
  return withRedis(options.url, io, async (redis) => {
    const was = await requireLimitKey(redis, key);
    const plan =
      was === null
        ? `${key}: holds no limit, so limiters with this limitKey have the limit in their code`
        : `${key}: removes the limit ${was}; limiters with this limitKey have the limit in their code again`;
    return change(
      plan,
      { key, was },
      options,
      io,
      async () => {
        await redis.del(key);
      },
      was !== null,
    );
  });
}

/**
 * Prints what it does, and does it unless it is a dry run.
 *
 * @param isNeeded whether there is anything to do
 */
async function change(
  plan: string,
  facts: Readonly<Record<string, unknown>>,
  { dryRun = false, json: isJson = false }: ChangeOptions,
  io: Io,
  deed: () => Promise<void>,
  isNeeded = true,
): Promise<number> {
  const changed = isNeeded && !dryRun;
  if (!isJson) io.stdout.write(`${dryRun ? "dry run, nothing changes: " : ""}${printable(plan)}\n`);
  if (changed) await deed();
  if (isJson) io.stdout.write(json({ ...facts, changed }));
  return 0;
}

async function readAll(
  redis: Server,
  { prefix, top }: ListOptions,
): Promise<{ entries: readonly Entry[]; more: number }> {
  const keys = await findKeys(redis, prefix.length > 0 ? prefix : PREFIXES);
  const found = await Promise.all(keys.slice(0, top).map((key) => readEntry(redis, key)));
  const entries = found.filter((entry) => entry !== undefined);
  return { entries, more: Math.max(0, keys.length - top) };
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
