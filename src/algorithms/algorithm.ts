/**
 * The contract between an algorithm and everything above it.
 *
 * An algorithm is two questions and a deed over a small state that it owns, with time as an
 * argument. Times are microseconds from an origin of the holder's choosing; they carry fractions
 * and are never rounded in here. `earliest` changes nothing, so a look is free, a refusal leaves no
 * trace, and several policies combine by being asked in turn until they agree on one instant.
 *
 * A state may lie in the future, since permits can be promised ahead: every question asked before
 * that instant must come out right too.
 */
export interface Algorithm<P extends Policy = Policy, S = unknown> {
  /** That of its folder, its files and its samples in the tests. */
  readonly name: string;
  /** One letter that names the algorithm in stored state. Unique in the registration. */
  readonly code: string;

  /**
   * First in, first out without help: after permits were promised for an instant, no request, of
   * whatever size, gets an earlier one. The twin's `in_order`.
   */
  readonly inOrder: boolean;

  /**
   * The receipts are instants, on the scale of the state; a store sends them as epoch time. The
   * twin's `dated`.
   */
  readonly dated?: boolean;

  /** Which of a policy's numbers count permits; the others are times and shapes. */
  readonly permitsAt: readonly number[];

  /** The policy of these numbers, which are as `policy.numbers` has them. */
  policy(numbers: readonly number[]): P;

  /**
   * The state of a limiter that is created at `now`: an object whose fields are numbers or lists of
   * numbers. A store saves them in this order, a list behind its length, and so does the twin's
   * `dump`.
   */
  start(policy: P, now: number): S;

  /**
   * Moves a state that has just been started or resized to a grid of the calendar.
   *
   * @param epoch Unix time at the scale's 0, whole microseconds
   */
  align?(policy: P, state: S, epoch: number): void;

  /** The same state, sharing nothing. */
  copy(state: S): S;

  /** The same state on a scale whose origin lies that many whole microseconds earlier. */
  shift(state: S, by: number): void;

  /**
   * The first instant at or after `from` at which the permits could be used. `Infinity`: never,
   * they exceed the capacity.
   */
  earliest(policy: P, state: S, from: number, permits: number): number;

  /**
   * They are used at `at`, whether they could be or not. Returns a receipt: the finite number, often
   * 0, that `giveBack` needs to undo it. It stays good when the policy is resized meanwhile.
   */
  take(policy: P, state: S, at: number, permits: number): number;

  /**
   * They were not used after all. Without a receipt: that many of those used lately, never above
   * the capacity.
   */
  giveBack(policy: P, state: S, now: number, permits: number, receipt?: number): void;

  /**
   * They were not used after all, but others have been promised what comes behind them: what the
   * bound allows is kept for those who come next. Absent: nothing is.
   */
  keep?(policy: P, state: S, permits: number): void;

  /**
   * They were used elsewhere, as the policy allows, and are to be missing here from now on. Absent:
   * as if they were taken now.
   */
  settle?(policy: P, state: S, now: number, permits: number): void;

  /**
   * Whether these permits, which cannot be used at `now`, are more than may wait. Absent: there is
   * no bound.
   */
  overflows?(policy: P, state: S, now: number, permits: number): boolean;

  /**
   * The most permits that can be used in any interval of that length, both ends included, while
   * nothing is charged and no promise is cancelled. The essay derives it; the suite holds the
   * algorithm to it.
   *
   * @param largest the largest single request, for algorithms that lend
   */
  bound(policy: P, micros: number, largest: number): number;

  /** What `now` looks like from outside. */
  quota(policy: P, state: S, now: number): Quota;

  /**
   * How many permits lack to its being full, debts included: who takes them at `now` from a state
   * that has been idle for ever has one in which nobody gets in sooner. An instant ahead that was
   * promised counts as all that comes back until then. A finite number, 0 or more.
   */
  owed(policy: P, state: S, now: number): number;

  /** Microseconds for which the state is worth keeping: after that a new one would do. */
  lifetime(policy: P, state: S, now: number): number;

  /**
   * From `now` on the policy's numbers are these; until now they were `before`. What is used stays
   * used.
   */
  resize(policy: P, state: S, now: number, before: P): void;
}

/** Plain numbers and the algorithm that reads them. */
export interface Policy {
  readonly algorithm: Algorithm;
  /** The numbers that define it, in the order in which the Lua twin takes them. */
  readonly numbers: readonly number[];
  /**
   * A waiter is charged at the instant at which it starts, not at the earlier one for which it was
   * booked when its timer is late. Only a queue in this process knows that instant.
   */
  readonly strict?: boolean;
  /** How many permits may wait for it, where the algorithm bounds that. */
  readonly maxWaiting?: number;
  /** The largest request that can ever pass, where that is not the `limit` of its quota. */
  readonly largest?: number;
  /**
   * Which of the numbers are its limit, or follow it: operators may keep that elsewhere. Absent:
   * the first.
   */
  readonly limitAt?: readonly number[];
}

/**
 * How a policy stands at an instant. `limit` permits in `windowMs` is the pace that it lets through
 * for ever.
 */
export interface Quota {
  /** The most permits that can go at one instant. */
  readonly limit: number;
  /** How many of them could go right now. */
  readonly remaining: number;
  /**
   * Milliseconds until `remaining` is `limit` again and nothing of the past matters, if nobody
   * comes.
   */
  readonly resetMs: number;
  /** Milliseconds in which `limit` permits come back. */
  readonly windowMs: number;
}
