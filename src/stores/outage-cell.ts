/**
 * The state that a process uses while its store is unavailable: the same policies with a share of the
 * permits, starting from the last known state of the store; or no limit at all.
 */
import type { Policy, Quota } from "../algorithms/algorithm.ts";
import { share } from "../algorithms/index.ts";
import type { Bound } from "../ground/check.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import { type Amount, combine, sizeOf } from "../ground/permits.ts";
import type { Cell } from "./cell.ts";
import { openCell } from "./joint-cell.ts";
import type { PolicyList } from "./policies.ts";

/** A year, microseconds: a state that has been idle for so long is as full as it can be. */
const FOR_EVER = 2 ** 45;

export interface OutageCell extends Cell {
  /**
   * Returns the permits to charge to the store when it is back.
   *
   * @param sentWasRun whether the store has run the changes that were sent before the outage
   */
  used(now: number, sentWasRun: boolean): Amount;
  /**
   * Applies a change that was sent before the outage.
   *
   * @param countsAsRun whether the change must not happen twice, so that it is never sent again
   */
  changeSent(deed: (cell: Cell) => void, countsAsRun: boolean): void;
  /** Applies other numbers, or another share of them. */
  reshare(now: number, policies: readonly Policy[], fraction: number, epoch: number): void;
}

/** The state of the store in its last reply about it. */
export interface Snapshot {
  /** How many permits each policy lacked. */
  readonly owed: readonly number[];
  /** The age of that reply, microseconds. */
  readonly ago: number;
  /** The permits that this process has taken since: charged in full to its share. */
  readonly since: Amount;
}

abstract class DelegatingCell implements Cell {
  protected readonly cell: Cell;

  constructor(cell: Cell) {
    this.cell = cell;
  }

  get names(): readonly string[] {
    return this.cell.names;
  }

  get state(): unknown {
    return this.cell.state;
  }

  set state(state: unknown) {
    this.cell.state = state;
  }

  get isStrict(): boolean {
    return this.cell.isStrict;
  }

  get isBounded(): boolean {
    return this.cell.isBounded;
  }

  amount(permits: unknown, bound?: Bound): Amount {
    return this.cell.amount(permits, bound);
  }

  abstract earliest(from: number, amount: Amount): number;

  take(at: number, amount: Amount): void {
    this.cell.take(at, amount);
  }

  giveBack(now: number, amount: Amount): void {
    this.cell.giveBack(now, amount);
  }

  settle(now: number, amount: Amount): void {
    this.cell.settle(now, amount);
  }

  quotas(now: number): readonly Quota[] {
    return this.cell.quotas(now);
  }

  owed(now: number): readonly number[] {
    return this.cell.owed(now);
  }

  excess(now: number, amount: Amount): PermitsExceedCapacityError {
    return this.cell.excess(now, amount);
  }

  overflowing(now: number, amount: Amount): number {
    return this.cell.overflowing(now, amount);
  }

  allows(from: number, now: number, amount: Amount): readonly boolean[] {
    return this.cell.allows(from, now, amount);
  }

  slowest(from: number, amount: Amount): number {
    return this.cell.slowest(from, amount);
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.cell.resize(now, policies, epoch);
  }

  restart(now: number, epoch: number): void {
    this.cell.restart(now, epoch);
  }

  lifetime(now: number): number {
    return this.cell.lifetime(now);
  }

  shift(by: number): void {
    this.cell.shift(by);
  }

  abstract copy(): Cell;
}

/**
 * A share of the permits. A request that is larger than the share can hold is lent permits: it is granted
 * when the share is full, and the next requests wait for the debt. So each request that could be granted
 * before still can, and the mean rate is that of the share.
 */
export class ShareCell extends DelegatingCell implements OutageCell {
  /** The state as if no request had been granted in this process. */
  readonly #idle: Cell;
  /** The same, as if the store had run the changes that were sent before the outage. */
  #idleIfRun: Cell | undefined;
  #most: Amount;

