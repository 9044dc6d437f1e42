/**
 * The contract between an algorithm and the code above it.
 *
 * An algorithm is a set of functions over a small state, with the time as an argument. Times are
 * microseconds from an origin that the caller chooses; they carry fractions, and an algorithm does not
 * round its arguments. `earliest` does not change the state, so a peek is free and a rejected request
 * leaves no trace. Several policies are combined by calling `earliest` of each in turn until all
 * return the same instant.
 *
 * A state may lie in the future, because permits can be promised ahead. All functions must return
 * correct results for times before that instant too.
 */
export interface Algorithm<P extends Policy = Policy, S = unknown> {
  /** The name of the algorithm: also that of its folder, its files and its samples in the tests. */
  readonly name: string;
  /** One character that names the algorithm in stored state. Unique in the registration. */
  readonly code: string;

  /**
   * Whether the algorithm is first in, first out by itself: after it has promised permits for an
   * instant, no later request of any size gets an earlier instant. `in_order` in the Lua twin.
   */
  readonly inOrder: boolean;

  /**
   * Whether the receipts are instants, on the time scale of the state; a store sends them as epoch
   * time. `receipt_is_time` in the Lua twin.
   */
  readonly receiptIsTime?: boolean;

  /** Indices of the policy's numbers that count permits; the others are times and shape parameters. */
  readonly permitsAt: readonly number[];

  /** Returns the policy with these numbers, in the order of `policy.numbers`. */
  policy(numbers: readonly number[]): P;

  /**
   * Returns the state of a limiter that is created at `now`: an object with fields that are numbers or
   * lists of numbers. A store saves the fields in this order, each list after its length, and so does
   * `dump` in the Lua twin.
   */
  start(policy: P, now: number): S;

  /**
   * Aligns a state that has just been started or resized to the calendar's grid.
   *
   * @param epoch Unix time at 0 of the state's time scale, whole microseconds
   */
  align?(policy: P, state: S, epoch: number): void;

  /** Returns a deep copy of the state. */
  copy(state: S): S;

  /** Moves the state to a time scale with an origin `by` whole microseconds earlier. */
  shift(state: S, by: number): void;

  /**
   * Returns the first instant at or after `from` at which the permits are available. `Infinity` means
   * never: they exceed the capacity.
   */
  earliest(policy: P, state: S, from: number, permits: number): number;

  /**
   * Takes the permits at `at`, whether they are available or not. Returns a receipt: a finite number,
   * often 0, that `giveBack` needs to undo the take. The receipt stays valid when the policy is resized.
   */
  take(policy: P, state: S, at: number, permits: number): number;

  /**
   * Gives back permits that were taken but not used. Without a receipt: gives back that many of the
   * most recently taken ones. The state never exceeds the capacity.
   */
  giveBack(policy: P, state: S, now: number, permits: number, receipt?: number): void;

  /**
   * Saves permits that were not used but cannot be given back, because later permits are already
   * promised: as many as the bound allows are kept for later requests. Absent: none are kept.
   */
  keep?(policy: P, state: S, permits: number): void;

  /**
   * Charges permits that were used outside of this state, in accordance with the policy. Absent: they
   * are charged as if taken at `now`.
   */
  settle?(policy: P, state: S, now: number, permits: number): void;

  /**
   * Whether a request for permits that are not available at `now` exceeds the number that may wait.
   * Absent: the number is not bounded.
   */
  overflows?(policy: P, state: S, now: number, permits: number): boolean;

  /**
   * Returns the most permits that can be used in any interval of that length, both ends included,
   * provided that nothing is charged and no promise is cancelled. The algorithm's essay derives it, and
   * the test suite checks it.
   *
   * @param largest the largest single request, for algorithms that lend permits
   */
  bound(policy: P, micros: number, largest: number): number;

  /** Returns the quota at `now`, as reported to callers. */
  quota(policy: P, state: S, now: number): Quota;

  /**
   * Returns how many permits the state lacks to be full, debts included. Taking that many at `now` from
   * a state that has always been idle gives a state that grants no request earlier than this one does.
   * A promised instant in the future counts as all permits that come back until then. A finite number,
   * 0 or more.
   */
  deficit(policy: P, state: S, now: number): number;

  /** Returns for how many microseconds the state must be kept; after that a new one is equivalent. */
  lifetime(policy: P, state: S, now: number): number;

  /**
   * Converts the state from the policy `before` to `policy`, which applies from `now` on. Used permits
   * stay used.
   */
  resize(policy: P, state: S, now: number, before: P): void;
}

/** The numbers of a policy and the algorithm that interprets them. */
export interface Policy {
  readonly algorithm: Algorithm;
  /** The numbers that define the policy, in the order in which the Lua twin reads them. */
  readonly numbers: readonly number[];
  /**
   * A waiter is charged at the instant at which it starts, not at the earlier instant for which it was
   * booked; the two differ when its timer fires late. Only a queue in this process knows the start.
   */
  readonly strict?: boolean;
  /** The most permits that may wait, where the algorithm bounds that. */
  readonly maxWaiting?: number;
  /** The largest request that can ever be granted, where that is not the `limit` of the quota. */
  readonly largest?: number;
  /**
   * Indices of the numbers that are the limit, or follow from it: operators may keep the limit under a
   * key of the store (`limitKey`). Absent: the first number.
   */
  readonly limitAt?: readonly number[];
}

/**
 * The quota of a policy at an instant. `limit` permits in `windowMs` is its sustained rate.
 */
export interface Quota {
  /** The most permits that can be granted at one instant. */
  readonly limit: number;
  /** How many permits could be granted right now. */
  readonly remaining: number;
  /**
   * Milliseconds until `remaining` is `limit` again and past requests have no effect any more, if no
   * request arrives until then.
   */
  readonly resetMs: number;
  /** Milliseconds in which `limit` permits come back. */
  readonly windowMs: number;
}
