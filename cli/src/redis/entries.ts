/** Finds what limiters have stored on a Redis server, and the current state of each. */
import type { Policy } from "smooth-limiter";
import {
  RedisLimiter,
  type RemoteLimiter,
  readStored,
  readStoredLeases,
  readStoredParts,
  type StoredLeases,
  type StoredLimiter,
  type StoredParts,
} from "smooth-limiter/redis";
import { CliError } from "../io.ts";
import { clockOf, mastersOf, type Server } from "./connect.ts";

/** The prefixes of rate limiters, of concurrency limiters, and of the gateway's rules. */
export const PREFIXES = ["l:", "c:", "g:"];

/** One policy of a rate limiter. */
export interface PolicyEntry {
  readonly algorithm: string;
  /** Permits per second in the long run: those that the code declares, and those in force. */
  readonly declaredRate: number;
  readonly rate: number;
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
}

interface Keyed {
  readonly key: string;
  /** When it was read by the clock of its server, which wrote the other times. Unix time in ms. */
  readonly nowMs: number;
}

export interface RateEntry extends Keyed {
  readonly kind: "rate";
  readonly policies: readonly PolicyEntry[];
  /** Whether other numbers were set over the declared ones. */
  readonly isSet: boolean;
  /** How long a request for one permit would have to wait, ms; `null`: waiting does not help. */
  readonly waitMs: number | null;
  /** When it was last used, Unix time in ms. */
  readonly writtenMs: number;
}

export interface ConcurrencyEntry extends Keyed, StoredLeases {
  readonly kind: "concurrency";
}

/** How regions divide a limit. */
export interface RegionsEntry extends Keyed, StoredParts {
  readonly kind: "regions";
}

/** A value that no limiter has written. */
export interface ForeignEntry extends Keyed {
  readonly kind: "foreign";
  readonly why: string;
}

export type Entry = RateEntry | ConcurrencyEntry | RegionsEntry | ForeignEntry;

/** For limiters under keys as they are. The client ends commands without an answer: `--timeout`. */
export const AS_STORED = { prefix: "", timeoutMs: 3_600_000 };

