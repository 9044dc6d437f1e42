/** Reads what limiters have stored in Redis, for tools. */
import type { Policy } from "../algorithms/algorithm.ts";
import { readPolicies } from "../algorithms/index.ts";
import { failCheck } from "../ground/check.ts";
import { WHOLE } from "../stores/ledger.ts";
import { readLedger } from "../stores/ledger-text.ts";
import { decodeState } from "../stores/state/bytes.ts";

/** What a `RedisLimiter` or `RedisRateLimiter` has stored under its key. */
export interface StoredLimiter {
  /** The policies that its code declares. Their names are not stored. */
  readonly declared: readonly Policy[];
  /** The policies that apply: the declared ones, or those that were set over them at run time. */
  readonly inForce: readonly Policy[];
  /** Whether other numbers were set over the declared ones: `setRate`, `update`. */
  readonly isSet: boolean;
  /**
   * For each policy, whether the number was set over a limit that is kept in a key (`limitKey`). `declared`
   * is then the number for an absent key. Not known while nothing is set.
   */
  readonly isKeptInKey: readonly boolean[];
  /** When the state was written, Unix time in ms. */
  readonly writtenMs: number;
}

/**
 * Reads the state of a limiter. To read its current values or change it, create a limiter with the
 * declared policies.
 *
 * @param bytes the value under the limiter's key
 * @returns the policies that its code declares, and those that apply
 * @throws TypeError if it is not bytes, such as `null` for a key that does not exist, or the text that
 *   `redis.get` returns; Error if no limiter has written these bytes
 * @example
 * const bytes = await redis.getBuffer("l:github");
 * if (bytes === null) throw new Error("it has not been used lately");
 * const { declared } = readStored(bytes);
 * const limiter = RedisLimiter.create(redis, "github", Object.fromEntries(declared.entries()));
 * console.log(await limiter.peek());
 */
export function readStored(bytes: Uint8Array): StoredLimiter {
  // not `instanceof`: in Jest a Buffer is of another realm
  if (!ArrayBuffer.isView(bytes)) {
    failCheck("bytes", "a Uint8Array, as redis.getBuffer(key) of ioredis returns", bytes);
  }
  const { base, last, numbers, settings } = decodeState(bytes);
  const pairs = settings.map((setting) => setting.split("=") as [string, string]);
  // the numbers of the last write: those of a setting, or declared ones, for which one may exist now
  const [declared, set] = pairs.find((pair) => pair.includes(numbers)) ?? [numbers, undefined];
  return {
    declared: readPolicies(declared.replace(KEPT_IN_KEY, "$1")),
    inForce: readPolicies(set ?? declared),
    isSet: set !== undefined,
    isKeptInKey: declared.split("\n").map((line) => line.search(KEPT_IN_KEY) >= 0),
    writtenMs: (base + last) / 1000,
  };
}

/** A limit that is kept in a key: the number for an absent key, and the index of the key. */
const KEPT_IN_KEY = /\$(\S+?)@\d+/g;

/** A lease that a process holds, or waits for. */
export interface StoredLease {
  /** The id of the process, one for each limiter object. */
  readonly process: string;
  /** When it lapses unless the process renews it, Unix time in ms. */
  readonly lapsesMs: number;
  /** The limit that the code of this process declares. */
  readonly declared: number;
  /** How many slots it holds, or waits for. */
  readonly slots: number;
}

/** What a `RedisConcurrencyLimiter` has stored under its key. */
export interface StoredLeases {
  /** The leases that callers hold. */
  readonly held: readonly StoredLease[];
  /** The tickets of callers that wait for a lease. */
  readonly waiting: readonly StoredLease[];
  /** The limits that were set at run time: for code that declares one number, the number that applies. */
  readonly limits: readonly { readonly declared: number; readonly inForce: number }[];
}

/** The scores of `concurrency.lua`. */
const LAPSE = 1e15;

