import type { Amount } from "../permits.ts";
import type { PolicyList } from "../stores/memory.ts";

/** What stands in the line: someone who waits, or a change of numbers. */
export type Place = Waiter | Change;

/** From here on the policies have other numbers. */
export class Change {
  next: Place | undefined = undefined;
  readonly gone = false;
  readonly awaited = false;
  /** The instant of the change, microseconds. */
  readonly since: number;
  readonly policies: PolicyList;

  constructor(since: number, policies: PolicyList) {
    this.since = since;
    this.policies = policies;
  }
}

/** Someone who waits. What happens at its instant is for the kinds of waiters to say. */
export abstract class Waiter {
  next: Place | undefined = undefined;
  /** Cancelled; it is dropped from the line in passing. */
  gone = false;
  /** When it asked, microseconds. */
  readonly asked: number;
  /** What must be free for it to go. */
  amount: Amount;
  signal: AbortSignal | undefined;

  constructor(asked: number, amount: Amount, signal?: AbortSignal) {
    this.asked = asked;
    this.amount = amount;
    this.signal = signal;
  }

  /** What it takes as it goes. */
  get taken(): Amount {
    return this.amount;
  }

  /** Whether a promise is pending for it, which needs a timer and keeps the process alive. */
  get awaited(): boolean {
    return true;
  }

  /** Being released after this instant is of no use to it, microseconds. */
  get deadline(): number {
    return Infinity;
  }

  /** Its permits are its own since the instant `at`; by the clock it is `now`. */
  abstract release(at: number, now: number): void;

  /** It was taken out of the line because its deadline cannot be met any more. */
  refuse(): void {}

  /** It was taken out of the line because its signal was aborted. */
  abstract abort(reason: unknown): void;
}
