import { Deadlines } from "../queue/deadlines.ts";
import { instantOf, type Promised, promise, type Refuse, Schedule } from "../queue/schedule.ts";
import type { Supply } from "../queue/supply.ts";
import type { QueueEntry, Waiter } from "../queue/waiter.ts";
import type { FairEntry } from "./fair-entry.ts";
import type { Ranks } from "./ranks.ts";

/**
 * The waiters of a fair limiter. The schedule itself, first in, first out, contains changes, and callers with
 * an instant that must not move any more: reservations, and the waiters that were before them. All others wait in the
 * queues of their shares, where later callers may overtake them. They are replayed in the order of a forecast,
 * anew at each look.
 */
export class FairSchedule<S extends Supply = Supply> extends Schedule<S> {
  readonly #ranks: Ranks<Waiter>;

  constructor(released: S, refuse: Refuse, ranks: Ranks<Waiter>) {
    super(released, refuse, new Deadlines());
    this.#ranks = ranks;
  }

  override get head(): QueueEntry | undefined {
    return super.head ?? this.#ranks.head;
  }

  override isNext(fairEntry: FairEntry<Waiter>): boolean {
    return super.head === undefined && this.#ranks.isNext(fairEntry);
  }

  override append(entry: QueueEntry, from: number): void {
    const { fairEntry } = entry;
    if (fairEntry === undefined) {
      super.append(entry, from);
      return;
    }
    const waiter = entry as Waiter;
    this.#ranks.append(waiter, waiter.asked);
    if (!waiter.awaited) {
      // the holder knows the instant, so no later caller may overtake those that go before it
      for (let { head } = this.#ranks; head !== waiter; head = this.#ranks.head) {
        this.#promote(head as Waiter, from);
      }
      this.#ranks.shift();
      super.append(waiter, from);
      return;
    }
    this.count(waiter, 1);
  }

  override granted(fairEntry: FairEntry<Waiter>, at: number): void {
    if (this.head === undefined) this.#ranks.reset();
    this.#ranks.charge(fairEntry, at);
  }

  override remove(entry: QueueEntry, at?: number): boolean {
    const { fairEntry } = entry;
    if (fairEntry === undefined) return super.remove(entry);
    if (fairEntry.share === undefined) {
      if (at === undefined) this.#ranks.refund(fairEntry);
      return super.remove(entry);
    }
    this.#leave(entry as Waiter, at);
    return false;
  }

  override *entries(): Iterable<QueueEntry> {
    yield* super.entries();
    yield* this.#ranks;
  }

  /** The waiters of the share that asks for most permits, then those of the next one. */
  protected override *oldest(): Iterable<Waiter> {
    const shares = this.#ranks.shares.sort((a, b) => b.permits - a.permits);
    for (const share of shares) yield* share.items();
  }

  /** Moves the waiter that goes next behind those that are not overtaken any more. */
  #promote(waiter: Waiter, from: number): void {
    this.#leave(waiter, instantOf(waiter, super.replay(from)));
    super.append(waiter, from);
  }

  override replay(from: number, fairEntry?: FairEntry<Waiter>): Readonly<Promised<S>> {
    const { supply, at } = super.replay(from);
    const promised: Promised<S> = { supply: supply.copy() as S, at, last: undefined };
    const refused: Waiter[] = [];
    this.#ranks.forecast(fairEntry, (waiter) => {
      if (promise(waiter, promised)) return promised.at;
      refused.push(waiter);
      return undefined;
    });
    for (const waiter of refused) this.refuse(waiter, supply);
    return promised;
  }

  /** @param at when it is released; `undefined`: it is not */
  #leave(waiter: Waiter, at: number | undefined): void {
    if (at === undefined) this.#ranks.remove(waiter);
    else this.#ranks.shift(at);
    this.count(waiter, -1);
  }
}
