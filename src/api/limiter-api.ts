/**
 * The interface of every limiter, whatever its algorithm and wherever its state is. Adapters depend
 * on this file only.
 */
import type { Permits } from "../ground/permits.ts";
import type { Policies } from "../stores/policies.ts";
import type { RemoteStats, StoreState } from "./outage-stats.ts";

/** The share that a call counts for. Only on a limiter that was created with `fair`. */
export interface ShareOptions {
  /**
   * The share that the call belongs to: any string, such as the id of a tenant. Calls without one belong to
   * the share "".
   */
  readonly share?: string | undefined;
  /**
   * The weight of the share: while two shares wait, one of weight 2 gets twice as many permits as one of
   * weight 1. Above 0, default 1. It may differ from call to call: a call of n permits counts as n / weight.
   */
  readonly weight?: number | undefined;
  /** One of the limiter's `fair.priorities`. Default: the last one. */
  readonly priority?: string | undefined;
}

/** The options of verbs that wait. */
export interface WaitOptions extends ShareOptions {
  /**
   * Ends the wait: the promise rejects with `signal.reason`, and the permits go to later callers.
   */
  readonly signal?: AbortSignal | undefined;
}

/** The options of verbs that wait for a limited time. */
export interface TryOptions extends WaitOptions {
  /** The longest wait, ms. `Infinity` (the default) has no end; below 0 counts as 0. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Permits, typed so that the compiler cannot confuse them with the options of `tryAcquire`. This
 * overload comes first, so that `tryAcquire()` of a limiter in this process returns a boolean.
 */
export type PermitsOnly<Name extends string = string> = Permits<Name> &
  (number | { readonly [Option in keyof TryOptions]?: never });

/**
 * A rate limiter. Some limiters return promises; a limiter in this process returns the results of
 * its quick verbs at once: see `LocalLimiter`.
 */
export interface Limiter<Name extends string = string> {
  /**
   * Waits until the caller can use the permits. For a wait with a time-out see `tryAcquire`; to
   * know the wait beforehand see `reserve`.
   *
   * @param permits how many, above 0; default 1
   * @param options.signal ends the wait
   * @param options.share, options.weight, options.priority on a fair limiter: the share it counts for
   * @returns how long it waited, ms
   * @throws (rejects) RangeError or TypeError on a bad argument, PermitsExceedCapacityError,
   *   QueueFullError, or the signal's own reason
   * @example
   * await limiter.acquire();
   * await fetch(url);
   */
  acquire(permits?: Permits<Name>, options?: WaitOptions): Promise<number>;

  /** Takes the permits if they can be used now; otherwise returns `false` and changes nothing. */
  tryAcquire(permits?: PermitsOnly<Name>): boolean | Promise<boolean>;
  /**
   * Waits for one permit, at most `timeoutMs`, like `tryAcquire(1, options)`.
   *
   * @param options.timeoutMs the longest wait, ms; default `Infinity`
   * @param options.signal ends the wait
   * @returns whether the caller can use the permit
   * @example
   * if (await limiter.tryAcquire({ timeoutMs: 500 })) send();
   */
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits<Name> | undefined): boolean | Promise<boolean>;
  /**
   * Waits for the permits, at most `wait`. Returns `false` at once, and changes nothing, if that is
   * not long enough.
   *
   * @param permits how many, above 0
   * @param wait ms, or `{ timeoutMs, signal }` and on a fair limiter `{ share, weight, priority }`
   * @returns whether the caller can use the permits. On a fair limiter later callers may overtake it; it is
   *   then refused when its time is over
   * @example
   * if (await limiter.tryAcquire(1, 250)) send();
   * else degrade();
   */
  tryAcquire(permits: Permits<Name>, wait: number | TryOptions): Promise<boolean>;

  /**
   * Takes the permits now, for use after `reservation.waitMs`.
   *
   * @param permits how many, above 0; default 1
   * @param options on a fair limiter, the share it counts for. No later caller delays the reservation
   * @returns the reservation: `ready()` waits for it, `cancel()` gives it up, `settle(actual)`
   *   corrects an estimate
   * @throws RangeError or TypeError on a bad argument, PermitsExceedCapacityError, QueueFullError
   */
  reserve(
    permits?: Permits<Name>,
    options?: ShareOptions,
  ): Reservation<Name> | Promise<Reservation<Name>>;

