import type { FairEntry } from "../fair/fair-entry.ts";
import type { Amount } from "../ground/permits.ts";

import type { Supply } from "./supply.ts";

/** An entry of the queue: a waiter, or a change. */
export type QueueEntry = Waiter | Change;

/**
 * A change of the supply that takes its turn in the queue: new numbers, a charge, a refund.
 */
export class Change {
  before: QueueEntry | undefined = undefined;
  after: QueueEntry | undefined = undefined;
  readonly awaited = false;
  readonly fairEntry = undefined;
  /** When it applies, µs. */
  readonly since: number;
  readonly apply: (supply: Supply) => void;

  constructor(since: number, apply: (supply: Supply) => void) {
    this.since = since;
    this.apply = apply;
  }
}

const NO_SIGNALS: readonly AbortSignal[] = [];

/** A waiter in the queue. Subclasses define what happens when it is released or removed. */
export abstract class Waiter {
  before: QueueEntry | undefined = undefined;
  after: QueueEntry | undefined = undefined;
  /** When the call was made, µs. */
  readonly asked: number;
  /** The permits that must be available before it is released. */
  amount: Amount;
  readonly #signal: AbortSignal | undefined;
  /** Its place among the shares; only on a fair limiter. */
  readonly fairEntry: FairEntry<Waiter> | undefined;

  constructor(asked: number, amount: Amount, signal?: AbortSignal, fairEntry?: FairEntry<Waiter>) {
    this.asked = asked;
    this.amount = amount;
    this.fairEntry = fairEntry;
    this.#signal = signal;
  }

  /** Each of them cancels it. */
  get signals(): readonly AbortSignal[] {
    return this.#signal === undefined ? NO_SIGNALS : [this.#signal];
  }

  /** The permits that it takes when it is released. */
  get taken(): Amount {
    return this.amount;
  }

  /** Whether a promise is pending for it: it then needs a timer and keeps the process alive. */
  get awaited(): boolean {
    return true;
  }

  /** A release after this instant is too late for the caller, µs. */
  get deadline(): number {
    return Infinity;
  }

  /** Called when it is released: it has its permits since `at`; the clock is at `now`. */
  abstract release(at: number, now: number): void;

  /**
   * Called when it was removed because its deadline cannot be met any more, or it can never be released.
   *
   * @param excess the error in the second case: what it waits for has become too small for it
   */
  refuse(_now: number, _excess?: Error): void {}

  /**
   * Called when it was removed to make room for a later caller. Absent where it may not be dropped.
   */
  drop?(reason: Error, now: number): void;

  /** Called when it was removed because its signal was aborted. */
  abstract abort(reason: unknown, now: number): void;
}
