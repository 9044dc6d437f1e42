/**
 * Strict priorities: a queue for each, the highest first. With aging a queue that has waited for `aging`
 * without a service is served one request before higher ones; of several such queues the one that has waited
 * longest. So each queue with waiters is served once in `aging`, and the higher ones lose no more than that.
 */
import { type ShareForecast, ShareQueue } from "./share-queue.ts";
import type { Share, Turn } from "./turn.ts";

/** The requests of one priority, or the forecast of them. */
type Rank<Item> = ShareQueue<Item> | ShareForecast<Item>;

class Priorities<Item, R extends Rank<Item>> {
  protected readonly list: readonly R[];
  protected readonly aging: number;
  /** The instant of the last service. */
  protected at: number;

  constructor(list: readonly R[], aging: number, at: number) {
    this.list = list;
    this.aging = aging;
    this.at = at;
  }

  /** The request that is served next. */
  get head(): Turn<Item> | undefined {
    return this.next?.head;
  }

  /** The priority that is served next; `undefined` if no request waits. */
  protected get next(): R | undefined {
    const first = this.list.find(({ head }) => head !== undefined);
    if (this.aging === Infinity) return first;
    let next: R | undefined;
    for (const rank of this.list) {
      if (rank.head === undefined || !this.#isAged(rank)) continue;
      if (next === undefined || rank.since < next.since) next = rank;
    }
    return next ?? first;
  }

  /** Whether a request that has entered would be served next. */
  isNext(turn: Turn<Item>): boolean {
    const { next } = this;
    if (next === undefined) return true;
    const index = this.list.indexOf(next);
    return index === turn.rank ? next.isNext(turn) : index > turn.rank && !this.#isAged(next);
  }

  protected served(rank: R, at: number): void {
    rank.since = at;
    this.at = at;
  }

  #isAged({ since }: R): boolean {
    return this.at >= since + this.aging;
  }
}

/** The requests of a fair limiter. All instants are those of the limiter. */
export class Ranks<Item> extends Priorities<Item, ShareQueue<Item>> {
  /** How many requests wait, and for how many permits. */
  size = 0;
  permits = 0;

  /** @param aging in the unit of the instants; `Infinity`: none */
  constructor(count: number, aging: number) {
    super(
      Array.from({ length: count }, () => new ShareQueue<Item>()),
      aging,
      0,
    );
  }

  /** The shares with requests, the highest priority first. */
  get shares(): Share<Item>[] {
    return this.list.flatMap(({ shares }) => shares);
  }

  /** Called when the limiter has been idle: no share owes anything or has a request. */
  reset(): void {
    for (const queue of this.list) queue.reset();
  }

  /** Marks the arrival of a request, which is not in a queue yet. Returns whether it would be served next. */
  enter(turn: Turn<Item>): boolean {
    this.#queueOf(turn).enter(turn);
    return this.isNext(turn);
  }

  append(turn: Turn<Item>, item: Item, now: number): void {
    const queue = this.#queueOf(turn);
    turn.item = item;
    if (queue.head === undefined) queue.since = now;
    if (this.next === undefined) this.at = now;
    queue.append(turn);
    this.#count(turn, 1);
  }

  /** Removes a request that is not served. */
  remove(turn: Turn<Item>): void {
    this.#queueOf(turn).remove(turn);
    this.#count(turn, -1);
  }

  /** Serves the head. */
  shift(at: number): Item | undefined {
    const { next } = this;
    if (next === undefined) return undefined;
    this.served(next, at);
    const turn = next.shift();
    this.#count(turn, -1);
    return turn.item;
  }

  /** Serves a request that has entered, without a wait. @param at absent: the service does not end aging */
  charge(turn: Turn<Item>, at?: number): void {
    const queue = this.#queueOf(turn);
    queue.charge(turn);
    if (at !== undefined) this.served(queue, at);
  }

  /** Undoes the service of a request that was served in advance. */
  refund(turn: Turn<Item>): void {
    this.#queueOf(turn).refund(turn);
  }

  /** Returns the order in which the requests are served: see `ShareQueue.forecast`. */
  forecast(turn?: Turn<Item>): RanksForecast<Item> {
    const list = this.list.map((queue) => queue.forecast(turn));
    return new RanksForecast(list, this.aging, this.at);
  }

  #count({ size }: Turn<Item>, by: 1 | -1): void {
    this.size += by;
    this.permits += by * size;
  }

  #queueOf({ rank }: Turn<Item>): ShareQueue<Item> {
    return this.list[rank] as ShareQueue<Item>;
  }
}

/** The order in which the requests of `Ranks` are served, found without a change of them. */
class RanksForecast<Item> extends Priorities<Item, ShareForecast<Item>> {
  /** Passes the head. @param at when it is served; `undefined` if it leaves the queue without a service */
  shift(at: number | undefined): void {
    const next = this.next as ShareForecast<Item>;
    next.shift(at !== undefined);
    if (at !== undefined) this.served(next, at);
  }
}
