/**
 * Strict priorities: a queue for each, the highest first. With aging a queue that has waited for `aging`
 * without a service is served one request before higher ones; of several such queues the one that has waited
 * longest. So each queue with waiters is served once in `aging`, and the higher ones lose no more than that.
 */

import type { FairEntry, HasFairEntry, Share } from "./fair-entry.ts";
import { ShareQueue } from "./share-queue.ts";

/** The requests of one priority, or the forecast of them. */
interface Rank {
  /** The request that is served next. */
  readonly head: unknown;
  /** Since when no request was served while requests waited. */
  since: number;
}

class Priorities<R extends Rank> {
  readonly list: readonly R[];
  readonly #aging: number;
  /** The instant of the last service. */
  #at: number;

  constructor(list: readonly R[], aging: number, at = 0) {
    this.list = list;
    this.#aging = aging;
    this.#at = at;
  }

  /**
   * Returns the priority that is served next; `undefined` if no request waits.
   *
   * @param joined a priority that counts as one with a request, which is made now
   */
  next(joined?: R): R | undefined {
    const first = this.list.find((rank) => rank === joined || rank.head !== undefined);
    let next: R | undefined;
    for (const rank of this.list) {
      if (rank.head === undefined || this.#at < rank.since + this.#aging) continue;
      if (next === undefined || rank.since < next.since) next = rank;
    }
    return next ?? first;
  }

  /** Called before a request is added. */
  start(rank: R, now: number): void {
    if (rank.head === undefined) rank.since = now;
    if (this.next() === undefined) this.#at = now;
  }

  /** Called when a request of that priority was served. */
  served(rank: R, at: number): void {
    rank.since = at;
    this.#at = at;
  }

  /** Returns the same with other queues: a forecast. */
  with<Other extends Rank>(list: readonly Other[]): Priorities<Other> {
    return new Priorities(list, this.#aging, this.#at);
  }
}

/**
 * The callers of a fair limiter that wait, with their shares and priorities. The instants are those of the
 * limiter; a service without one does not count for the aging.
 */
export class Ranks<Member extends HasFairEntry<Member>> {
  readonly #priorities: Priorities<ShareQueue<Member>>;
  #size = 0;
  #permits = 0;

  /** @param aging in the unit of the instants; `Infinity`: none */
  constructor(count: number, aging: number) {
    const list = Array.from({ length: count }, () => new ShareQueue<Member>());
    this.#priorities = new Priorities(list, aging);
  }

  get size(): number {
    return this.#size;
  }

  /** How many permits they ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** The member that is served next. */
  get head(): Member | undefined {
    return this.#priorities.next()?.head?.item;
  }

  /** The shares with members, in no order. */
  get shares(): Share<Member>[] {
    return this.#priorities.list.flatMap(({ shares }) => shares);
  }

  /** Share by share. */
  *[Symbol.iterator](): Generator<Member> {
    for (const share of this.shares) yield* share.items();
  }

  /** The next member of the share and the priority of a request. */
  nextOf(fairEntry: FairEntry<Member>): Member | undefined {
    return this.#queueOf(fairEntry).firstOf(fairEntry.name)?.item;
  }

  append(member: Member, at: number): void {
    const fairEntry = member.fairEntry as FairEntry<Member>;
    fairEntry.item = member;
    this.#append(fairEntry, at);
  }

  /** Removes a member that is not served. @returns whether it was one */
  remove({ fairEntry }: Member): boolean {
    if (fairEntry?.share === undefined) return false;
    this.#remove(fairEntry);
    return true;
  }

  #remove(fairEntry: FairEntry<Member>): void {
    this.#queueOf(fairEntry).remove(fairEntry);
    this.#count(fairEntry, -1);
  }

  /** Serves the head. */
  shift(at?: number): Member | undefined {
    const next = this.#priorities.next();
    if (next === undefined) return undefined;
    if (at !== undefined) this.#priorities.served(next, at);
    const fairEntry = next.shift();
    this.#count(fairEntry, -1);
    return fairEntry.item;
  }

  /** Serves a request that does not wait here. */
  charge(fairEntry: FairEntry<Member>, at: number): void {
    const queue = this.#queueOf(fairEntry);
    queue.charge(fairEntry);
    this.#priorities.served(queue, at);
  }

  /** Undoes the service of a request that was served in advance. */
  refund(fairEntry: FairEntry<Member>): void {
    this.#queueOf(fairEntry).refund(fairEntry);
  }

  /** Called when the limiter has been idle: no share owes anything. */
  reset(): void {
    for (const queue of this.#priorities.list) queue.reset();
  }

  /** Whether a request that is made now would be served before all members. */
  isNext(fairEntry: FairEntry<Member>): boolean {
    const queue = this.#queueOf(fairEntry);
    return this.#priorities.next(queue) === queue && queue.isNext(fairEntry);
  }

  /**
   * Passes the members in the order in which they are served if no other comes.
   *
   * @param fairEntry only those that are served before this request, which waits or is made now
   * @param pass returns when that member is served; `undefined`: it leaves without a service; `false`: enough
   */
  forecast(
    fairEntry: FairEntry<Member> | undefined,
    pass: (member: Member) => number | false | undefined,
  ): void {
    // a request that does not wait is put into its place meanwhile; it has not waited, so it is not aged
    const added = this.#size > 0 && fairEntry?.share === undefined ? fairEntry : undefined;
    if (added !== undefined) this.#append(added, Infinity);
    const priorities = this.#priorities.with(
      this.#priorities.list.map((queue) => queue.forecast()),
    );
    for (let next = priorities.next(); next !== undefined; next = priorities.next()) {
      if (next.head === fairEntry) break;
      const at = pass(next.head?.item as Member);
      if (at === false) break;
      next.shift(at !== undefined);
      if (at !== undefined) priorities.served(next, at);
    }
    if (added !== undefined) this.#remove(added);
  }

  #append(fairEntry: FairEntry<Member>, at: number): void {
    const queue = this.#queueOf(fairEntry);
    this.#priorities.start(queue, at);
    queue.append(fairEntry);
    this.#count(fairEntry, 1);
  }

  #count({ size }: FairEntry<Member>, by: 1 | -1): void {
    this.#size += by;
    this.#permits += by * size;
  }

  #queueOf({ rank }: FairEntry<Member>): ShareQueue<Member> {
    return this.#priorities.list[rank] as ShareQueue<Member>;
  }
}