  /**
   * Takes the permits if they can be used now, as `tryAcquire` does, and returns the state of the
   * limit: limit, remaining, reset, and when to try again.
   */
  decide(permits?: Permits<Name>, options?: ShareOptions): Decision<Name> | Promise<Decision<Name>>;

  /** Returns what `decide` would return, without taking permits: `remaining` includes them. */
  peek(permits?: Permits<Name>, options?: ShareOptions): Decision<Name> | Promise<Decision<Name>>;

  /**
   * Takes the permits whatever the state, for work that is already done. Later callers wait for
   * them.
   */
  charge(permits: Permits<Name>): void | Promise<void>;

  /**
   * Gives back permits that were taken and not used. The limiter never holds more than its
   * capacity. On a store a window that is already promised to callers may get them back, and then grants that many more:
   * `settle` and `undo` of a reservation give back to its own window.
   */
  refund(permits: Permits<Name>): void | Promise<void>;

  /**
   * Releases no caller for `ms` from now, as a server asks for with Retry-After. A shorter pause
   * does not end a longer one.
   */
  pause(ms: number): void | Promise<void>;

  /**
   * Clears what was used, charged and paused: the limiter is as if new, under the policies in force.
   * Waiting callers get new instants, and take from the new state.
   *
   * @example
   * limiter.reset(); // an operator has lifted the block
   */
  reset(): void | Promise<void>;

  /**
   * Gives the policies other numbers from now on. Used permits stay used, stored permits keep their
   * fraction of the capacity, and every waiting caller gets a new instant; in this process one that asks for more than
   * the new numbers ever hold is rejected with a PermitsExceedCapacityError.
   *
   * @param policies of the same names and algorithms as before
   */
  update(policies: Policies): void | Promise<void>;
}

/** The members of a limiter's class besides `create`: limiters are created without `new`. */
export interface LimiterClass<L> {
  readonly name: string;
  /** Makes `instanceof` work. */
  [Symbol.hasInstance](value: unknown): value is L;
}

/** A limiter in this process: its quick verbs return at once. */
export interface LocalLimiter<Name extends string = string> extends Limiter<Name> {
  tryAcquire(permits?: PermitsOnly<Name>): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits<Name> | undefined): boolean;
  tryAcquire(permits: Permits<Name>, wait: number | TryOptions): Promise<boolean>;
  reserve(permits?: Permits<Name>, options?: ShareOptions): LocalReservation<Name>;
  decide(permits?: Permits<Name>, options?: ShareOptions): Decision<Name>;
  peek(permits?: Permits<Name>, options?: ShareOptions): Decision<Name>;
  charge(permits: Permits<Name>): void;
  refund(permits: Permits<Name>): void;
  pause(ms: number): void;
  reset(): void;
  update(policies: Policies): void;
}

/** A limiter with its state in a store elsewhere: every verb returns a promise. */
export interface RemoteLimiter<Name extends string = string>
  extends Limiter<Name>,
    AsyncDisposable {
  tryAcquire(permits?: Permits<Name> | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits<Name>, wait: number | TryOptions): Promise<boolean>;
  reserve(permits?: Permits<Name>, options?: ShareOptions): Promise<Reservation<Name>>;
  decide(permits?: Permits<Name>, options?: ShareOptions): Promise<Decision<Name>>;
  peek(permits?: Permits<Name>, options?: ShareOptions): Promise<Decision<Name>>;
  charge(permits: Permits<Name>): Promise<void>;
  refund(permits: Permits<Name>): Promise<void>;

  /**
   * As `pause` of every limiter. Applies to all later requests, and to callers that wait in this
   * process. Callers that wait in other processes keep their promised instants.
   */
  pause(ms: number): Promise<void>;

  /**
   * As `reset` of every limiter, for all processes. Callers that wait in this process get new instants;
   * callers in other processes, and reservations, keep their promised instants.
   * Numbers set with `update` stay in force (see `resetPolicies`). Needs the store, whatever
   * `whenUnavailable` says.
   */
  reset(): Promise<void>;

  /**
   * Sets other numbers for all code that declares the same policies as this limiter, until they are
   * changed again or `resetPolicies` is called. Needs the store, whatever `whenUnavailable` says.
   */
  update(policies: Policies): Promise<void>;

  /** Puts the declared policies back in force: undoes `update`. Used permits stay used. */
  resetPolicies(): Promise<void>;

  /** Whether the store answered the last request; or `"closed"`. */
  readonly state: StoreState;
  /** The current counters. Those of a limiter for each key count all keys together. */
  readonly stats: RemoteStats;

  /**
   * Ends the limiter in this process. Waiting callers, in `ready()` too, are rejected with a
   * LimiterClosedError, and so is every later call. Their promised permits and all prefetched ones return
   * to the store. Reservations that no caller awaits stay valid.
   *
   * @returns a promise that resolves when no request is under way any more, or after `timeoutMs`; it never
   *   rejects
   * @example
   * await limiter.close();
   * redis.disconnect();
   */
  close(): Promise<void>;
}

