/**
 * The state of one key in memory, under several policies. They are asked in turn, each from the instant
 * that the previous one returned, until all agree; then permits are taken from all of them or from none.
 */
import type { Policy, Quota } from "../algorithms/algorithm.ts";
import type { Bound } from "../ground/check.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import { listPermits } from "../ground/permits.ts";
import { type Cell, ONLY, SingleCell, startOf } from "./cell.ts";
import type { PolicyList } from "./policies.ts";

/** @param epoch Unix time at 0 of the owner's time scale, whole microseconds */
export function openCell(policies: PolicyList, now: number, epoch: number): Cell {
  return cellOn(policies, freshState(policies, now, epoch));
}

/** Returns the state of a new key. */
export function freshState(policies: PolicyList, now: number, epoch: number): unknown {
  const states = policies.list.map((policy) => startOf(policy, now, epoch));
  return isLone(policies) ? states[0] : states;
}

/** Returns a cell on an existing state. */
export function cellOn(policies: PolicyList, state: unknown): Cell {
  const { names, list } = policies;
  if (isLone(policies)) return new SingleCell(list[0] as Policy, state);
  const states = state as readonly unknown[];
  return new JointCell(
    names,
    list.map((policy, i) => new SingleCell(policy, states[i])),
  );
}

/** Whether the list is one policy that was passed without a name. */
function isLone({ names }: PolicyList): boolean {
  return names.length === 1 && names[0] === ONLY;
}

/**
 * Each amount is a list in the order of the policies; a policy that gets no permits (undefined, 0) does
 * not affect the result.
 */
export class JointCell implements Cell {
  readonly names: readonly string[];
  readonly #cells: readonly SingleCell[];

  constructor(names: readonly string[], cells: readonly SingleCell[]) {
    this.names = names;
    this.#cells = cells;
  }

  get state(): unknown {
    return this.#cells.map(({ state }) => state);
  }

  set state(states: unknown) {
    this.#cells.forEach((cell, i) => {
      cell.state = (states as readonly unknown[])[i];
    });
  }

  amount(permits: unknown, bound?: Bound): readonly (number | undefined)[] {
    return listPermits(permits, this.names, bound);
  }

  earliest(from: number, amounts: readonly (number | undefined)[]): number {
    let at = from;
    for (;;) {
      let agreed = at;
      this.#each(amounts, (cell, permits) => {
        agreed = cell.earliest(agreed, permits);
      });
      if (!(agreed > at)) return at;
      at = agreed;
    }
  }

  take(at: number, amounts: readonly (number | undefined)[], start = at): void {
    this.#each(amounts, (cell, permits) => cell.take(at, permits, start));
  }

  giveBack(now: number, amounts: readonly (number | undefined)[]): void {
    this.#each(amounts, (cell, permits) => cell.giveBack(now, permits));
  }

  settle(now: number, amounts: readonly (number | undefined)[]): void {
    this.#each(amounts, (cell, permits) => cell.settle(now, permits));
  }

  quotas(now: number): readonly Quota[] {
    return this.#cells.map((cell) => cell.quota(now));
  }

  owed(now: number): readonly number[] {
    return this.#cells.map((cell) => cell.owed(now)[0]);
  }

  allows(from: number, now: number, amounts: readonly (number | undefined)[]): readonly boolean[] {
    return this.#cells.map((cell, i) => {
      const permits = amounts[i];
      return !permits || cell.earliest(from, permits) <= now;
    });
  }

  slowest(from: number, amounts: readonly (number | undefined)[]): number {
    let slowest = 0;
    let latest = -Infinity;
    this.#each(amounts, (cell, permits, index) => {
      const at = cell.earliest(from, permits);
      if (at > latest) {
        latest = at;
        slowest = index;
      }
    });
    return slowest;
  }

  excess(now: number, amounts: readonly (number | undefined)[]): PermitsExceedCapacityError {
    const excesses: PermitsExceedCapacityError[] = [];
    this.#each(amounts, (cell, permits, index) => {
      if (cell.earliest(now, permits) === Infinity) {
        excesses.push(cell.excess(now, permits, this.names[index]));
      }
    });
    return excesses[0] as PermitsExceedCapacityError;
  }

  get isStrict(): boolean {
    return this.#cells.some((cell) => cell.isStrict);
  }

  get isBounded(): boolean {
    return this.#cells.some((cell) => cell.isBounded);
  }

  overflowing(now: number, amounts: readonly (number | undefined)[]): number {
    let first = -1;
    this.#each(amounts, (cell, permits, index) => {
      if (first < 0 && cell.overflowing(now, permits) === 0) first = index;
    });
    return first;
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.#cells.forEach((cell, i) => {
      cell.resize(now, policies.slice(i, i + 1), epoch);
    });
  }

  restart(now: number, epoch: number): void {
    for (const cell of this.#cells) cell.restart(now, epoch);
  }

  lifetime(now: number): number {
    return Math.max(...this.#cells.map((cell) => cell.lifetime(now)));
  }

  shift(by: number): void {
    for (const cell of this.#cells) cell.shift(by);
  }

  copy(): JointCell {
    return new JointCell(
      this.names,
      this.#cells.map((cell) => cell.copy()),
    );
  }

  #each(
    amounts: readonly (number | undefined)[],
    deed: (cell: SingleCell, permits: number, index: number) => void,
  ): void {
    this.#cells.forEach((cell, index) => {
      const permits = amounts[index];
      if (permits) deed(cell, permits, index);
    });
  }
}
