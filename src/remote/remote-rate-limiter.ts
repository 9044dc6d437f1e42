import { readPoliciesOf } from "../algorithms/index.ts";
import { repaced, type SmoothPolicy, smooth } from "../algorithms/smooth/smooth.ts";
import { RemoteLimiter } from "./remote-limiter.ts";

/** Which code follows a `setRate`, by the numbers under which the state was last used. */
export interface RateSetting {
  /**
   * `"users"`: the limiter was last used by code that declares the same numbers, in this process or
   * others, and all of that code follows. `"only-this-declaration"`: it was last used by code that
   * declares other numbers, which does not follow; only code that declares the same numbers as this
   * limiter follows. `"unknown"`: it has not been used lately, or its limit is in a key that changed.
   */
  readonly reaches: "users" | "only-this-declaration" | "unknown";
  /** With `"only-this-declaration"`: the permits per second at which the limiter was last used. */
  readonly rateInUse?: number | undefined;
}

/** The verbs that a rate limiter on a store has beside those of all limiters. */
export interface RateVerbs {
  /**
   * Returns the permits per second in force, by the last reply; before the first reply, the declared
   * number. 0 if operators have closed the limiter with `limitKey`.
   */
  getRate(): number;
  /**
   * Changes the rate from now on for every limiter that was created with this name and the same numbers,
   * until the next `setRate` or `resetRate`. Code that declares other numbers does not follow it.
   *
   * @param permitsPerSecond above 0, `Infinity` for no limit
   * @returns which code follows the new rate, as far as the store knows: see `RateSetting`
   * @throws (rejects) RangeError or TypeError; StoreUnavailableError
   * @example
   * const { reaches, rateInUse } = await limiter.setRate(10);
   * if (reaches === "only-this-declaration") console.warn(`others declare other numbers: ${rateInUse}`);
   */
  setRate(permitsPerSecond: number): Promise<RateSetting>;
  /** Restores the declared rate. */
  resetRate(): Promise<void>;
}

export class RemoteRateLimiter extends RemoteLimiter implements RateVerbs {
  getRate(): number {
    return this.isShut ? 0 : this.#policy.permitsPerSecond;
  }

  async setRate(permitsPerSecond: number): Promise<RateSetting> {
    const writtenUnder = await this.setPolicies(repaced(this.#policy, permitsPerSecond));
    if (writtenUnder === "=") return { reaches: "users" };
    if (writtenUnder === "") return { reaches: "unknown" };
    const [used] = readPoliciesOf([smooth], writtenUnder);
    return { reaches: "only-this-declaration", rateInUse: used?.numbers[0] };
  }

  async resetRate(): Promise<void> {
    await this.resetPolicies();
  }

  get #policy(): SmoothPolicy {
    const [policy] = this.policies;
    return policy as SmoothPolicy;
  }
}
