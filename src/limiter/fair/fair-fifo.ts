import { Fifo } from "../fifo.ts";
import type { Order } from "../order.ts";
import type { Ranks } from "./ranks.ts";
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
  protected readonly ranks: Ranks<Member>;
  protected readonly now: () => number;

  constructor(ranks: Ranks<Member>, now: () => number) {
    this.ranks = ranks;
    this.now = now;
  }

  get size(): number {
    return this.ranks.size;
  }

  get head(): Member | undefined {
    return this.ranks.head?.item;
  }

  /** Share by share. */
  *[Symbol.iterator](): Generator<Member> {
    for (const share of this.ranks.shares) yield* share.items();
  }

  append(member: Member): void {
    if (this.size === 0) this.begin();
    this.ranks.append(member.turn as Turn<Member>, member, this.now());
  }

  /** @returns whether it was a member */
  remove(member: Member): boolean {
    const turn = member.turn as Turn<Member>;
    if (turn.share === undefined) return false;
    this.ranks.remove(turn);
    return true;
  }

  shift(): Member | undefined {
    return this.ranks.shift(this.now());
  }

  /** Called when the first member comes. */
  protected begin(): void {
    this.ranks.reset();
  }
}
