/**
 * The face that every limiter shows, whatever its algorithm and wherever its state lives. Adapters
 * are written to it.
 */
import type { Permits } from "../permits.ts";
import type { Policies } from "../stores/memory.ts";
import type { RemoteStats, StoreState } from "./remote/outage-stats.ts";

export interface WaitOptions {
  /**
   * Gives up the wait: the promise rejects with `signal.reason`, the permits go to those behind.
   */
  readonly signal?: AbortSignal | undefined;
}

export interface TryOptions extends WaitOptions {
  /**
   * How long to wait at the most, ms; `Infinity` (the default) for as long as it takes, below 0
   * counts as 0.
   */
  readonly timeoutMs?: number | undefined;
}

/**
 * Permits that the compiler does not take for the options of `tryAcquire`, nor those for permits.
 * It comes first among the overloads, so that `tryAcquire()` of a limiter in this process is a
 * boolean.
 */
export type PermitsOnly =
  | number
  | (Readonly<Record<string, number>> & { readonly [Option in keyof TryOptions]?: never });

/**
 * Promises may be answered later; a limiter in this process answers its quick verbs at once: see
 * `LocalLimiter`.
 */
export interface Limiter {
  /**
   * Waits until the permits are the caller's to use. For a wait with an end see `tryAcquire`, to
   * learn of the wait beforehand `reserve`.
   *
   * @param permits how many, above 0; default 1
   * @param options.signal ends the wait
   * @returns the ms that it waited
   * @throws (as a rejection) RangeError or TypeError on a bad argument, PermitsExceedCapacityError,
   *   QueueFullError, or the signal's own reason
   * @example
   * await limiter.acquire();
   * await fetch(url);
   */
  acquire(permits?: Permits, options?: WaitOptions): Promise<number>;

  /** Takes the permits if they can be used now. `false`, and nothing has changed, if not. */
  tryAcquire(permits?: PermitsOnly): boolean | Promise<boolean>;
  /**
   * Waits for one permit, but not longer than `timeoutMs`, as `tryAcquire(1, options)` does.
   *
   * @param options.timeoutMs the longest wait, ms; `Infinity` where it is absent
   * @param options.signal ends the wait
   * @returns whether the permit is the caller's to use
   * @example
   * if (await limiter.tryAcquire({ timeoutMs: 500 })) send();
   */
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean | Promise<boolean>;
  /**
   * Waits for the permits, but no longer than that. `false` at once, and nothing has changed, where
   * that would not be enough.
   *
   * @param permits how many, above 0
   * @param wait ms, or `{ timeoutMs, signal }`
   * @returns whether the permits are the caller's to use
   * @example
   * if (await limiter.tryAcquire(1, 250)) send();
   * else degrade();
   */
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;

  /**
   * Takes the permits now, to be used after `reservation.waitMs`.
   *
   * @param permits how many, above 0; default 1
   * @returns the reservation: wait with `ready()`, give it up with `cancel()`, correct an estimate
   *   with `settle(actual)`
   * @throws RangeError or TypeError on a bad argument, PermitsExceedCapacityError, QueueFullError
   */
  reserve(permits?: Permits): Reservation | Promise<Reservation>;

  /**
   * Takes the permits if they can be used now, as `tryAcquire` does, and tells how things stand:
   * limit, remaining, reset, and when to come back.
   */
  decide(permits?: Permits): Decision | Promise<Decision>;

  /** What `decide` would answer; nothing is taken, so `remaining` is what there is before. */
  peek(permits?: Permits): Decision | Promise<Decision>;

  /**
   * Takes the permits whatever the state, for work that is done already: whoever comes next waits
   * for them.
   */
  charge(permits: Permits): void | Promise<void>;

  /**
   * Gives back permits that were taken and not used; the limiter never holds more than its
   * capacity.
   */
  refund(permits: Permits): void | Promise<void>;

  /**
   * Releases nobody before `ms` from now, as a server asks for with Retry-After. A shorter pause
   * does not end a longer one.
   */
  pause(ms: number): void | Promise<void>;

  /**
   * Forgets what was used, charged and paused: the limiter is as if new, under the policies in
   * force. Callers that wait are re-timed, and take from the new state.
   *
   * @example
   * limiter.reset(); // an operator has lifted the block
   */
  reset(): void | Promise<void>;

  /**
   * Gives the policies other numbers from now on. What is used stays used, stored permits keep
   * their share, and everyone who waits gets the instant that the new numbers give.
   *
   * @param policies of the same names and algorithms as before
   */
  update(policies: Policies): void | Promise<void>;
}

