import { sizeOf } from "../../ground/permits.ts";
import { Line } from "../line.ts";
import type { LineEntry, Waiter } from "../waiter.ts";
import { Heap } from "./heap.ts";
import type { Ranks } from "./ranks.ts";
import type { ShareForecast, ShareQueue } from "./share-queue.ts";
import type { Turn } from "./turn.ts";

/**
 * The waiters of a fair limiter. In the line itself, first in, first out, are changes and callers whose
 * instant must not move any more: reservations, and the waiters that were before them. All others wait in the
 * queues of their shares, where later callers may overtake them.
 */
export class FairLine extends Line {
  readonly #ranks: Ranks<Waiter, ShareQueue<Waiter>>;
  readonly #deadlines = new Heap<Turn<Waiter>>((a, b) => deadlineOf(a) < deadlineOf(b));

  constructor(ranks: Ranks<Waiter, ShareQueue<Waiter>>) {
    super();
    this.#ranks = ranks;
  }

  override get head(): LineEntry | undefined {
    return this.front ?? this.first;
  }

  override get deadline(): number {
    const { first } = this.#deadlines;
    return first === undefined ? Infinity : deadlineOf(first);
  }

  override isNext(turn: Turn<Waiter>): boolean {
    this.enter(turn);
    return this.isFirst(turn) && this.front === undefined;
  }

  /** Marks the arrival of a request. */
  enter(turn: Turn<Waiter>): void {
    this.#queueOf(turn).enter(turn);
  }

  /** Whether a request that has entered would go before all that may still be overtaken. */
  isFirst(turn: Turn<Waiter>): boolean {
    return this.#ranks.isNext(turn);
  }

  override append(place: LineEntry): void {
    const { turn } = place;
    if (turn === undefined) {
      super.append(place);
      return;
    }
    const waiter = place as Waiter;
    const queue = this.#queueOf(turn);
    turn.item = waiter;
    if (!waiter.awaited) {
      queue.charge(turn);
      super.append(waiter);
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

  override overdue(instant: number): Waiter | undefined {
    const { first } = this.#deadlines;
    return first !== undefined && deadlineOf(first) < instant ? first.item : undefined;
  }

  /** The waiters of the share that asks for most permits, then those of the next one. */
  override oldestDroppable(permits: number): readonly Waiter[] {
    const found: Waiter[] = [];
    let left = permits;
    const shares = this.#ranks.list.flatMap((queue) => queue.shares);
    for (const { head } of shares.sort((a, b) => b.permits - a.permits)) {
      for (let turn = head; turn !== undefined && left > 0; turn = turn.next) {
        const waiter = turn.item as Waiter;
        if (waiter.drop === undefined) continue;
        found.push(waiter);
        left -= sizeOf(waiter.amount);
      }
    }
    return left > 0 ? [] : found;
  }

  /** The waiter that goes next of those that may still be overtaken. */
  get first(): Waiter | undefined {
    return this.#ranks.next?.head?.item;
  }

  /** Moves that waiter to the line: it goes at that instant, and is not overtaken any more. */
  promote(at: number): void {
    const waiter = this.first as Waiter;
    this.#leave(waiter.turn as Turn<Waiter>, at);
    super.append(waiter);
  }

  forecast(turn?: Turn<Waiter>): Ranks<Waiter, ShareForecast<Waiter>> {
    return this.#ranks.with(this.#ranks.list.map((queue) => queue.forecast(turn)));
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
