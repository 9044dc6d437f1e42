import type { LimiterOptions } from "../api/options.ts";
import {
  aboveZero,
  type Bound,
  checkNumber,
  checkOptions,
  failCheck,
  isRecord,
} from "../ground/check.ts";
import { readable } from "../ground/errors.ts";
import { checkKey } from "../remote/remote-options.ts";
import type { Exchange } from "../stores/ledger.ts";
import { adapterOf, type RedisClient } from "../stores/redis/client.ts";
import { redisLedger } from "../stores/redis/redis-ledger.ts";
import type { Store } from "../stores/store.ts";

/** The options of `RegionalLimiter.create`. */
export interface RegionalOptions
  extends Pick<LimiterOptions, "maxWaiting" | "onFull" | "order" | "clock"> {
  /**
   * Where the regions meet: a client of Redis, or what `postgresStore`, `casStore` or `memoryStore` returns. All
   * regions must reach it, but no call waits for it. It must not evict keys. It is never closed.
   */
  readonly home: Store | RedisClient;
  /**
   * The region's own store, for several processes in a region: the region's reserve is there, and each process holds a
   * part of its own. Default: none, the region is this process.
   */
  readonly local?: Store | RedisClient | undefined;
  /** The name of this region: one of `regions`. Without `local` no two processes may have the same. */
  readonly region: string;
  /** The names of all regions, the same in each; or their weights by name, above 0: what counts when all ask for more. */
  readonly regions: readonly string[] | Readonly<Record<string, number>>;
  /**
   * The fraction of the limit that is always divided equally among the regions, so that each can start at once. From 0
   * to 1, default 0.1.
   */
  readonly reserve?: number | undefined;
  /**
   * How often a region with more demand than its reserve talks to the home, ms; the same in all processes. Above 0 and at
   * most 1e11, default 1000.
   */
  readonly everyMs?: number | undefined;
  /** For how long a region that is cut off uses its part, ms; at least 2 × `everyMs`, default 5 × `everyMs`. */
  readonly leaseMs?: number | undefined;
  /** The prefix of all keys. Default "l:". */
  readonly prefix?: string | undefined;
}

const OPTIONS = [
  "home",
  "local",
  "region",
  "regions",
  "reserve",
  "everyMs",
  "leaseMs",
  "prefix",
  "maxWaiting",
  "onFull",
  "order",
  "clock",
] as const;
const fromZeroToOne: Bound = {
  words: "a number from 0 to 1",
  holds: (value) => value >= 0 && value <= 1,
};

/** Checks the options that only regions have. */
export function checkRegionalOptions(options: RegionalOptions) {
  checkOptions("options", options, OPTIONS);
  const { region, regions, reserve = 0.1, everyMs = 1000 } = options;
  const weights = weightsOf(regions);
  checkKey("region", region);
  if (!weights.has(encodeURIComponent(region))) {
    const names = [...weights.keys()].map((each) => decodeURIComponent(each));
    failCheck("region", `one of regions (${names.join(", ")})`, region, RangeError);
  }
  checkNumber("reserve", reserve, fromZeroToOne);
  checkNumber("everyMs", everyMs, {
    words: "a number above 0 and at most 1e11",
    holds: (value) => value > 0 && value <= 1e11,
  });
  const { leaseMs = 5 * everyMs } = options;
  // to fewer digits, so that it is 0.6 rather than 0.6000000000000001
  const leastMs = Number((2 * everyMs).toPrecision(12));
  checkNumber("leaseMs", leaseMs, {
    words: `2 x everyMs (${leastMs}) or more, and below 1e12`,
    holds: (value) => value >= 2 * everyMs && value < 1e12,
  });
  return { region, weights, reserve, everyMs, leaseMs };
}

/** Returns the weights by the encoded names of the regions. */
function weightsOf(regions: RegionalOptions["regions"]): ReadonlyMap<string, number> {
  const words =
    "an array of the names of all regions, or a plain object with their weights by name";
  const entries: readonly (readonly [unknown, unknown])[] = Array.isArray(regions)
    ? Array.from(regions, (name) => [name, 1])
    : isRecord(regions) && !(Symbol.iterator in regions)
      ? Object.entries(regions)
      : failCheck("regions", words, regions);
  if (entries.length === 0) throw new RangeError(`regions must be ${words}, got none`);
  const weights = entries.map(([name, weight]): [string, number] => [
    encodeURIComponent(checkKey("each name in regions", name)) ||
      failCheck("regions", "names that are not empty", name, RangeError),
    checkNumber(`regions.${name}`, weight, aboveZero),
  ]);
  const byName = new Map(weights);
  if (byName.size < weights.length) {
    throw new RangeError(
      `regions must name each region once, got ${entries.map(([name]) => name)}`,
    );
  }
  return byName;
}

export function isStore(store: Store | RedisClient): store is Store {
  const { run, runScript } = Object(store) as { run?: unknown; runScript?: unknown };
  return typeof run === "function" && runScript === undefined;
}

const STORES = "what postgresStore, casStore or memoryStore returns";

/** @throws TypeError that names the option, if it is no client */
export function adapterIn(option: string, client: RedisClient) {
  try {
    return adapterOf(client);
  } catch (cause) {
    const message = readable(cause).message.replace(
      /^redis must be/,
      `${option} must be ${STORES}, or`,
    );
    throw new TypeError(message, { cause });
  }
}

/** Returns how messages reach the home. */
export function exchangeOf(home: Store | RedisClient): Exchange {
  if (!isStore(home)) return redisLedger(adapterIn("home", home).runner);
  if (typeof home.exchange !== "function") {
    failCheck("home", `a client of Redis, or ${STORES}`, home);
  }
  return (key, message) => (home.exchange as Exchange)(key, message);
}