/** A limiter in this process: the quick verbs answer at once. */
export interface LocalLimiter extends Limiter {
  tryAcquire(permits?: PermitsOnly): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  reserve(permits?: Permits): LocalReservation;
  decide(permits?: Permits): Decision;
  peek(permits?: Permits): Decision;
  charge(permits: Permits): void;
  refund(permits: Permits): void;
  pause(ms: number): void;
  reset(): void;
  update(policies: Policies): void;
}

/** A limiter whose state is in a store elsewhere: every verb answers a promise. */
export interface RemoteLimiter extends Limiter, AsyncDisposable {
  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  reserve(permits?: Permits): Promise<Reservation>;
  decide(permits?: Permits): Promise<Decision>;
  peek(permits?: Permits): Promise<Decision>;
  charge(permits: Permits): Promise<void>;
  refund(permits: Permits): Promise<void>;

  /**
   * As of every limiter. It holds for all who ask from now on, and for callers that wait in this
   * process; callers that wait in other processes keep the instants that they were promised.
   */
  pause(ms: number): Promise<void>;

  /**
   * As of every limiter, for all processes. Callers that wait in this process ask again; callers in
   * other processes, and reservations, keep the instants that they were promised. Other numbers set
   * with `update` stay in force (see `resetPolicies`). It needs the store, whatever
   * `whenUnavailable` says.
   */
  reset(): Promise<void>;

  /**
   * Other numbers from now on for all code that declares the same policies as this limiter, until
   * they are changed again or `resetPolicies` is called. It needs the store, whatever
   * `whenUnavailable` says.
   */
  update(policies: Policies): Promise<void>;

  /** The declared policies are in force again: undoes `update`. What was used stays used. */
  resetPolicies(): Promise<void>;

  /** Whether the store answered when it was last asked; or `"closed"`. */
  readonly state: StoreState;
  /** The counters, as they are now; those of a limiter for each key are of all keys together. */
  readonly stats: RemoteStats;

  /**
   * Ends the limiter in this process: callers that wait are rejected with a LimiterClosedError, and
   * so is every further call. What they were promised, and what was reserved ahead, is given back.
   *
   * @returns when nothing is under way any more, or after `timeoutMs`; never rejects
   */
  close(): Promise<void>;
}

export interface Reservation {
  /** What was asked for. */
  readonly permits: Permits;
  /** How long after `reserve()` the permits can be used, ms, as told at that time. 0: at once. */
  readonly waitMs: number;

  /**
   * Waits until the permits can be used. From here on the wait follows the limiter: it shortens
   * when somebody ahead leaves, and is re-timed by `setRate` and `pause`. (Until then `waitMs`
   * holds against `setRate`, for the holder may be sleeping on its own.)
   *
   * @param options.signal ends the wait and cancels the reservation
   * @returns the ms from `reserve()` until they could be used
   * @throws (as a rejection) ReservationCancelledError, or the signal's own reason
   */
  ready(options?: WaitOptions): Promise<number>;

  /**
   * Gives the permits up before their time has come; those behind move up.
   *
   * @returns whether they were given up. `false`: they could be used already (correct with
   *   `settle`), or were given up before
   */
  cancel(): boolean | Promise<boolean>;

  /**
   * Corrects what was reserved to what was used: more is charged to those who come next, less is
   * given back. It may be called again.
   *
   * @param actual what was used in all, 0 or more; policies that are not named stay as they are
   */
  settle(actual: Permits): void | Promise<void>;
}

export interface LocalReservation extends Reservation {
  cancel(): boolean;
  settle(actual: Permits): void;
}

/** How a policy stands. */
export interface PolicyStatus {
  /** Whether this policy alone would let the request pass now; a policy that is not asked does. */
  readonly allowed: boolean;
  /** The most permits that it lets through at once. */
  readonly limit: number;
  /** How many it would let through now. */
  readonly remaining: number;
  /** ms until `remaining` is `limit` again if nobody comes. */
  readonly resetMs: number;
  /** ms in which `limit` permits come back. */
  readonly windowMs: number;
}

/**
 * The answer to "may I, and if not, when?" `limit`, `remaining` and `resetMs` are those of the
 * binding policy.
 */
export interface Decision {
  readonly allowed: boolean;
  /**
   * 0 when allowed; else how long the permits would have to wait if no other caller came, ms: they
   * are refused at every earlier instant, and let through exactly then. `Infinity` where waiting
   * does not help: `acquire` and `reserve` would be refused too, because a leaky bucket is full, as
   * many permits wait as `maxWaiting` allows, or the limit is 0.
   */
  readonly waitMs: number;
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
  /** The name of the binding policy: the one that makes it wait, or the one that has least left. */
  readonly policy: string;
  readonly policies: Readonly<Record<string, PolicyStatus>>;
}