  /**
   * @param snapshot undefined if the state of the store is unknown: the cell then begins like a new limiter
   * @param epoch Unix time at 0, whole microseconds
   */
  static open(
    policies: PolicyList,
    fraction: number,
    snapshot: Snapshot | undefined,
    now: number,
    epoch: number,
  ): ShareCell {
    const list = policies.list.map((policy) => share(policy, fraction));
    const begin = snapshot === undefined ? now : now - FOR_EVER;
    const cell = openCell({ names: policies.names, list }, begin, epoch);
    if (snapshot !== undefined) {
      const { owed, ago, since } = snapshot;
      const shape = cell.amount(1);
      const part = combine(shape, amountLike(shape, owed), (_, permits = 0) => permits * fraction);
      if (sizeOf(part) > 0) cell.settle(now - ago, part);
      if (sizeOf(since) > 0) cell.settle(now, since);
    }
    return new ShareCell(cell, cell.copy(), mostOf(cell, list, now));
  }

  private constructor(cell: Cell, idle: Cell, most: Amount) {
    super(cell);
    this.#idle = idle;
    this.#most = most;
  }

  earliest(from: number, amount: Amount): number {
    const at = this.cell.earliest(from, amount);
    return at < Infinity ? at : this.cell.earliest(from, this.#atMost(amount));
  }

  override allows(from: number, now: number, amount: Amount): readonly boolean[] {
    return this.cell.allows(from, now, this.#atMost(amount));
  }

  override slowest(from: number, amount: Amount): number {
    return this.cell.slowest(from, this.#atMost(amount));
  }

  override shift(by: number): void {
    this.cell.shift(by);
    this.#idle.shift(by);
    this.#idleIfRun?.shift(by);
  }

  override copy(): ShareCell {
    const copy = new ShareCell(this.cell.copy(), this.#idle.copy(), this.#most);
    copy.#idleIfRun = this.#idleIfRun?.copy();
    return copy;
  }

  used(now: number, sentWasRun: boolean): Amount {
    const owed = amountLike(this.#most, this.cell.owed(now));
    const idle = (sentWasRun ? this.#idleIfRun : undefined) ?? this.#idle;
    return combine(owed, amountLike(owed, idle.owed(now)), (more, less = 0) => more - less);
  }

  changeSent(deed: (cell: Cell) => void, countsAsRun: boolean): void {
    this.#idleIfRun ??= this.#idle.copy();
    deed(this.cell);
    deed(this.#idleIfRun);
    if (countsAsRun) deed(this.#idle);
  }

  reshare(now: number, policies: readonly Policy[], fraction: number, epoch: number): void {
    const list = policies.map((policy) => share(policy, fraction));
    this.cell.resize(now, list, epoch);
    this.#idle.resize(now, list, epoch);
    this.#idleIfRun?.resize(now, list, epoch);
    this.#most = mostOf(this.cell, list, now);
  }

  #atMost(amount: Amount): Amount {
    return combine(amount, this.#most, (permits, most = Infinity) => Math.min(permits, most));
  }
}

/** Grants every request. */
export class OpenCell extends DelegatingCell implements OutageCell {
  earliest(from: number): number {
    return from;
  }

  override allows(): readonly boolean[] {
    return this.names.map(() => true);
  }

  override take(): void {}

  override giveBack(): void {}

  override settle(): void {}

  override get isBounded(): boolean {
    return false;
  }

  override copy(): OpenCell {
    return this;
  }

  override owed(): readonly number[] {
    return [];
  }

  used(): Amount {
    return 0;
  }

  changeSent(): void {}

  reshare(): void {}
}

/** Returns the largest request that each policy can ever grant. */
function mostOf(cell: Cell, policies: readonly Policy[], now: number): Amount {
  const limits = cell.quotas(now).map(({ limit }, i) => policies[i]?.largest ?? limit);
  return amountLike(cell.amount(1), limits);
}

function amountLike(shape: Amount, numbers: readonly number[]): Amount {
  return typeof shape === "number" ? (numbers[0] ?? 0) : numbers;
}
