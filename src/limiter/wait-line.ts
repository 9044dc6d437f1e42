import { type Clock, type Timer, toMicros } from "../clock.ts";
import { Fifo } from "./fifo.ts";

/** Someone whose instant was told by a store elsewhere. */
export interface Sleeper {
  /** The clock's microseconds. */
  due: number;
  wake(now: number): void;
}

/** A blocked event loop is no late timer: more than this is not made up for. */
const LONGEST_CREDIT = 10_000;

/**
 * Those who sleep until the instant that a store told them: first in, first out, with one timer for
 * the head. Unlike the `WaiterQueue` it knows no policies, since these are elsewhere, and an
 * instant that was told is not told again.
 */
export class WaitLine {
  readonly #clock: Clock;
  /** In the order of their instants. */
  readonly #sleepers = new Fifo<Sleeper>();
  readonly #aside = new Map<Sleeper, Timer>();
  #lastDue = 0;
  #heldUntil = 0;
  #timer: Timer | undefined;
  #timerAt = 0;
  #lateBy = 0;
  #lateUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): number {
    return toMicros(this.#clock.now());
  }

  /** @param latest when it must have gone, the clock's microseconds */
  add(sleeper: Sleeper, latest = Infinity): void {
    if (this.#sleepers.size === 0) this.#lastDue = 0;
    // whoever asked first goes first, even if permits that came back made a later one's wait shorter
    const due = Math.max(this.#lastDue, sleeper.due);
    if (due > latest) {
      this.#addAside(sleeper);
      return;
    }
    this.#lastDue = due;
    sleeper.due = due;
    this.#sleepers.append(sleeper);
    if (this.#timer === undefined) this.#arm();
  }

  /** It cannot wait for those before it, and need not: its own instant was told. */
  #addAside(sleeper: Sleeper): void {
    const timer = this.alarm(sleeper.due, () => {
      this.#aside.delete(sleeper);
      sleeper.wake(this.now());
    });
    this.#aside.set(sleeper, timer);
  }

  remove(sleeper: Sleeper): void {
    this.#aside.get(sleeper)?.cancel();
    this.#aside.delete(sleeper);
    if (this.#sleepers.remove(sleeper) && this.#sleepers.size === 0) this.#arm();
  }

  /** Nobody wakes before that. */
  holdUntil(instant: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, instant);
    this.#arm();
  }

  /** Whether an instant has come, and no pause defers it. */
  reached(due: number): boolean {
    return this.now() >= Math.max(due, this.#heldUntil);
  }

  /** A timer beside the line, which a pause defers too. */
  alarm(due: number, wake: () => void): Timer {
    let timer: Timer | undefined;
    const look = () => {
      if (this.reached(due)) wake();
      else timer = this.#clock.wakeAt(Math.max(due, this.#heldUntil) / 1000, look);
    };
    timer = this.#clock.wakeAt(due / 1000, look);
    return { cancel: () => timer?.cancel() };
  }

  /** How late our timer was for those who come back now: see `WaiterQueue`. */
  lateBy(): number {
    return this.now() < this.#lateUntil ? this.#lateBy : 0;
  }

  #arm(): void {
    const { head } = this.#sleepers;
    const at = head === undefined ? 0 : Math.max(head.due, this.#heldUntil);
    if (this.#timer !== undefined && this.#timerAt === at) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = head && this.#clock.wakeAt(at / 1000, this.#wake);
  }

  readonly #wake = (): void => {
    const now = this.now();
    for (let sleeper = this.#sleepers.head; sleeper !== undefined; sleeper = this.#sleepers.head) {
      const at = Math.max(sleeper.due, this.#heldUntil);
      if (at > now) break;
      this.#sleepers.remove(sleeper);
      sleeper.wake(now);
      this.#lateBy = Math.min(now - at, LONGEST_CREDIT);
      this.#lateUntil = now + this.#lateBy;
    }
    this.#timer = undefined;
    this.#arm();
  };
}
