import type { Amount } from "../permits.ts";
import type { Cell } from "../stores/memory.ts";

/** What stands in the line: someone who waits, or a change. */
export type Place = Waiter | Change;

/** Something that happens to the policies' state in its turn: other numbers, a charge, a refund. */
export class Change {
  previous: Place | undefined = undefined;
  next: Place | undefined = undefined;
  readonly awaited = false;
  /** Its instant, microseconds. */
  readonly since: number;
  readonly apply: (cell: Cell) => void;

  constructor(since: number, apply: (cell: Cell) => void) {
    this.since = since;
    this.apply = apply;
  }
}

const NO_SIGNALS: readonly AbortSignal[] = [];
/** One array for all waiters of a signal: thousands may share one. */
const alone = new WeakMap<AbortSignal, readonly AbortSignal[]>();

function only(signal: AbortSignal): readonly AbortSignal[] {
  let signals = alone.get(signal);
  if (signals === undefined) {
    signals = [signal];
    alone.set(signal, signals);
  }
  return signals;
}

/** Someone who waits. What happens at its instant is for the kinds of waiters to say. */
export abstract class Waiter {
  previous: Place | undefined = undefined;
  next: Place | undefined = undefined;
  /** When it asked, microseconds. */
  readonly asked: number;
  /** What must be free for it to go. */
  amount: Amount;
  signals: readonly AbortSignal[];

  constructor(asked: number, amount: Amount, signal?: AbortSignal) {
    this.asked = asked;
    this.amount = amount;
    this.signals = signal === undefined ? NO_SIGNALS : only(signal);
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
  refuse(_now: number): void {}

  /** Present where it may be dropped: it was taken out of the line to make room for a later caller. */
  drop?(reason: Error, now: number): void;

  /** It was taken out of the line because its signal was aborted. */
  abstract abort(reason: unknown, now: number): void;
}
