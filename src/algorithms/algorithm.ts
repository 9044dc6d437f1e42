/**
 * The contract between an algorithm and everything above it.
 *
 * An algorithm is two questions and a deed over a small state that it owns, with time as an argument. Times are
 * microseconds from an origin of the holder's choosing; they carry fractions and are never rounded in here.
 * `earliest` changes nothing, so a look is free, a refusal leaves no trace, and several policies combine by
 * being asked in turn until they agree on one instant.
 *
 * A state may lie in the future, since permits can be promised ahead: every question asked before that instant
 * must come out right too.
 */
export interface Algorithm<P = unknown, S = unknown> {
  readonly name: string;

  /** The state of a limiter that is created at `now`. */
  start(policy: P, now: number): S;

  /** The same state, sharing nothing. */
  copy(state: S): S;

  /** The first instant at or after `from` at which the permits could be used. `Infinity`: never, they exceed the capacity. */
  earliest(policy: P, state: S, from: number, permits: number): number;

  /** They are used at `at`, whether they could be or not. Returns what `giveBack` needs to undo it. */
  take(policy: P, state: S, at: number, permits: number): number;

  /** They were not used after all. Without a receipt: that many of those used lately, never above the capacity. */
  giveBack(policy: P, state: S, now: number, permits: number, receipt?: number): void;

  /** What `now` looks like from outside. */
  quota(policy: P, state: S, now: number): Quota;

  /** Microseconds after which the state is no different from that of a limiter which nobody has used for ever. */
  lifetime(policy: P, state: S, now: number): number;

  /** From `now` on the policy's numbers are these; until now they were `before`. What is used stays used. */
  resize(policy: P, state: S, now: number, before: P): void;
}

/** Plain numbers and the algorithm that reads them. */
export interface Policy {
  readonly algorithm: Algorithm;
}

/** How a policy stands at an instant. `limit` permits in `windowMs` is the pace that it lets through for ever. */
export interface Quota {
  /** The most permits that can go at one instant. */
  readonly limit: number;
  /** How many of them could go right now. */
  readonly remaining: number;
  /** Milliseconds until `remaining` is `limit` again and nothing of the past matters, if nobody comes. */
  readonly resetMs: number;
  /** Milliseconds in which `limit` permits come back. */
  readonly windowMs: number;
}
