/** The commands that change what limiters have stored on Redis. */
import type { Command } from "commander";
import { RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { CliError, type Io, json, printable } from "../io.ts";
import { positive, wholeNumber, zeroOrMore } from "../options.ts";
import { duration } from "../words.ts";
import type { RedisOptions, Server } from "./connect.ts";
import {
  AS_STORED,
  atRate,
  declaredLimits,
  rateOf,
  requireLimitKey,
  requireRate,
  withLimiter,
} from "./entries.ts";

export interface ChangeOptions extends RedisOptions {
  readonly dryRun?: boolean;
  /** Which policy, from 1. */
  readonly policy?: number;
  /** The limit that the code declares. */
  readonly declared?: number;
}

/** What a command is going to change. */
interface Change {
  /** In words. */
  readonly plan: string;
  /** What JSON says of it, besides the key. */
  readonly facts?: Readonly<Record<string, unknown>>;
  readonly action: () => Promise<unknown>;
  /** Whether there is anything to do. Default true. */
  readonly isNeeded?: boolean;
}

/** How many may run at once. */
const places = wholeNumber(1, 999_999_999);

/** Returns what a command would change. @param value its second argument, for those that have one */
export type Plan = (
  redis: Server,
  key: string,
  value: number,
  options: ChangeOptions,
) => Promise<Change>;

/** Adds a command and its plan. */
type Add = (name: string, description: string, plan: Plan) => Command;

/** Adds the commands for limits of a rate. */
export function addRateChanges(add: Add): void {
  add(
    "set-rate",
    "sets the permits per second, for all code that declares the same numbers",
    async (redis, key, rate, { policy }) => {
      const stored = await requireRate(redis, key);
      const { declared, inForce } = stored;
      if (policy === undefined && declared.length > 1) {
        const names = declared.map(({ algorithm }, i) => `${i + 1} (${algorithm.name})`);
        throw new CliError(`${key} has several policies: add --policy ${names.join(" or ")}`);
      }
      const index = (policy ?? 1) - 1;
      const [was, now] = [declared[index], inForce[index]];
      if (was === undefined || now === undefined) {
        throw new CliError(`${key} has no policy ${index + 1}: it has ${declared.length}`);
      }
      const policies = atRate(declared, index, rate);
      return {
        plan: `${key}: from ${rateOf(now)} to ${rate} permits per second, for all code that declares ${rateOf(was)} per second; code that declares other numbers, or keeps its limit in a key (limitKey), does not follow`,
        facts: { was: rateOf(now), declared: rateOf(was), rate },
        action: () => withLimiter(redis, key, stored, (limiter) => limiter.update(policies)),
      };
    },
  )
    .argument("<rate>", "permits per second", positive)
    .option("--policy <index>", "which policy of several, from 1", wholeNumber(0, 999_999));

  add("reset-rate", "puts the declared numbers back in force", async (redis, key) => {
    const stored = await requireRate(redis, key);
    const declared = stored.declared.map(rateOf);
    const what = stored.isSet ? "back to" : "nothing is set over";
    return {
      plan: `${key}: ${what} the declared ${declared.join(" and ")} permits per second`,
      facts: { declared },
      action: () => withLimiter(redis, key, stored, (limiter) => limiter.resetPolicies()),
      isNeeded: stored.isSet,
    };
  });

  add("reset", "clears what was used, charged and paused", async (redis, key) => {
    const stored = await requireRate(redis, key);
    return {
      plan: `${key}: clears what was used, charged and paused; numbers that were set stay in force`,
      action: () => withLimiter(redis, key, stored, (limiter) => limiter.reset()),
    };
  });

  add("pause", "grants no call for that time", async (redis, key, ms) => {
    const stored = await requireRate(redis, key);
    return {
      plan: `${key}: grants no call for ${duration(ms)}; calls that were promised an instant keep it`,
      facts: { ms },
      action: () => withLimiter(redis, key, stored, (limiter) => limiter.pause(ms)),
    };
  }).argument("<ms>", "how long, ms", positive);
}

/** Adds the commands for limits of how many run at once. */
export function addLimitChanges(add: Add): void {
  const declaredOption = [
    "--declared <limit>",
    "the limit in the code, if it is not known",
    places,
  ] as const;

  add(
    "set-limit",
    "sets the number of leases, for all code that declares the same limit",
    async (redis, key, limit, options) => {
      const { declared, was } = await whichLimit(redis, key, options);
      return {
        plan: `${key}: from ${was} to ${limit} at once, for all code that declares ${declared}; running calls go on, and code that declares other numbers does not follow`,
        facts: { was, declared, limit },
        action: () => withPlaces(redis, key, declared, (limiter) => limiter.setLimit(limit)),
      };
    },
  )
    .argument("<limit>", "how many: a whole number from 1", places)
    .option(...declaredOption);

  add(
    "reset-limit",
    "puts the declared number of leases back in force",
    async (redis, key, _, options) => {
      const { declared, was } = await whichLimit(redis, key, options);
      const isNeeded = was !== declared;
      const what = isNeeded ? `from ${was} back to` : "nothing is set over";
      return {
        plan: `${key}: ${what} the declared ${declared} at once`,
        facts: { was, declared },
        action: () => withPlaces(redis, key, declared, (limiter) => limiter.resetLimit()),
        isNeeded,
      };
    },
  ).option(...declaredOption);
}

/** Adds the commands for limits that are kept in a key. */
export function addLimitKeyChanges(add: Add): void {
  add(
    "set-limit-key",
    "sets a limit that is kept in a key: the limitKey of limiters and rules",
    async (redis, key, limit) => {
      const was = await requireLimitKey(redis, key);
      const effect = limit === 0 ? "which refuse all requests" : "from their next request on";
      return {
        plan: `${key}: from ${was ?? "no limit"} to ${limit}, for all limiters with this limitKey, ${effect}`,
        facts: { was, limit },
        action: () => redis.set(key, String(limit)),
      };
    },
  ).argument("<limit>", "0 refuses all requests", zeroOrMore);

  add("reset-limit-key", "removes a limit that is kept in a key", async (redis, key) => {
    const was = await requireLimitKey(redis, key);
    const isNeeded = was !== null;
    return {
      plan: isNeeded
        ? `${key}: removes the limit ${was}; limiters with this limitKey have the limit in their code again`
        : `${key}: holds no limit, so limiters with this limitKey have the limit in their code`,
      facts: { was },
      action: () => redis.del(key),
      isNeeded,
    };
  });
}

/** Prints a change, and makes it unless it is a dry run. */
export async function make(
  key: string,
  { plan, facts, action, isNeeded = true }: Change,
  { dryRun = false, json: isJson = false }: ChangeOptions,
  io: Io,
): Promise<void> {
  const changed = isNeeded && !dryRun;
  if (!isJson) io.stdout.write(`${dryRun ? "dry run, nothing changes: " : ""}${printable(plan)}\n`);
  if (changed) await action();
  if (isJson) io.stdout.write(json({ key, ...facts, changed }));
}

/** Finds the declared limit that a command means, and the one that applies in its place. */
async function whichLimit(redis: Server, key: string, { declared }: ChangeOptions) {
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
  action: (limiter: RedisConcurrencyLimiter) => Promise<void>,
): Promise<void> {
  const limiter = RedisConcurrencyLimiter.create(redis, key, declared, AS_STORED);
  try {
    await action(limiter);
  } finally {
    await limiter.close();
  }
}