/** Permits that were taken by `reserve`. They can be used after `waitMs`. */
export interface Reservation<Name extends string = string> {
  /** The reserved permits. */
  readonly permits: Permits<Name>;
  /**
   * How long after `reserve()` the permits can be used, ms, as computed at that time. 0: at once.
   */
  readonly waitMs: number;

  /**
   * Waits until the permits can be used. From this call on the wait follows the limiter: it becomes
   * shorter when a caller ahead leaves, and `setRate` and `pause` change it. (Before this call
   * `setRate` does not make the wait longer, because the holder may be sleeping on its own timer.)
   *
   * @param options.signal ends the wait and cancels the reservation
   * @returns the ms from `reserve()` until they could be used
   * @throws (rejects) ReservationCancelledError, or the signal's own reason
   */
  ready(options?: WaitOptions): Promise<number>;

  /**
   * Gives the permits back before their time has come; later callers move up.
   *
   * @returns whether they were given back. `false`: they could be used already (correct them with
   *   `settle`), or were given back before
   */
  cancel(): boolean | Promise<boolean>;

  /**
   * Corrects the reserved permits to what was used: later callers pay for more, and less is given
   * back. It may be called again. Of a limiter on a store, a charge that failed is made up for by the next call; a refund
   * is not, since its reply may have been lost.
   *
   * @param actual what was used in all, 0 or more; policies that are not named stay as they are
   */
  settle(actual: Permits<Name>): void | Promise<void>;

  /**
   * Gives all permits back, whether their time has come or not: `cancel()` if that is still possible,
   * else `settle(0)`. For work that will not be done after all. A second call changes nothing.
   *
   * @example
   * const reservation = await limiter.reserve(10);
   * if (!(await canStart())) await reservation.undo();
   */
  undo(): void | Promise<void>;
}

/** A `Reservation` of a limiter in this process: its verbs return at once. */
export interface LocalReservation<Name extends string = string> extends Reservation<Name> {
  cancel(): boolean;
  settle(actual: Permits<Name>): void;
  undo(): void;
}

/** The state of one policy. */
export interface PolicyStatus {
  /**
   * Whether this policy alone lets the request pass now. `true` for a policy that is not charged.
   */
  readonly allowed: boolean;
  /** The most permits that the policy lets through at once. */
  readonly limit: number;
  /** How many permits it would let through now; with a pace or a bucket it may have a fraction. */
  readonly remaining: number;
  /** ms until `remaining` is `limit` again if no request comes. */
  readonly resetMs: number;
  /** ms in which `limit` permits come back. */
  readonly windowMs: number;
}

/**
 * The answer to "may this request pass now, and if not, when?". `limit`, `remaining` and `resetMs`
 * are those of the binding policy.
 */
export interface Decision<Name extends string = string> {
  /** Whether the permits can be used now; `decide` has then taken them. */
  readonly allowed: boolean;
  /**
   * How long the permits would have to wait if no other caller came, ms; 0 when allowed. A request
   * is refused at every earlier instant, and granted exactly then. `Infinity` if waiting does not
   * help: `acquire` and `reserve` would be refused too, because a leaky bucket is full, callers
   * already wait for `maxWaiting` permits, or the limit is 0.
   */
  readonly waitMs: number;
  /** The most permits that the binding policy grants at once, above 0; `Infinity`: no limit. */
  readonly limit: number;
  /** How many permits the binding policy could grant now, 0 or more; with a pace or a bucket it may have a fraction. */
  readonly remaining: number;
  /** When the binding policy is full again if no other caller comes, ms from now, 0 or more. */
  readonly resetMs: number;
  /**
   * The name of the binding policy: the one with the longest wait, or else with the fewest permits
   * left.
   */
  readonly policy: Name;
  /** The status of each policy, by its name. */
  readonly policies: Readonly<Record<Name, PolicyStatus>>;
}
