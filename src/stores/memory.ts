/**
 * The state of one key in memory, under one policy or several. Several policies are asked in turn, each
 * from the instant that the previous one returned, until all agree; then permits are taken from all of
 * them or from none.
 */
import type { Policy, Quota } from "../algorithms/algorithm.ts";
import { type Bound, show } from "../ground/check.ts";
import { PermitsExceedCapacityError } from "../ground/errors.ts";
import { type Amount, listPermits, TRY_OPTIONS } from "../ground/permits.ts";
import { noteRenumbering } from "../ground/revision.ts";

/** One policy, or several by name. */
export type Policies = Policy | Readonly<Record<string, Policy>>;

/** The name of a policy that is passed without a name. */
const ONLY = "default";
const ONLY_NAMES: readonly string[] = [ONLY];

/**
 * Times are microseconds on the time scale of the owner; `amount` is the result of `cell.amount()` for
 * the caller's permits.
 */
export interface Cell {
  readonly names: readonly string[];
  /** The state; a table of many keys sets each key's state in turn on one cell. */
  state: unknown;
  /** Checks the permits of a request and returns them in the order of the policies. */
  amount(permits: unknown, bound?: Bound): Amount;
  /**
   * Returns the first instant at or after `from` on which all policies agree; `Infinity` if there is
   * none.
   */
  earliest(from: number, amount: Amount): number;
  /**
   * @param start when the caller starts, if that is later than the instant for which it was booked;
   *   strict policies charge at this instant
   */
  take(at: number, amount: Amount, start?: number): void;
  giveBack(now: number, amount: Amount): void;
  /** Charges permits that were used outside of this state. */
  settle(now: number, amount: Amount): void;
  quotas(now: number): readonly Quota[];
  /** Returns how many permits each policy lacks to be full. */
  owed(now: number): readonly number[];
  /** Returns the error for a request for which `earliest` is `Infinity`. */
  excess(now: number, amount: Amount): PermitsExceedCapacityError;
  /** Whether a policy charges its waiters at the instants at which they start. */
  readonly isStrict: boolean;
  /** Whether a policy bounds how many permits may wait. */
  readonly isBounded: boolean;
  /**
   * Returns the index of a policy that rejects the permits, which are not available at `now`, instead of
   * letting them wait; -1 if there is none.
   */
  overflowing(now: number, amount: Amount): number;
  /** Returns for each policy whether it alone would grant the permits at `now`. */
  allows(from: number, now: number, amount: Amount): readonly boolean[];
  /** Returns the index of the policy that alone would make these permits wait longest. */
  slowest(from: number, amount: Amount): number;
  resize(now: number, policies: readonly Policy[], epoch: number): void;
  /** Returns for how many microseconds the state must be kept; after that a new one is equivalent. */
  lifetime(now: number): number;
  /** Adds `by` to all instants. */
  shift(by: number): void;
  copy(): Cell;
}

/** Policies and their names, in the same order. */
export interface PolicyList {
  readonly names: readonly string[];
  readonly list: readonly Policy[];
}

/** Checks the policies and returns them as a list with their names. */
export function listPolicies(policies: unknown): PolicyList {
  if (isPolicy(policies)) return { names: ONLY_NAMES, list: [policies] };
  if (typeof policies !== "object" || policies === null || Array.isArray(policies)) {
    throw new TypeError(`policies must be a policy, or policies by name, got ${show(policies)}`);
  }
  const entries = Object.entries(policies);
  if (entries.length === 0) throw new RangeError("policies must name at least one policy");
  const list = entries.map(([name, policy]): Policy => {
    if (TRY_OPTIONS.includes(name)) {
      throw new TypeError(`a policy cannot be named "${name}": that is an option of tryAcquire`);
    }
    if (isPolicy(policy)) return policy;
    throw new TypeError(`policies.${name} must be a policy, as smoothBursty() makes one`);
  });
  return { names: entries.map(([name]) => name), list };
}

/**
 * Returns the new policies in the order of the old ones. Throws unless names and algorithms are the same.
 */
export function renumber(before: PolicyList, after: PolicyList): PolicyList {
  noteRenumbering();
  const list = before.names.flatMap((name) => after.list[after.names.indexOf(name)] ?? []);
  const same = list.filter(({ algorithm }, i) => algorithm === before.list[i]?.algorithm);
  if (same.length === before.list.length && same.length === after.list.length) {
    return { names: before.names, list };
  }
  throw new TypeError(
    `update must keep names and algorithms (${describe(before)}), got (${describe(after)})`,
  );
}

