import type { Policy, Quota } from "../algorithms/algorithm.ts";
import type { Bound } from "../ground/check.ts";
import { PermitsExceedCapacityError } from "../ground/errors.ts";
import { type Amount, combine } from "../ground/permits.ts";
import { Deadlines, type Due } from "../queue/deadlines.ts";
import { UNKNOWN } from "../queue/supply.ts";
import type { PolicyState } from "../stores/state/one.ts";

/** A wait of so many ms, or more, is not known. */
export const UNKNOWN_MS = UNKNOWN / 1e6;

/** Returns the answer as its caller sees it: a wait that is not known is `Infinity`. */
export function known<T extends { readonly waitMs: number }>(answer: T): T {
  return answer.waitMs < UNKNOWN_MS ? answer : { ...answer, waitMs: Infinity };
}

export interface Validity {
  /** Whether the part may not be used now: read from the clock before every look at the state. */
  readonly isOver: boolean;
  /** Permits were taken from this state: it may be a copy, which only looks ahead. */
  took(state: PartState, amount: Amount): void;
}

/**
 * The state of a part, for a queue. While the part is not valid, and for requests that are larger than the part but
 * not than the largest one, it is not known when a request can be granted: that depends on the other regions.
 */
export class PartState implements PolicyState {
  readonly #part: PolicyState;
  readonly #largest: PolicyState;
  readonly #reserve: PolicyState;
  readonly #validity: Validity;
  /** What is taken at an instant that is not known. */
  #later: Amount | undefined;

  /** @param largest the state of the largest part that it can grow to @param reserve that of the reserve, both full */
  constructor(part: PolicyState, largest: PolicyState, reserve: PolicyState, validity: Validity) {
    this.#part = part;
    this.#largest = largest;
    this.#reserve = reserve;
    this.#validity = validity;
  }

  earliest(from: number, amount: Amount): number {
    const isKnown = !this.#validity.isOver && from < UNKNOWN;
    const at = isKnown ? this.#part.earliest(from, amount) : Infinity;
    return at < Infinity || this.#isTooLarge(amount) ? at : UNKNOWN;
  }

  /** Takes the permits, if they can be used now. */
  takes(now: number, amount: Amount): boolean {
    if (this.#validity.isOver) return false;
    const at = this.#part.earliest(now, amount);
    if (at > now) return false;
    this.#part.take(at, amount, now);
    this.#validity.took(this, amount);
    return true;
  }

  /** A part may shrink below a request that waits in time. */
  deadlines<Item extends Due>(): Deadlines<Item> {
    return new Deadlines();
  }

  #isTooLarge(amount: Amount): boolean {
    return this.#largest.earliest(0, amount) === Infinity;
  }

  instants(from: number, amount: Amount): readonly number[] {
    const instants = this.#part.instants(from, amount);
    return instants.map((at) => (at < Infinity ? at : UNKNOWN));
  }

  excess(now: number, amount: Amount): PermitsExceedCapacityError {
    const { policy, permits, capacity } = this.#largest.excess(now, amount).facts;
    const why = " in the largest part of a region: that depends on the option reserve";
    return new PermitsExceedCapacityError(policy, permits, capacity, why);
  }

  copy(): PartState {
    const copy = new PartState(this.#part.copy(), this.#largest, this.#reserve, this.#validity);
    copy.#later = this.#later;
    return copy;
  }

  get names(): readonly string[] {
    return this.#part.names;
  }

  get state(): unknown {
    return this.#part.state;
  }

  set state(state: unknown) {
    this.#part.state = state;
  }

  get isStrict(): boolean {
    return this.#part.isStrict;
  }

  get isBounded(): boolean {
    return this.#part.isBounded;
  }

  amount(permits: unknown, bound?: Bound): Amount {
    return this.#part.amount(permits, bound);
  }

  take(at: number, amount: Amount, start?: number): void {
    if (at >= UNKNOWN) this.#later = sum(this.#later, amount);
    else {
      this.#part.take(at, amount, start);
      this.#validity.took(this, amount);
    }
  }

  giveBack(now: number, amount: Amount): void {
    this.#part.giveBack(now, amount);
  }

  settle(now: number, amount: Amount): void {
    this.#part.settle(now, amount);
  }

  /** What is not valid has no permit, however small it is. */
  quotas(now: number): readonly Quota[] {
    const quotas = this.#part.quotas(now);
    return this.#validity.isOver
      ? quotas.map((one) => ({ ...one, limit: 0, remaining: 0 }))
      : quotas;
  }

  deficit(now: number): readonly number[] {
    return this.#part.deficit(now);
  }

  /** While the part is not valid, the line is that of the reserve. */
  overflowing(now: number, amount: Amount): number {
    return this.#validity.isOver
      ? this.#reserve.overflowing(0, sum(this.#later, amount))
      : this.#part.overflowing(now, amount);
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.#part.resize(now, policies, epoch);
  }

  restart(now: number, epoch: number): void {
    this.#part.restart(now, epoch);
  }

  lifetime(now: number): number {
    return this.#part.lifetime(now);
  }

  shift(by: number): void {
    this.#part.shift(by);
  }
}

function sum(amount: Amount | undefined, more: Amount): Amount {
  return amount === undefined ? more : combine(amount, more, (is, plus = 0) => is + plus);
}
