import type { PolicyState } from "../../stores/policy-state.ts";
import { instantOf, Line, type Promised } from "../line.ts";
import type { LineEntry, Waiter } from "../waiter.ts";
import { Heap } from "./heap.ts";
import type { Ranks } from "./ranks.ts";
import type { ShareQueue } from "./share-queue.ts";
import type { Turn } from "./turn.ts";

/**
 * The waiters of a fair limiter. The line itself, first in, first out, contains changes, and callers with
 * an instant that must not move any more: reservations, and the waiters that were before them. All others wait in the
 * queues of their shares, where later callers may overtake them. They are replayed in the order of a forecast,
 * anew at each look.
 */
export class FairLine extends Line {
  readonly #ranks: Ranks<Waiter, ShareQueue<Waiter>>;
  readonly #deadlines = new Heap<Turn<Waiter>>((a, b) => deadlineOf(a) < deadlineOf(b));

  constructor(
    released: PolicyState,
    refuse: (waiter: Waiter) => void,
    ranks: Ranks<Waiter, ShareQueue<Waiter>>,
  ) {
    super(released, refuse);
    this.#ranks = ranks;
  }

  override get head(): LineEntry | undefined {
    return super.head ?? this.#first;
  }

  override get urgent(): Waiter | undefined {
    return this.#deadlines.first?.item;
  }

  override isNext(turn: Turn<Waiter>): boolean {
    this.#queueOf(turn).enter(turn);
    return this.#ranks.isNext(turn) && super.head === undefined;
  }

  override append(place: LineEntry, from: number): void {
    const { turn } = place;
    if (turn === undefined) {
      super.append(place, from);
      return;
    }
    const waiter = place as Waiter;
    const queue = this.#queueOf(turn);
    turn.item = waiter;
    if (!waiter.awaited) {
      // the holder knows the instant, so no later caller may overtake those that go before it
      for (queue.enter(turn); !this.#ranks.isNext(turn); ) this.#promote(from);
      queue.charge(turn);
      super.append(waiter, from);
      return;
    }
    this.#ranks.start(queue, waiter.asked);
    queue.append(turn);
    this.count(waiter, 1);
    if (waiter.deadline < Infinity) this.#deadlines.push(turn);
  }

  override granted(turn: Turn<Waiter>, at: number): void {
    const queue = this.#queueOf(turn);
    if (this.head === undefined) for (const one of this.#ranks.list) one.reset();
    queue.enter(turn);
    queue.charge(turn);
    this.#ranks.served(queue, at);
  }

  override remove(place: LineEntry, at?: number): boolean {
    const { turn } = place;
    if (turn === undefined) return super.remove(place);
    if (turn.share === undefined) {
      if (at === undefined) this.#queueOf(turn).refund(turn);
      return super.remove(place);
    }
    this.#leave(turn, at);
    return false;
  }

  /** The waiters of the share that asks for most permits, then those of the next one. */
  protected override *oldest(): Iterable<Waiter> {
    const shares = this.#ranks.list.flatMap((queue) => queue.shares);
    for (const { first } of shares.sort((a, b) => b.permits - a.permits)) {
      for (let turn = first; turn !== undefined; turn = turn.after) yield turn.item as Waiter;
    }
  }

  /** The waiter that goes next of those that may still be overtaken. */
  get #first(): Waiter | undefined {
    return this.#ranks.next?.head?.item;
  }

  /** Moves that waiter to the line: it is not overtaken any more. */
  #promote(from: number): void {
    const waiter = this.#first as Waiter;
    this.#leave(waiter.turn as Turn<Waiter>, instantOf(waiter, super.replay(from)));
    super.append(waiter, from);
  }

  /** Only waiters with a deadline need the forecast. */
  override refuseLate(from: number): void {
    if (this.urgent === undefined) super.replay(from);
    else this.replay(from);
  }

  override replay(from: number, turn?: Turn<Waiter>): Readonly<Promised> {
    const { policyState, at } = super.replay(from);
    const promised: Promised = { policyState: policyState.copy(), at, last: undefined };
    const refused: Waiter[] = [];
    const forecast = this.#ranks.with(this.#ranks.list.map((queue) => queue.forecast(turn)));
    for (let { next } = forecast; next !== undefined; next = forecast.next) {
      if (turn !== undefined && forecast.isNext(turn)) break;
      const waiter = next.head?.item as Waiter;
      const instant = instantOf(waiter, promised);
      const isRefused = Math.ceil(instant) > waiter.deadline;
      next.shift(!isRefused);
      if (isRefused) {
        refused.push(waiter);
        continue;
      }
      promised.policyState.take(instant, waiter.taken);
      promised.at = instant;
      forecast.served(next, instant);
    }
    for (const waiter of refused) this.refuse(waiter);
    return promised;
  }

  #queueOf(turn: Turn<Waiter>): ShareQueue<Waiter> {
    return this.#ranks.list[turn.rank] as ShareQueue<Waiter>;
  }

  /** @param at when it is released; `undefined`: it is not */
  #leave(turn: Turn<Waiter>, at: number | undefined): void {
    const queue = this.#queueOf(turn);
    if (at === undefined) queue.remove(turn);
    else {
      queue.shift();
      this.#ranks.served(queue, at);
    }
    this.count(turn.item as Waiter, -1);
    if (turn.index >= 0) this.#deadlines.remove(turn);
  }
}

function deadlineOf({ item }: Turn<Waiter>): number {
  return (item as Waiter).deadline;
}
