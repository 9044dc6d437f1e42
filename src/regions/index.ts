/**
 * `smooth-limiter/regions`: one limit over several regions, each of which decides by itself.
 *
 * Promise. No call waits for another region. Each region uses its own part of the limit; once in an interval it tells a
 * store that all regions reach, the home, how much its callers ask for, and learns which part it holds from now on, on
 * a lease. At every instant the parts of all regions add up to at most the whole limit.
 *
 * Bound. All regions together keep the bound of the algorithm for the whole limit, and the algorithms that lend (Guava's:
 * the next request pays for this one) lend in each process, with `local` once more in each region:
 *
 *   granted in t seconds <= bound(limit, t) + (processes - 1) x the largest request, where the algorithm lends
 *   smoothBursty:  burst + rate x t + processes x the largest request
 *   fixedWindow:   limit x (windows that the t seconds touch)
 *
 * There is no term for the moves of parts: see `move.ts`. And none for faults: a region that is cut off from the
 * home uses its part until the lease ends, and the reserve from then on, while the home keeps its part for it (`ledger.ts`).
 *
 * Worked example: 1000 a second, three regions, a reserve of 0.1. Each region has 33 a second whatever happens. The
 * other 900 follow the demand: if Europe asks for 800, the US for 300 and Asia for 100, Asia and the US get what they
 * ask for (67 and 267 more), and Europe the rest: 566, so 600 with its reserve. At night in Europe its part moves on.
 *
 * Where it is inexact. A process without `local` starts with a new reserve when it restarts. Windows on the epoch's grid
 * open by each region's clock. The home may lose its memory or go back in time, and members may be cut off or killed;
 * if both happen within one interval, a part can be used twice until a lease is over. If it goes back to a time before a
 * member gave its part back and became idle, no member shows it: what was used of that part can be used once more.
 *
 * The idea is that of leases of capacity in Google's Doorman; the division is that of "Cloud Control with Distributed Rate
 * Limiting" (Raghavan et al., SIGCOMM 2007), by max-min fairness.
 */
import { share } from "../algorithms/index.ts";
import { onGrid } from "../algorithms/instants.ts";
import { reportUseless } from "../algorithms/never-binds.ts";
import type { LimiterClass, RemoteLimiter } from "../api/limiter-api.ts";
import { checkLimiterOptions, type LimiterOptions } from "../api/options.ts";
import { OutageStats } from "../api/outage-stats.ts";
import {
  aboveZero,
  type Bound,
  CREATE,
  checkCreated,
  checkNumber,
  checkOptions,
  checkText,
  failCheck,
  isRecord,
} from "../ground/check.ts";
import type { Clock } from "../ground/clock.ts";
import { LimiterClosedError, readable } from "../ground/errors.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { RedisLimiter } from "../redis/index.ts";
import { checkKey, checkName, refuseStrict } from "../remote/remote-options.ts";
import { type StoreLimiter as Shared, StoreLimiter } from "../store.ts";
import { type Exchange, WHOLE } from "../stores/ledger.ts";
import {
  listPolicies,
  type NamesOf,
  type Policies,
  type PolicyList,
  renumber,
} from "../stores/policies.ts";
import { adapterOf, type RedisClient } from "../stores/redis/client.ts";
import { redisLedger } from "../stores/redis/redis-ledger.ts";
import { openPolicyState } from "../stores/state/several.ts";
import type { Store } from "../stores/store.ts";
import { PartLimiter, type Region } from "./limiter.ts";
import { Member } from "./member.ts";
import { partsOf } from "./move.ts";
import { LEAST, type MemberOptions, Part } from "./part.ts";

export type { RemoteLimiter } from "../api/limiter-api.ts";
export { LimiterClosedError, StoreUnavailableError } from "../ground/errors.ts";
export type { RedisClient } from "../stores/redis/client.ts";
export type { Store } from "../stores/store.ts";

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
  /** How often a region with more demand than its reserve talks to the home, ms. Above 0, default 1000. */
  readonly everyMs?: number | undefined;
  /** For how long a region that is cut off uses its part, ms; at least 2 × `everyMs`, default 5 × `everyMs`. */
  readonly leaseMs?: number | undefined;
  /** The prefix of all keys. Default "l:". */
  readonly prefix?: string | undefined;
}

/** A limiter of one region; the limit is that of all regions together. */
export interface RegionalLimiter<Name extends string = string> extends RemoteLimiter<Name> {
  /** The part of the limit that this process may use now, from 0 to 1; without the reserve in `local`. */
  readonly fraction: number;
  /**
   * Returns the limiter of a key: one limit for each user, address or URL, over all regions. A key whose demand stays
   * below its reserve never touches the home.
   *
   * @param key any well-formed text
   */
  for(key: string): RemoteLimiter<Name> & { readonly fraction: number };
}

