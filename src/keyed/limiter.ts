/** A limiter for each key, all under the same policies. */

import type {
  Decision,
  LocalLimiter,
  LocalReservation,
  PermitsOnly,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import { checkTryOptions, isTryOptions } from "../api/options.ts";
import { asParticipant, type Combinable, type LocalAsked } from "../api/participant.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import type { Counted, LimiterStats } from "../api/stats.ts";
import { CREATE, checkCreated, checkText } from "../ground/check.ts";
import { TooManyKeysError } from "../ground/errors.ts";
import type { Permits } from "../ground/permits.ts";
import type { NamesOf, Policies } from "../stores/policies.ts";
import { type KeyedLimiterOptions, KeyTable } from "./table.ts";

/** A limiter for each key. */
export class KeyedLimiter<Name extends string = string> implements Counted {
  readonly #keys: KeyTable;

  /**
   * Creates a limiter for each key: each user, address or URL.
   *
   * @param policies a policy, or several by name; the same for every key
   * @param options `{ maxKeys, whenFull, maxWaiting, onFull, order, clock, name }`; `maxWaiting` and
   *   `order` apply to each key
   * @returns the limiters: `for(key)` returns one
   * @throws RangeError or TypeError on a bad argument
   * @example
   * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
   * if (!users.for(user).tryAcquire()) return tooManyRequests();
   */
  static create<P extends Policies>(
    policies: P,
    options: KeyedLimiterOptions = {},
  ): KeyedLimiter<NamesOf<P>> {
    return new KeyedLimiter(CREATE, policies, options);
  }

  private constructor(made: typeof CREATE, policies: Policies, options: KeyedLimiterOptions) {
    checkCreated("KeyedLimiter", made);
    this.#keys = new KeyTable(policies, options);
  }

  /**
   * How many keys have a state now: at most `maxKeys`. A key has a state from its first permit on.
   * A state that no longer matters counts until a later call finds and drops it.
   */
  get size(): number {
    return this.#keys.states.size;
  }

  /** The counters of all keys together. */
  get stats(): LimiterStats {
    return { ...this.#keys.callStats.counts };
  }

  /**
   * Returns the limiter of a key. You may keep it: it holds the key, not the state. If there is no
   * room for a new key (with `whenFull: "refuse"`, or while all keys have waiters), `tryAcquire`
   * returns false, `decide` returns a refusal with `waitMs` Infinity, and the other verbs throw a
   * TooManyKeysError. `update` changes all keys, because they share the numbers.
   *
   * @param key any string
   */
  for(key: string): LocalLimiter<Name> {
    const limiter: LocalLimiter = new KeyLimiter(this.#keys, checkText("key", key));
    return limiter as LocalLimiter<Name>;
  }

  /**
   * Forgets what a key has used: its next request finds a new limiter. Does nothing while a caller
   * waits for the key, or while the key is paused.
   *
   * @param key any string
   * @returns whether a state was forgotten
   * @throws TypeError if the key is not a string
   * @example
   * users.forget(user); // the user has paid: start with a full quota
   */
  forget(key: string): boolean {
    return this.#keys.forget(checkText("key", key));
  }

  /** Sets other numbers for all keys from now on: see `update` of `Limiter`. */
  update(policies: Policies): void {
    this.#keys.update(policies);
  }

  // A call without a key, in JavaScript, gets an error that says what is missing.
  protected get acquire(): never {
    return needsKey("acquire");
  }

  protected get tryAcquire(): never {
    return needsKey("tryAcquire");
  }

  protected get reserve(): never {
    return needsKey("reserve");
  }

  protected get decide(): never {
    return needsKey("decide");
  }

  protected get peek(): never {
    return needsKey("peek");
  }
}

function needsKey(verb: string): never {
  throw new TypeError(`a KeyedLimiter has no ${verb} for all keys: use limiter.for(key)`);
}

/** The limiter of one key. It holds the key, not its state. */
export class KeyLimiter implements Combinable {
  readonly #keys: KeyTable;
  readonly #key: string;

  constructor(keys: KeyTable, key: string) {
    this.#keys = keys;
    this.#key = key;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    try {
      return this.#keys.acquire(this.#key, permits, options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  tryAcquire(permits?: PermitsOnly): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(
    permits: Permits | TryOptions = 1,
    wait?: number | TryOptions,
  ): boolean | Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    return this.#keys.tryAcquire(this.#key, permits);
  }

  async #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    this.#keys.possible(permits);
    checkTryOptions(wait);
    try {
      return await this.#keys.wake(this.#key, permits).tryAcquire(permits, wait);
    } catch (error) {
      if (error instanceof TooManyKeysError) return false;
      throw error;
    }
  }

  reserve(permits: Permits = 1, options?: ShareOptions): LocalReservation {
    this.#keys.checkShare(permits, options);
    return this.#keys.wake(this.#key, permits).reserve(permits, options);
  }

  decide(permits: Permits = 1, options?: ShareOptions): Decision {
    this.#keys.checkShare(permits, options);
    return this.#keys.decide(this.#key, permits, options);
  }

  peek(permits: Permits = 1, options?: ShareOptions): Decision {
    this.#keys.checkShare(permits, options);
    return this.#keys.peek(this.#key, permits, options);
  }

  [reserveAwaited](
    permits: Permits,
    sequence?: RequestSequence,
    options?: ShareOptions,
  ): LocalReservation {
    this.#keys.checkShare(permits, options);
    return this.#keys.wake(this.#key, permits)[reserveAwaited](permits, sequence, options);
  }

  [asParticipant](options?: ShareOptions): LocalAsked {
    const [keys, key] = [this.#keys, this.#key];
    return {
      isFair: keys.isFair,
      callStats: () => keys.statsOf(key),
      amount: (permits) => keys.states.policyState.amount(permits),
      decide: (permits) => keys.decide(key, permits, options, false),
      full: (permits) => keys.full(key, permits),
    };
  }

  charge(permits: Permits): void {
    this.#keys.charge(this.#key, this.#keys.possible(permits));
  }

  refund(permits: Permits): void {
    this.#keys.refund(this.#key, this.#keys.possible(permits));
  }

  pause(ms: number): void {
    this.#keys.wake(this.#key).pause(ms);
  }

  reset(): void {
    this.#keys.reset(this.#key);
  }

  update(policies: Policies): void {
    this.#keys.update(policies);
  }
}
