import { instantOf, isTooLate, Line, type Promised } from "../queue/line.ts";
import { type Supply, UNKNOWN } from "../queue/supply.ts";
import type { LineEntry, Waiter } from "../queue/waiter.ts";
import type { Ranks } from "./ranks.ts";
import type { Turn } from "./turn.ts";

/**
 * The waiters of a fair limiter. The line itself, first in, first out, contains changes, and callers with
 * an instant that must not move any more: reservations, and the waiters that were before them. All others wait in the
 * queues of their shares, where later callers may overtake them. They are replayed in the order of a forecast,
 * anew at each look.
 */
export class FairLine<S extends Supply = Supply> extends Line<S> {
  readonly #ranks: Ranks<Waiter>;

  constructor(released: S, refuse: (waiter: Waiter) => void, ranks: Ranks<Waiter>) {
    super(released, refuse, true);
    this.#ranks = ranks;
  }

  override get head(): LineEntry | undefined {
    return super.head ?? this.#ranks.head;
  }

  override isNext(turn: Turn<Waiter>): boolean {
    return super.head === undefined && this.#ranks.isNext(turn);
  }

  override append(place: LineEntry, from: number): void {
    const { turn } = place;
    if (turn === undefined) {
      super.append(place, from);
      return;
    }
    const waiter = place as Waiter;
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

  override granted(turn: Turn<Waiter>, at: number): void {
    if (this.head === undefined) this.#ranks.reset();
    this.#ranks.charge(turn, at);
  }

  override remove(place: LineEntry, at?: number): boolean {
    const { turn } = place;
    if (turn === undefined) return super.remove(place);
    if (turn.share === undefined) {
      if (at === undefined) this.#ranks.refund(turn);
      return super.remove(place);
    }
    this.#leave(place as Waiter, at);
    return false;
  }

  override *waiters(): Iterable<Waiter> {
    yield* super.waiters();
    yield* this.#ranks;
  }

  /** The waiters of the share that asks for most permits, then those of the next one. */
  protected override *oldest(): Iterable<Waiter> {
    const shares = this.#ranks.shares.sort((a, b) => b.permits - a.permits);
    for (const share of shares) yield* share.items();
  }

  /** Moves the waiter that goes next to the line: it is not overtaken any more. */
  #promote(waiter: Waiter, from: number): void {
    this.#leave(waiter, instantOf(waiter, super.replay(from)));
    super.append(waiter, from);
  }

  /** Only waiters with a deadline need the forecast. */
  override refuseLate(from: number): void {
    if (this.urgent === undefined) super.replay(from);
    else this.replay(from);
  }

  override replay(from: number, turn?: Turn<Waiter>): Readonly<Promised<S>> {
    const { supply, at } = super.replay(from);
    const promised: Promised<S> = { supply: supply.copy() as S, at, last: undefined };
    const refused: Waiter[] = [];
    this.#ranks.forecast(turn, (waiter) => {
      const instant = instantOf(waiter, promised);
      if (isTooLate(instant, waiter)) {
        refused.push(waiter);
        return undefined;
      }
      if (instant !== UNKNOWN) promised.supply.take(instant, waiter.taken);
      promised.at = instant;
      return instant;
    });
    for (const waiter of refused) this.refuse(waiter);
    return promised;
  }

  /** @param at when it is released; `undefined`: it is not */
  #leave(waiter: Waiter, at: number | undefined): void {
    if (at === undefined) this.#ranks.remove(waiter);
    else this.#ranks.shift(at);
    this.count(waiter, -1);
  }
}