function describe({ names, list }: PolicyList): string {
  return names.map((name, i) => `${name}: ${list[i]?.algorithm.name}`).join(", ");
}

function isPolicy(value: unknown): value is Policy {
  return typeof (value as Partial<Policy> | null | undefined)?.algorithm?.earliest === "function";
}

/** @param epoch Unix time at 0 of the owner's time scale, whole microseconds */
export function openCell(policies: PolicyList, now: number, epoch: number): Cell {
  return cellOn(policies, freshState(policies, now, epoch));
}

/** Returns the state of a new key. */
export function freshState(policies: PolicyList, now: number, epoch: number): unknown {
  const states = policies.list.map((policy) => {
    const state = policy.algorithm.start(policy, now);
    policy.algorithm.align?.(policy, state, epoch);
    return state;
  });
  return isLone(policies) ? states[0] : states;
}

/** Resets the state of a cell in place, because other cells may share the state. */
export function restart(cell: Cell, policies: PolicyList, now: number, epoch: number): void {
  const states = (state: unknown) => (isLone(policies) ? [state] : (state as object[]));
  const fresh = states(freshState(policies, now, epoch));
  states(cell.state).forEach((state, i) => {
    Object.assign(state as object, fresh[i]);
  });
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

class SingleCell implements Cell {
  #policy: Policy;
  #state: unknown;

  constructor(policy: Policy, state: unknown) {
    this.#policy = policy;
    this.#state = state;
  }

  get state(): unknown {
    return this.#state;
  }

  set state(state: unknown) {
    this.#state = state;
  }

  get names(): readonly string[] {
    return ONLY_NAMES;
  }

  amount(permits: unknown, bound?: Bound): number {
    if (typeof permits === "number" && permits > 0 && permits < Infinity) return permits;
    return listPermits(permits, ONLY_NAMES, bound)[0] as number;
  }

  earliest(from: number, permits: number): number {
    return this.#policy.algorithm.earliest(this.#policy, this.#state, from, permits);
  }

  take(at: number, permits: number, start = at): void {
    const charged = this.#policy.strict === true ? start : at;
    this.#policy.algorithm.take(this.#policy, this.#state, charged, permits);
  }

  giveBack(now: number, permits: number): void {
    this.#policy.algorithm.giveBack(this.#policy, this.#state, now, permits);
  }

  settle(now: number, permits: number): void {
    const { algorithm } = this.#policy;
    if (algorithm.settle) algorithm.settle(this.#policy, this.#state, now, permits);
    else this.take(now, permits);
  }

  quota(now: number): Quota {
    return this.#policy.algorithm.quota(this.#policy, this.#state, now);
  }

  quotas(now: number): readonly Quota[] {
    return [this.quota(now)];
  }

  owed(now: number): readonly [number] {
    return [this.#policy.algorithm.owed(this.#policy, this.#state, now)];
  }

  allows(from: number, now: number, permits: number): readonly boolean[] {
    return [this.earliest(from, permits) <= now];
  }

  slowest(): number {
    return 0;
  }

  excess(now: number, permits: number, name = ONLY): PermitsExceedCapacityError {
    const capacity = this.#policy.largest ?? this.quota(now).limit;
    return new PermitsExceedCapacityError(name, permits, capacity);
  }

  get isStrict(): boolean {
    return this.#policy.strict === true;
  }

  get isBounded(): boolean {
    return this.#policy.maxWaiting !== undefined;
  }

  overflowing(now: number, permits: number): number {
    const { algorithm } = this.#policy;
    return algorithm.overflows?.(this.#policy, this.#state, now, permits) ? 0 : -1;
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    for (const policy of policies) {
      policy.algorithm.resize(policy, this.#state, now, this.#policy);
      policy.algorithm.align?.(policy, this.#state, epoch);
      this.#policy = policy;
    }
  }

  lifetime(now: number): number {
    return this.#policy.algorithm.lifetime(this.#policy, this.#state, now);
  }

  shift(by: number): void {
    this.#policy.algorithm.shift(this.#state, by);
  }

  copy(): SingleCell {
    return new SingleCell(this.#policy, this.#policy.algorithm.copy(this.#state));
  }
}

/**
 * Each amount is a list in the order of the policies; a policy that gets no permits (undefined, 0) does
 * not affect the result.
 */
class JointCell implements Cell {
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
