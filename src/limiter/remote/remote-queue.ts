/** The waiters of one limiter on a store: requests under way, sleeping callers and open reservations. */
import type { Policy } from "../../algorithms/algorithm.ts";
import { type PermitsExceedCapacityError, QueueFullError } from "../../ground/errors.ts";
import { type Amount, type Permits, sizeOf } from "../../ground/permits.ts";
import type { Cell } from "../../stores/cell.ts";
import { openCell } from "../../stores/joint-cell.ts";
import type { Answer } from "../../stores/store.ts";
import { AbortGroups } from "../../ground/abort-groups.ts";
import type { Meter } from "../meter.ts";
import { mostWaiting } from "../options.ts";
import type { Caller } from "./caller.ts";
import type { KeptLimits } from "./kept-limits.ts";
import type { OutageStats } from "./outage-stats.ts";
import type { PermitSource } from "./permit-link.ts";
import type { ChangeVerb } from "./permit-request.ts";
import type { RemoteReservation, ReservationHost } from "./remote-reservation.ts";
import type { RemoteWaiter } from "./remote-waiter.ts";
import type { WaitLine } from "./wait-line.ts";

export interface QueueContext {
  readonly name: string;
  readonly maxWaiting: number;
  /** The policies' names and bounds; the state itself is in the store. */
  readonly cell: Cell;
  readonly line: WaitLine;
  readonly limits: KeptLimits;
  readonly meter: Meter;
  readonly stats: OutageStats;
  readonly source: PermitSource;
  /** The policies in force, by the last reply. */
  policies(): readonly Policy[];
  /** How many permits callers wait for in the fallback while the store is away. */
  waitingHere(): number;
  dueAt(wait: number, sentAt: number): number;
  change(verb: ChangeVerb, amount: Amount): Promise<void>;
  checkOpen(): void;
}

export class RemoteQueue implements ReservationHost {
  readonly line: WaitLine;
  readonly meter: Meter;
  readonly dueAt: QueueContext["dueAt"];
  readonly change: QueueContext["change"];
  readonly checkOpen: QueueContext["checkOpen"];
  readonly #context: QueueContext;
  readonly #waiters = new Set<RemoteWaiter>();
  readonly #signals = new AbortGroups<RemoteWaiter>((waiter, reason) => waiter.leave(reason));
  /** Reservations for the count of `maxWaiting`: each counts only as long as it is pending. */
  readonly #reserved = new Set<RemoteReservation>();

  constructor(context: QueueContext) {
    this.#context = context;
    this.line = context.line;
    this.meter = context.meter;
    this.dueAt = context.dueAt;
    this.change = context.change;
    this.checkOpen = context.checkOpen;
  }

  /**
   * Empties the line and returns the promised permits to the store. Otherwise all callers with an
   * instant inside a pause would go at once when it ends.
   *
   * @returns the callers to request again, in order
   */
  recall(): readonly RemoteWaiter[] {
    // the line holds nothing but callers
    const callers = this.line.clear() as readonly Caller<unknown>[];
    for (const caller of callers) caller.returnPromised();
    return callers.filter((caller) => !caller.gone);
  }

  /** Rejects every waiter with the error. */
  close(error: Error): void {
    for (const waiter of [...this.#waiters]) waiter.leave(error);
  }

  // -- for the waiters --

  track(waiter: RemoteWaiter, signal: AbortSignal | undefined): void {
    this.#waiters.add(waiter);
    if (signal !== undefined) this.#signals.add(signal, waiter);
  }

  untrack(waiter: RemoteWaiter, signal: AbortSignal | undefined): void {
    this.#waiters.delete(waiter);
    if (signal !== undefined) this.#signals.delete(signal, waiter);
  }

  reserved(reservation: RemoteReservation): void {
    if (this.#context.maxWaiting < Infinity) this.#reserved.add(reservation);
  }

  returnToStore(amount: Amount, answer: Answer): Promise<void> {
    return this.#context.source.returnToStore(amount, answer);
  }

  amount(permits: Permits, bound?: Parameters<Cell["amount"]>[1]): Amount {
    return this.#context.cell.amount(permits, bound);
  }

  /** How many permits callers wait for, in this process. */
  get #waiting(): number {
    let waiting = this.line.permits + this.#context.waitingHere();
    for (const reservation of this.#reserved) {
      if (reservation.isPending) waiting += sizeOf(reservation.amount);
      else this.#reserved.delete(reservation);
    }
    return waiting;
  }

  hasRoom(amount: Amount): boolean {
    const { maxWaiting } = this.#context;
    return maxWaiting === Infinity || this.#waiting + sizeOf(amount) <= maxWaiting;
  }

  full(amount: Amount, policies = this.#context.policies()): QueueFullError {
    const { name, maxWaiting } = this.#context;
    const most = mostWaiting(maxWaiting, policies);
    return new QueueFullError(name, sizeOf(amount), this.#waiting, most);
  }

  excess(amount: Amount): PermitsExceedCapacityError {
    const closed = this.#context.limits.refusal(amount);
    if (closed !== undefined) return closed;
    const list = this.#context.policies();
    return openCell({ names: this.#context.cell.names, list }, 0, 0).excess(0, amount);
  }

  failure(error: unknown): unknown {
    return this.#context.stats.failed(error);
  }
}
