/** What a store has promised to the callers of this process, as the supply of their queue. */
import { type Amount, sameAmount } from "../ground/permits.ts";
import { type Supply, UNKNOWN } from "../queue/supply.ts";
import type { Answer } from "../stores/store.ts";
import type { DrawnPermits } from "./permit-buffer.ts";

/** What is needed to give permits back to the store: part of its answer. */
export interface Receipts extends Pick<Answer, "receipts"> {
  /** The chunks of a prefetcher that the permits came from. */
  readonly parts?: readonly DrawnPermits[] | undefined;
}

/** Permits that a store has promised. */
export interface Grant extends Receipts {
  readonly amount: Amount;
  /** From when they can be used, microseconds. */
  readonly instant: number;
}

/**
 * Returns the receipts with which a part of a grant is refunded. What was drawn from several chunks goes to the window of
 * the first: no request is granted before the last, and the first is over no later.
 */
export function receiptsOfPart({ receipts, parts }: Receipts): readonly number[] {
  return parts?.[0]?.chunk.receipts ?? receipts;
}

/** @param from the answer of the store, or of a prefetcher */
export function grantOf(amount: Amount, instant: number, { receipts, parts }: Receipts): Grant {
  // thousands of callers may wait, each with its grant
  return parts === undefined ? { amount, instant, receipts } : { amount, instant, receipts, parts };
}

/** The grants, in the order in which they came; those in front may be forgotten already. */
interface GrantList {
  grants: Grant[];
  /** How many are forgotten. */
  first: number;
}

/** Instants that are earlier by less than this (µs) count as equal: the time of a round trip varies. */
const JITTER = 1000;
const MOST_USED = 64;

/**
 * Grants in the order in which they came, and which of them are used. A copy shares the list, and has its own place in
 * it. So a replay costs nothing for the grants behind it, and sees those that come later.
 *
 * A waiter takes the first grant of its amount. Grants of other amounts before that one are left over; no later waiter
 * takes them: a grant that a small request takes at the instant of a large one in front is used later than it was
 * promised for, and together those would exceed the limit's bound. So each waiter finds a grant: its own one is
 * there as long as no waiter has taken it, and who takes it leaves a later one of the same amount.
 */
export class Grants implements Supply {
  readonly #list: GrantList;
  /** The grants before this one are used, or left over. */
  #next: number;
  readonly #leftOver: Grant[];

  constructor(list: GrantList = { grants: [], first: 0 }, next = 0, leftOver: Grant[] = []) {
    this.#list = list;
    this.#next = next;
    this.#leftOver = leftOver;
  }

  earliest(from: number, amount: Amount): number {
    const grant = this.#at(this.#find(amount));
    return grant === undefined ? UNKNOWN : Math.max(from, grant.instant);
  }

  take(_at: number, amount: Amount): void {
    const found = this.#find(amount);
    for (let i = this.#next; i < found; i++) this.#leftOver.push(this.#at(i) as Grant);
    this.#next = found + 1;
  }

  /**
   * Adds a grant, before those of the same amount that came last and are later.
   *
   * @returns whether it is the last one; if not, waiters have other instants now
   */
  add(grant: Grant): boolean {
    const { grants } = this.#list;
    this.#forgetUsed();
    let i = grants.length;
    const least = this.#next - this.#list.first;
    for (; i > least; i--) {
      const before = grants[i - 1] as Grant;
      if (before.instant <= grant.instant || !sameAmount(before.amount, grant.amount)) break;
    }
    const isLast = i === grants.length;
    const last = grants.at(-1);
    if (!isLast && last !== undefined && grant.instant >= last.instant - JITTER) {
      grants.push({ ...grant, instant: last.instant });
      return true;
    }
    grants.splice(i, 0, grant);
    return isLast;
  }

  /** The grants that no waiter has taken. */
  get rest(): readonly Grant[] {
    return [...this.#leftOver, ...this.#list.grants.slice(this.#next - this.#list.first)];
  }

  /** Removes grants. A copy that was made before must not be used any more. */
  remove(grants: ReadonlySet<Grant>): void {
    const stays = (grant: Grant) => !grants.has(grant);
    const list = this.#list;
    list.grants = list.grants.slice(this.#next - list.first).filter(stays);
    list.first = this.#next;
    const leftOver = this.#leftOver.filter(stays);
    this.#leftOver.splice(0, Infinity, ...leftOver);
  }

  copy(): Grants {
    return new Grants(this.#list, this.#next, [...this.#leftOver]);
  }

  #at(index: number): Grant | undefined {
    return this.#list.grants[index - this.#list.first];
  }

  /** Returns the index of the first grant of that amount; behind all if there is none. */
  #find(amount: Amount): number {
    const { grants, first } = this.#list;
    let i = this.#next - first;
    while (i < grants.length && !sameAmount((grants[i] as Grant).amount, amount)) i += 1;
    return first + i;
  }

  #forgetUsed(): void {
    const { grants, first } = this.#list;
    const used = this.#next - first;
    if (used < MOST_USED || used < grants.length / 2) return;
    grants.splice(0, used);
    this.#list.first = this.#next;
  }
}