/**
 * Reads the leases of a concurrency limiter.
 *
 * @param members the members of the sorted set under its key with their scores, as
 *   `ZRANGE key 0 -1 WITHSCORES` returns them: a list that alternates
 * @returns who holds leases, who waits, and the limits that were set
 * @throws TypeError if a member is not text, such as the objects of node-redis' `zRangeWithScores`; Error if
 *   another program has written a member
 * @example
 * const { held } = readStoredLeases(await redis.zrange("c:reports", 0, -1, "WITHSCORES"));
 */
export function readStoredLeases(members: readonly string[]): StoredLeases {
  const held: StoredLease[] = [];
  const waiting: StoredLease[] = [];
  const limits: { declared: number; inForce: number }[] = [];
  for (let i = 0; i + 1 < members.length; i += 2) {
    const [member = "", score = NaN] = [members[i], Number(members[i + 1])];
    if (typeof member !== "string") {
      failCheck("members", "a list of text, as ZRANGE key 0 -1 WITHSCORES returns", member);
    }
    const [kind, text] = [member[0], member.slice(1)];
    if (kind === "l" && LEASE.test(text)) held.push(leaseOf(text, score));
    else if (kind === "e" && LEASE.test(text)) waiting.push(leaseOf(text, score - LAPSE));
    else if (kind === "s" && /^\d+=\d+$/.test(text)) {
      const [declared = NaN, inForce = NaN] = text.split("=").map(Number);
      limits.push({ declared, inForce });
    } else if (!(kind === "q" && LEASE.test(text)) && !(kind === "m" && FURTHER_SLOT.test(text))) {
      throw new Error(`a member that no limiter has written: ${JSON.stringify(member)}`);
    }
  }
  return { held, waiting, limits };
}

/** An id: lease time, declared limit, process and number; and slots, if they are several. */
const LEASE = /^[^:]+:\d+:[^:]+:\d+(:\d+)?$/;
const FURTHER_SLOT = /^[^:]+:\d+:[^:]+:\d+:\d+:\d+$/;

function leaseOf(id: string, lapsesMs: number): StoredLease {
  const [, declared, process = "", , slots = 1] = id.split(":");
  return { process, lapsesMs, declared: Number(declared), slots: Number(slots) };
}

/** What a region, or one of its processes, has of a limit, as fractions of the whole limit; without its reserve. */
export interface StoredPart {
  /** The name of the region. */
  readonly region: string;
  /** The id of the process, one for each limiter object. */
  readonly process: string;
  /** The fraction on lease that the process knows of. */
  readonly held: number;
  /** The fraction that it learns of with one of its next messages. */
  readonly coming: number;
  /** How much it asks for beyond its reserve. */
  readonly demand: number;
  /** When the lease is over unless the process renews it, Unix time in ms. */
  readonly lapsesMs: number;
}

/** How the regions of a `RegionalLimiter` divide a limit. */
export interface StoredParts {
  /** What each process holds, in no particular order. */
  readonly parts: readonly StoredPart[];
  /** Until then no process gets more than it has, Unix time in ms: this Redis is new as home, or has lost data. */
  readonly closedUntilMs: number;
}

/**
 * Reads how regions divide a limit, from the Redis that is their home.
 *
 * @param text the value under `<prefix><name>%regions[`, with the key of `.for(key)` behind it
 * @returns what each process holds
 * @throws TypeError if no limiter has written this text, such as `null` for a key that does not exist
 * @example
 * const text = await redis.get("l:api%regions[");
 * if (text === null) throw new Error("no region has more than its reserve");
 * for (const { region, held } of readStoredParts(text).parts) console.log(region, held);
 */
export function readStoredParts(text: string): StoredParts {
  if (typeof text !== "string") failCheck("text", "a string, as redis.get(key) returns", text);
  const { rows, closed, last } = readLedger(text);
  // a member whose lease is over uses nothing of what is kept for it
  const leased = rows.filter(({ lapse }) => lapse > last);
  const parts = leased.map(({ region, id, held, gift, promised, demand, lapse }) => ({
    region: decodeURIComponent(region),
    process: id,
    held: held / WHOLE,
    coming: (gift + promised) / WHOLE,
    demand: demand / WHOLE,
    lapsesMs: lapse,
  }));
  return { parts, closedUntilMs: closed };
}
