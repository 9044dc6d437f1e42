/** The option `limit` of a limit in one call: which limiter a request's limit means. */
import { type Clock, type Decision, KeyedLimiter, type Limiter } from "smooth-limiter";
import { warn } from "../actors/warn.ts";
import { atLeastZero, show } from "../ground/check.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import {
  isByKey,
  isLimiter,
  isPolicy,
  type LimiterByKey,
  type RequestLimit,
} from "./limit-options.ts";

/** Makes a scaled cost smaller than its rounding error: a limit of 3 out of 100 lets 3 pass and not 2. */
const ROUNDING = 1 - 2 ** -30;

/** How many policies from `limit` have counts at a time. */
const MOST_POLICIES = 1000;

/** So few permits that every limiter can be asked for them. */
const LEAST = 1e-6;

export class LimitOverride {
  readonly #limiter: Limiter | LimiterByKey;
  readonly #clock: Clock;
  readonly #byPolicy = new Map<string, KeyedLimiter>();
  /** The limiter's limit when it was last seen; Infinity where there are several. */
  #own: number | undefined;

  constructor(limiter: Limiter | LimiterByKey, clock: Clock) {
    this.#limiter = limiter;
    this.#clock = clock;
  }

  /** Returns a value of the option `limit`, checked. */
  read(value: unknown): RequestLimit {
    if (value === undefined || value === null) return undefined;
    if (typeof value === "number") return atLeastZero("limit", value);
    if (isLimiter(value)) return value;
    if (!isPolicy(value)) {
      throw new TypeError(`limit must be a number, a policy or a limiter, got ${show(value)}`);
    }
    if (Symbol.asyncDispose in this.#limiter) {
      throw new TypeError(
        "limit is a policy, which is counted in this process, but the limiter is shared: give a limiter on the same store as limit",
      );
    }
    return value;
  }

  sourceOf(limit: Exclude<RequestLimit, number | null | undefined>): Limiter | LimiterByKey {
    if (!isPolicy(limit)) return limit;
    const { algorithm, numbers } = limit;
    const id = `${algorithm.name} ${numbers.join(" ")}`;
    const keys = this.#byPolicy.get(id) ?? KeyedLimiter.create(limit, { clock: this.#clock });
    // the latest is the last, and the first is forgotten when there are too many
    this.#byPolicy.delete(id);
    this.#byPolicy.set(id, keys);
    const [first = id] = this.#byPolicy.keys();
    if (this.#byPolicy.size > MOST_POLICIES) this.#byPolicy.delete(first);
    return keys;
  }

  /**
   * Returns how many permits of the limiter a permit under another limit is; undefined if a number cannot
   * replace the limiter's own limit.
   */
  ratioOf(limit: number, key: string): MaybePromise<number | undefined> {
    return chain(this.#ownLimit(key), (own) =>
      own > 0 && own < Infinity ? (own / limit) * ROUNDING : undefined,
    );
  }

  /** Notes the limiter's own limit as a decision shows it: it may have been changed. */
  note(decision: Decision | undefined): void {
    if (decision?.waitMs !== Infinity) this.#own = decision?.limit;
  }

  forget(): void {
    this.#own = undefined;
  }

  #ownLimit(key: string): MaybePromise<number> {
    if (this.#own !== undefined) return this.#own;
    const limiter = isByKey(this.#limiter) ? this.#limiter.for(key) : this.#limiter;
    return chain(limiter.peek(LEAST), ({ limit, policies }) => {
      if (Object.keys(policies).length === 1) return limit;
      this.#own = Infinity;
      warn(
        "SMOOTH_LIMITER_LIMIT_IGNORED",
        "limit is a number, but the limiter has several policies, so their own numbers apply: give a limiter as limit",
      );
      return Infinity;
    });
  }
}
