import { Fifo } from "../fifo.ts";
import type { Order } from "../order.ts";
import type { Ranks } from "./ranks.ts";
import type { ShareQueue } from "./share-queue.ts";
import type { Turn } from "./turn.ts";

/** A member of such a queue. */
export interface Placed<Member> {
  readonly turn: Turn<Member> | undefined;
}

export type FifoQueue<Member> = Pick<
  Fifo<Member>,
  "size" | "head" | "append" | "remove" | "shift" | typeof Symbol.iterator
>;

/** Returns the queue of a limiter that has no state. @param now the time, microseconds */
export function fifoOf<Member extends Placed<Member>>(
  order: Order,
  now: () => number,
): FifoQueue<Member> {
  const ranks = order.ranks<Member>();
  return ranks === undefined ? new Fifo() : new FairFifo(ranks, now);
}

/** The waiters of a fair limiter that has no state: first in, first out within each share. */
export class FairFifo<Member extends Placed<Member>> implements FifoQueue<Member> {
  protected readonly ranks: Ranks<Member, ShareQueue<Member>>;
  protected readonly now: () => number;
  #size = 0;

  constructor(ranks: Ranks<Member, ShareQueue<Member>>, now: () => number) {
    this.ranks = ranks;
    this.now = now;
  }

  get size(): number {
    return this.#size;
  }

  get head(): Member | undefined {
    return this.ranks.next?.head?.item;
  }

  /** Share by share. */
  *[Symbol.iterator](): Generator<Member> {
    for (const { shares } of this.ranks.list) {
      for (const { first } of shares) {
        for (let turn = first; turn !== undefined; turn = turn.after) yield turn.item as Member;
      }
    }
  }

  append(member: Member): void {
    const turn = member.turn as Turn<Member>;
    const queue = this.queueOf(turn);
    if (this.#size === 0) this.begin();
    turn.item = member;
    this.ranks.start(queue, this.now());
    queue.append(turn);
    this.#size += 1;
  }

  /** @returns whether it was a member */
  remove(member: Member): boolean {
    const turn = member.turn as Turn<Member>;
    if (turn.share === undefined) return false;
    this.queueOf(turn).remove(turn);
    this.#size -= 1;
    return true;
  }

  shift(): Member | undefined {
    const { next } = this.ranks;
    if (next === undefined) return undefined;
    this.ranks.served(next, this.now());
    this.#size -= 1;
    return next.shift().item;
  }

  /** Called when the first member comes. */
  protected begin(): void {
    for (const one of this.ranks.list) one.reset();
  }

  protected queueOf(turn: Turn<Member>): ShareQueue<Member> {
    return this.ranks.list[turn.rank] as ShareQueue<Member>;
  }
}