interface RegionalLimiterClass extends LimiterClass<RegionalLimiter> {
  /**
   * Creates the limiter of one region.
   *
   * @param name of the limit: the same in all regions; any text but an empty one
   * @param policies a policy, or several by name, for all regions together
   * @param options see `RegionalOptions`
   * @returns the limiter; it sends nothing before its first call
   * @throws RangeError or TypeError that names the argument, its bound and the value it got
   * @example
   * const limiter = RegionalLimiter.create("api", tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 }), {
   *   home: redis,
   *   region: "eu",
   *   regions: ["eu", "us", "asia"],
   * });
   * if (!(await limiter.tryAcquire())) return tooManyRequests();
   */
  create<P extends Policies>(
    name: string,
    policies: P,
    options: RegionalOptions,
  ): RegionalLimiter<NamesOf<P>>;
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

export const RegionalLimiter = class RegionalLimiter extends PartLimiter {
  static create(name: string, policies: Policies, options: RegionalOptions) {
    return new RegionalLimiter(CREATE, new OpenRegion(name, policies, options));
  }

  private constructor(made: typeof CREATE, region: OpenRegion) {
    checkCreated("RegionalLimiter", made);
    super(region, undefined);
    this.#region = region;
  }

  readonly #region: OpenRegion;

  for(key: string): PartLimiter {
    return new PartLimiter(this.#region, checkKey("key", key));
  }

  /** Gives the parts of all keys back to the home, and ends the calls that wait. */
  override async close(): Promise<void> {
    await this.#region.close();
  }
} as unknown as RegionalLimiterClass;

class OpenRegion implements Region {
  readonly name: string;
  readonly everyMs: number;
  readonly isFair: boolean;
  readonly member: Member;
  readonly stats: OutageStats;
  readonly #options: MemberOptions;
  readonly #declared: PolicyList;
  readonly #parts = new Map<string | undefined, Part>();
  readonly #local: Shared | undefined;
  /** The fraction that the region's own store has. */
  readonly #reserved: number;
  /** No request is granted that needs a larger fraction. */
  readonly #most: number;

  constructor(name: string, policies: Policies, options: RegionalOptions) {
    this.name = checkName(name);
    this.stats = new OutageStats(name);
    checkOptions("options", options, OPTIONS);
    const { home, local, region, prefix = "l:", everyMs = 1000 } = options;
    const weights = weightsOf(options.regions);
    checkKey("region", region);
    if (!weights.has(encodeURIComponent(region))) {
      const names = [...weights.keys()].map((each) => decodeURIComponent(each));
      failCheck("region", `one of regions (${names.join(", ")})`, region, RangeError);
    }
    const reserve = checkNumber("reserve", options.reserve ?? 0.1, fromZeroToOne);
    this.everyMs = checkNumber("everyMs", everyMs, aboveZero);
    const leaseMs = checkNumber("leaseMs", options.leaseMs ?? 5 * everyMs, {
      words: `2 x everyMs (${2 * everyMs}) or more`,
      holds: (value) => value >= 2 * everyMs && value < Infinity,
    });
    const listed = listPolicies(policies);
    reportUseless(listed.names, listed.list);
    refuseStrict(listed);
    this.#declared = listed;
    const whole = allOnGrid(listed);
    this.isFair = orderIn(options) !== FIFO;
    const { maxWaiting, onFull, clock } = checkLimiterOptions({ ...pick(options), name });
    this.#reserved = reserve / weights.size;
    const reserved = this.#reserved;
    const base = local === undefined ? reserved : 0;
    const pool = Math.floor((1 - reserve) * WHOLE);
    this.#most = Math.max(base + pool / WHOLE, reserved);
    const shared = {
      ...{ prefix, maxWaiting, order: options.order },
      ...(options.clock === undefined ? {} : { clock }),
    };
    this.#local =
      local === undefined || reserve === 0
        ? undefined
        : limiterOn(local, name, this.#partOf(listed), shared);
    this.#options = {
      name,
      region,
      weights,
      policies: whole,
      basePolicies: fractionOf(whole, Math.max(LEAST, base)),
      largest: openPolicyState(fractionOf(whole, this.#most), 0, 0),
      exchange: exchangeOf(home),
      ledgerKey: `${checkText("prefix", prefix)}${name.replace(/[%[]/g, encodeURIComponent)}%regions`,
      base,
      reserved,
      pool,
      everyMs,
      leaseMs,
      clock,
      maxWaiting,
      onFull,
      order: options.order,
      stats: this.stats,
    };
    this.member = new Member(this.#options);
  }

  reserve(key: string | undefined): RemoteLimiter | undefined {
    return key === undefined ? this.#local : this.#local?.for(key);
  }

  partOf(key: string | undefined): Part {
    const known = this.#parts.get(key);
    if (known !== undefined) return known;
    this.member.greet();
    this.#sweep();
    const part = new Part(key, this.#options);
    this.#parts.set(key, part);
    return part;
  }

  /** Looks at the two keys that were looked at longest ago: so as many are forgotten as come, if they are over. */
  #sweep(): void {
    const now = this.#options.clock.now();
    for (let i = 0; i < 2; i++) {
      const [oldest] = this.#parts;
      if (oldest === undefined) return;
      const [key, part] = oldest;
      this.#parts.delete(key);
      if (key === undefined || !part.isForgettable(now)) this.#parts.set(key, part);
    }
  }

  async update(policies?: Policies): Promise<void> {
    const listed =
      policies === undefined ? this.#declared : renumber(this.#declared, listPolicies(policies));
    refuseStrict(listed);
    const whole = allOnGrid(listed);
    this.#options.policies = whole;
    this.#options.basePolicies = fractionOf(whole, Math.max(LEAST, this.#options.base));
    this.#options.largest.resize(0, partsOf(whole.list, this.#most), 0);
    for (const part of this.#parts.values()) part.renumber();
    await (policies === undefined
      ? this.#local?.resetPolicies()
      : this.#local?.update(this.#partOf(listed)));
  }

  dismiss(key: string | undefined): void {
    this.#parts.get(key)?.dismiss(new LimiterClosedError(this.name));
  }

  async close(): Promise<void> {
    const closed = this.member.close();
    for (const key of this.#parts.keys()) this.dismiss(key);
    await Promise.all([closed, this.#local?.close()]);
  }

  /** The policies of the region's own store. */
  #partOf({ names, list }: PolicyList): Readonly<Record<string, PolicyList["list"][number]>> {
    const part = Math.max(1 / WHOLE, this.#reserved);
    return Object.fromEntries(
      names.map((each, i) => [each, share(list[i] as PolicyList["list"][number], part)]),
    );
  }
}

function allOnGrid({ names, list }: PolicyList): PolicyList {
  return { names, list: list.map(onGrid) };
}

function fractionOf({ names, list }: PolicyList, fraction: number): PolicyList {
  return { names, list: partsOf(list, fraction) };
}

function pick({ maxWaiting, onFull, order, clock }: RegionalOptions): LimiterOptions {
  return { maxWaiting, onFull, order, clock };
}

/** Returns the weights by the encoded names of the regions. */
function weightsOf(regions: RegionalOptions["regions"]): ReadonlyMap<string, number> {
  const words = "the names of all regions, or weights by name";
  const entries: readonly (readonly [unknown, unknown])[] = Array.isArray(regions)
    ? regions.map((name) => [name, 1])
    : isRecord(regions)
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

function isStore(store: Store | RedisClient): store is Store {
  const { run, runScript } = Object(store) as { run?: unknown; runScript?: unknown };
  return typeof run === "function" && runScript === undefined;
}

/** @throws TypeError that names the option, if it is no client */
function adapterIn(option: string, client: RedisClient) {
  try {
    return adapterOf(client);
  } catch (cause) {
    const message = readable(cause).message.replace(
      /^redis must be/,
      `${option} must be a store, or`,
    );
    throw new TypeError(message, { cause });
  }
}

function exchangeOf(home: Store | RedisClient): Exchange {
  if (!isStore(home)) return redisLedger(adapterIn("home", home).runner);
  if (home.exchange === undefined) {
    throw new TypeError(
      "home must be a client of Redis, or what postgresStore, casStore or memoryStore returns",
    );
  }
  return (key, message) => (home.exchange as Exchange)(key, message);
}

function limiterOn(
  local: Store | RedisClient,
  name: string,
  policies: Policies,
  options: Pick<RegionalOptions, "maxWaiting" | "order"> & {
    readonly prefix: string;
    readonly clock?: Clock;
  },
): Shared {
  if (!isStore(local)) adapterIn("local", local);
  return isStore(local)
    ? StoreLimiter.create(local, name, policies, options)
    : (RedisLimiter.create(local, name, policies, options) as unknown as Shared);
}
