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
 * if both happen within one interval, or a member's interval is longer than that of the others, a part can be used twice
 * until a lease is over. If it goes back to a time before a member gave its part back and became idle, no member shows
 * it: what was used of that part can be used once more.
 *
 * The idea is that of leases of capacity in Google's Doorman; the division is that of "Cloud Control with Distributed Rate
 * Limiting" (Raghavan et al., SIGCOMM 2007), by max-min fairness.
 */
import type { LimiterClass, RemoteLimiter } from "../api/limiter-api.ts";
import { CREATE, checkCreated } from "../ground/check.ts";
import { checkKey } from "../remote/remote-options.ts";
import type { NamesOf, Policies } from "../stores/policies.ts";
import { PartLimiter } from "./limiter.ts";
import type { RegionalOptions } from "./options.ts";
import { Region } from "./region.ts";

export type { RemoteLimiter } from "../api/limiter-api.ts";
export { LimiterClosedError, StoreUnavailableError } from "../ground/errors.ts";
export type { RedisClient } from "../stores/redis/client.ts";
export type { Store } from "../stores/store.ts";
export type { RegionalOptions } from "./options.ts";

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
   * @throws RangeError or TypeError on a bad argument
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

export const RegionalLimiter = class RegionalLimiter extends PartLimiter {
  static create(name: string, policies: Policies, options: RegionalOptions) {
    return new RegionalLimiter(CREATE, new Region(name, policies, options));
  }

  private constructor(made: typeof CREATE, region: Region) {
    checkCreated("RegionalLimiter", made);
    super(region, undefined);
  }

  for(key: string): PartLimiter {
    return new PartLimiter(this.region, checkKey("key", key));
  }

  /** Gives the parts of all keys back to the home, and ends the calls that wait. */
  override async close(): Promise<void> {
    await this.region.close();
  }
} as unknown as RegionalLimiterClass;
