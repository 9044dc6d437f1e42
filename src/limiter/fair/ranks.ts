/**
 * Strict priorities: a queue for each, the highest first. With aging a queue that has waited for `aging`
 * without a service is served one request before higher ones; of several such queues the one that has waited
 * longest. So each queue with waiters is served once in `aging`, and the higher ones lose no more than that.
 */
import type { Turn } from "./turn.ts";

/** The requests of one priority, or the forecast of them. */
export interface Rank<Item> {
  /** The request that is served next. */
  readonly head: Turn<Item> | undefined;
  /** Since when no request was served while requests waited. */
  since: number;
  isNext(turn: Turn<Item>): boolean;
}

export class Ranks<Item, R extends Rank<Item>> {
  readonly list: readonly R[];
  readonly #aging: number;
  /** The instant of the last service. */
  #at: number;

  /** @param aging in the unit of the instants; `Infinity`: none */
  constructor(list: readonly R[], aging: number, at = 0) {
    this.list = list;
    this.#aging = aging;
    this.#at = at;
  }

  /** The priority that is served next; `undefined` if no request waits. */
  get next(): R | undefined {
    const first = this.list.find(({ head }) => head !== undefined);
    if (this.#aging === Infinity) return first;
    let next: R | undefined;
    for (const rank of this.list) {
      if (rank.head === undefined || !this.#isAged(rank)) continue;
      if (next === undefined || rank.since < next.since) next = rank;
    }
    return next ?? first;
  }

  /** Whether that request would be served next. */
  isNext(turn: Turn<Item>): boolean {
    const { next } = this;
    if (next === undefined) return true;
    const index = this.list.indexOf(next);
    return index === turn.rank ? next.isNext(turn) : index > turn.rank && !this.#isAged(next);
  }

  /** Called before a request is added. */
  start(rank: R, now: number): void {
    if (rank.head === undefined) rank.since = now;
    if (this.next === undefined) this.#at = now;
  }

  /** Called when a request of that priority was served. */
  served(rank: R, at: number): void {
    rank.since = at;
    this.#at = at;
  }

  /** Returns the same with other queues: a forecast. */
  with<Other extends Rank<Item>>(list: readonly Other[]): Ranks<Item, Other> {
    return new Ranks(list, this.#aging, this.#at);
  }

  #isAged({ since }: R): boolean {
    return this.#at >= since + this.#aging;
  }
}