/** A limit that is divided among regions; in the name of another limiter "%" is encoded. */
const DIVIDED = /^[^[]*%regions(\[|$)/;

/** Lists the keys with these prefixes, with SCAN: the server is never blocked. */
export async function findKeys(redis: Server, prefixes: readonly string[]): Promise<string[]> {
  const keys = new Set<string>();
  for (const prefix of prefixes) {
    const match = `${prefix.replace(/[\\*?[\]]/g, "\\$&")}*`;
    for (const master of mastersOf(redis)) {
      for await (const page of master.scanStream({ match, count: 500 })) {
        for (const key of page as string[]) keys.add(key);
      }
    }
  }
  // the processes of `instances: "auto"`, and when a home of regions was created, are no limiters
  return [...keys].filter((key) => !/^[^[]*%(processes|regions)$/.test(key)).sort();
}

/** @returns undefined if there is nothing under the key, or no longer */
export async function readEntry(redis: Server, key: string): Promise<Entry | undefined> {
  const [type, nowMs] = await Promise.all([redis.type(key), clockOf(redis, key)]);
  if (type === "none") return undefined;
  const keyed: Keyed = { key, nowMs };
  try {
    if (type === "string" && DIVIDED.test(key)) {
      const text = await redis.get(key);
      return text === null ? undefined : { kind: "regions", ...keyed, ...readStoredParts(text) };
    }
    if (type === "string") {
      const stored = await readRate(redis, key);
      return stored && (await rateEntry(redis, keyed, stored));
    }
    if (type !== "zset") return { kind: "foreign", ...keyed, why: `a value of type ${type}` };
    const members = await redis.zrange(key, "0", "-1", "WITHSCORES");
    return { kind: "concurrency", ...keyed, ...readStoredLeases(members) };
  } catch (error) {
    if (!isForeign(error)) throw error;
    return { kind: "foreign", ...keyed, why: error.message };
  }
}

/**
 * What says that no limiter has written a value: the readers of stored values, and Redis, of a value of another type
 * or one that breaks the script.
 */
const FOREIGN =
  /no limiter has written|WRONGTYPE|bad argument #|attempt to (?:compare|concatenate|index|perform) /;

/** Whether an error says that no limiter has written a value, and not that it could not be read. */
function isForeign(error: unknown): error is Error {
  // the readers and limiters of this process refuse numbers
  if (error instanceof TypeError || error instanceof RangeError) return true;
  if (!(error instanceof Error)) return false;
  const { code } = error as NodeJS.ErrnoException;
  return code === "PERMITS_EXCEED_CAPACITY" || FOREIGN.test(error.message);
}

/** @throws Error if no limiter has written the value */
async function readRate(redis: Server, key: string): Promise<StoredLimiter | undefined> {
  const bytes = await redis.getBuffer(key);
  return bytes === null ? undefined : readStored(bytes);
}

async function rateEntry(redis: Server, keyed: Keyed, stored: StoredLimiter): Promise<RateEntry> {
  const { declared, inForce, isSet, writtenMs } = stored;
  const standing = await withLimiter(redis, keyed.key, stored, (limiter) => limiter.peek());
  // the limiter names its policies by their indices, which come in order
  const policies = Object.values(standing.policies).map((status, i): PolicyEntry => {
    const policy = inForce[i] as Policy;
    const { limit, remaining, resetMs } = status;
    return {
      algorithm: policy.algorithm.name,
      declaredRate: rateOf(declared[i] ?? policy),
      rate: rateOf(policy),
      ...{ limit, remaining, resetMs },
    };
  });
  const waitMs = Number.isFinite(standing.waitMs) ? standing.waitMs : null;
  return { kind: "rate", ...keyed, policies, isSet, waitMs, writtenMs };
}

/** How many permits come back in a second, from what the algorithm promises in the long run. */
export function rateOf(policy: Policy): number {
  const { algorithm } = policy;
  const span = 1e15;
  const rate = ((algorithm.bound(policy, span, 1) - algorithm.bound(policy, 0, 1)) / span) * 1e6;
  return Number(rate.toPrecision(6));
}

/**
 * Refuses a key under which regions divide a limit, even while nothing is stored there: a value that another command
 * had written would keep the regions from their home. Concurrency limiters, whose names may look like it, store sets.
 */
export async function refuseDivided(redis: Server, key: string): Promise<void> {
  if (!DIVIDED.test(key)) return;
  const type = await redis.type(key);
  // a limit that was written there by mistake: it may be removed
  if (
    type === "zset" ||
    (type === "string" && Number.isFinite(Number((await redis.get(key)) ?? Number.NaN)))
  )
    return;
  throw new CliError(`${key}: it says how regions divide a limit, whose numbers are in their code`);
}

/** The stored numbers of a rate limiter, for a command that changes it. */
export async function requireRate(redis: Server, key: string): Promise<StoredLimiter> {
  const type = await redis.type(key);
  if (type === "zset") {
    throw new CliError(
      `${key} limits how many run at once: it has no rate, and its leases expire by themselves. See: redis set-limit`,
    );
  }
  if (type !== "none" && type !== "string") throw new CliError(`${key} holds no limiter: ${type}`);
  const stored = await readRate(redis, key).catch((error: unknown) => {
    if (!isForeign(error)) throw error;
    throw new CliError(`${key} holds no limiter: ${error.message}`);
  });
  if (stored !== undefined) return stored;
  throw new CliError(
    `${key}: nothing is stored, so the declared numbers are unknown: a limiter is ` +
      "stored with its first call, and expires when it is idle. See: redis ls",
  );
}

/** The numbers that the code of a concurrency limiter is known to declare. */
export async function declaredLimits(redis: Server, key: string): Promise<StoredLeases> {
  const entry = await readEntry(redis, key);
  if (entry === undefined) return { held: [], waiting: [], limits: [] };
  if (entry.kind === "concurrency") return entry;
  const why =
    entry.kind === "foreign"
      ? `it holds no limiter: ${entry.why}; for a limit that is kept in a key, see: redis set-limit-key`
      : "it limits a rate. See: redis set-rate";
  throw new CliError(`${key} does not limit how many run at once: ${why}`);
}

/** Reads a limit that operators keep in a key: `null` if the key is absent. */
export async function requireLimitKey(redis: Server, key: string): Promise<number | null> {
  const type = await redis.type(key);
  const text = type === "string" ? await redis.get(key) : null;
  if (type === "none") return null;
  const limit = text?.trim() ? Number(text) : Number.NaN;
  if (limit >= 0 && limit < Infinity) return limit;
  throw new CliError(
    `${key} holds no limit, which is a number as text, but ${type === "string" ? "another text" : `a ${type}`}`,
  );
}

/** Calls a function with the limiter of a key, under the numbers that its code declares. */
export async function withLimiter<Result>(
  redis: Server,
  key: string,
  { declared, isKeptInKey }: StoredLimiter,
  action: (limiter: RemoteLimiter) => Promise<Result>,
): Promise<Result> {
  // a limiter for a key has its name, a bracket and the key; brackets of the name are encoded
  const [, encoded = "", own] = /^([^[]*)(?:\[(.*))?$/s.exec(key) ?? [];
  const name = encoded.replaceAll("%5B", "[").replaceAll("%25", "%");
  const policies = Object.fromEntries(declared.entries());
  // a state holds no limit: while numbers are set over it, which key holds the limit does not matter
  const limitKey = Object.fromEntries(
    isKeptInKey.flatMap((isKept, i) => (isKept ? [[i, key]] : [])),
  );
  const limiter = RedisLimiter.create(redis, name, policies, { ...AS_STORED, limitKey });
  try {
    return await action(own === undefined ? limiter : limiter.for(own));
  } finally {
    await limiter.close();
  }
}

/** Returns the same policies, one of them with another rate. The burst changes in proportion. */
export function atRate(policies: readonly Policy[], index: number, rate: number) {
  const changed = policies.map((policy, i) => (i === index ? scaled(policy, rate) : policy));
  return Object.fromEntries(changed.entries());
}

function scaled(policy: Policy, rate: number): Policy {
  const { algorithm, numbers } = policy;
  const factor = rate / rateOf(policy);
  const isPace = algorithm.name === "smooth";
  const permits = (number: number) => (isPace ? rate : Number((number * factor).toPrecision(12)));
  return algorithm.policy(
    numbers.map((number, at) => (algorithm.permitsAt.includes(at) ? permits(number) : number)),
  );
}
