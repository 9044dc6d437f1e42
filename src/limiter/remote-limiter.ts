/**
 * A limiter whose state lives in a store elsewhere: one trip reserves and tells the wait, the
 * waiting is done here.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../check.ts";
import type { Clock } from "../clock.ts";
import { type PermitsExceedCapacityError, QueueFullError } from "../errors.ts";
import { type Amount, type Permits, sizeOf } from "../permits.ts";
import {
  type Cell,
  listPolicies,
  openCell,
  type Policies,
  type PolicyList,
  renumber,
} from "../stores/memory.ts";
import { type Answer, REFUSED, type Store } from "../stores/store.ts";
import { AbortGroups } from "./abort-groups.ts";
import { AcquireAsker, type Asker, type Desk, TryAsker } from "./asker.ts";
import { decision } from "./decision.ts";
import type { Decision, Limiter, Reservation, TryOptions, WaitOptions } from "./face.ts";
import { checkTryOptions, checkWaitOptions, mostWaiting } from "./options.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import { Trips } from "./trips.ts";
import { WaitLine } from "./wait-line.ts";

export interface RemoteOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /** Calls wait for a store that is away, instead of failing. */
  readonly patient: boolean;
  readonly clock: Clock;
  /**
   * The clock is the store's too, and the time travels with every trip: this, microseconds, added
   * to the clock's is Unix time. Absent: the store goes by its own clock.
   */
  readonly epoch: number | undefined;
  /** For a policy whose limit is kept elsewhere: where, among the keys that the store has. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
}

export class RemoteLimiter implements Limiter, Desk {
  readonly #declared: PolicyList;
  readonly #options: RemoteOptions;
  readonly #trips: Trips;
  readonly #line: WaitLine;
  readonly #signals = new AbortGroups<Asker>((asker, reason) => asker.abort(reason));
  /** Knows the policies' names and what can be asked of them; the state is not here. */
  readonly #cell: Cell;
  /** How many permits are slept for; and the reservations that may be. */
  #sleptFor = 0;
  readonly #reserved = new Set<RemoteReservation>();

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    this.#declared = declared;
    this.#options = options;
    this.#cell = openCell(declared, 0, 0);
    this.#line = new WaitLine(options.clock);
    const { list } = declared;
    this.#trips = new Trips(
      store,
      key,
      writePolicies(list, options.limitsKeptAt),
      { ...options, now: () => this.#line.now(), lateBy: () => this.#line.lateBy() },
      writePolicies(list),
    );
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const amount = this.#cell.amount(permits);
      const longest = this.#hasRoom(amount) ? Infinity : 0;
      this.#ask(new AcquireAsker(this, this.#line.now(), amount, longest, signal, resolve));
    });
  }

  tryAcquire(permits: Permits = 1, wait: number | TryOptions = 0): Promise<boolean> {
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const amount = this.#cell.amount(permits);
      const longest = this.#hasRoom(amount) ? micros : 0;
      this.#ask(new TryAsker(this, this.#line.now(), amount, longest, signal, resolve));
    });
  }

  async reserve(permits: Permits = 1): Promise<Reservation> {
    const amount = this.#cell.amount(permits);
    const longest = this.#hasRoom(amount) ? Infinity : 0;
    const request = (late: number) =>
      ({ verb: "reserve", amount, longest, late, count: 1 }) as const;
    const { answer, sentAt } = await this.#trips.send(request, { taken: amount });
    if (answer.wait === REFUSED) throw this.full(amount);
    if (answer.wait > 0 && answer.wait < Infinity && !this.#hasRoom(amount)) {
      this.giveBack(amount, answer);
      throw this.full(amount);
    }
    if (answer.wait === Infinity) throw this.excess(amount);
    const due = this.#dueAt(answer.wait, sentAt);
    const reservation = new RemoteReservation(
      this.#trips,
      this.#line,
      this.#cell,
      permits,
      amount,
      answer,
      due,
    );
    if (this.#options.maxWaiting < Infinity) this.#reserved.add(reservation);
    return reservation;
  }

  decide(permits: Permits = 1): Promise<Decision> {
    return this.#look("decide", permits);
  }

  peek(permits: Permits = 1): Promise<Decision> {
    return this.#look("peek", permits);
  }

  async #look(verb: "decide" | "peek", permits: Permits): Promise<Decision> {
    const amount = this.#cell.amount(permits);
    const request = (late: number) => ({ verb, amount, late });
    const { answer } = await this.#trips.send(request, {
      taken: verb === "decide" ? amount : 0,
      longest: 0,
    });
    if (answer.wait === Infinity) throw this.excess(amount);
    return decision(this.#cell.names, answer.quotas, amount, answer.wait, answer.slowest);
  }

  async charge(permits: Permits): Promise<void> {
    const amount = this.#possible(permits);
    await this.#trips.send(() => ({ verb: "charge", amount }));
  }

  async refund(permits: Permits): Promise<void> {
    const amount = this.#possible(permits);
    await this.#trips.send(() => ({ verb: "refund", amount }), { again: false });
  }

  /**
   * For everybody who asks from now on, and for those who wait here; what other processes were told
   * before stays.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.#line.holdUntil(this.#line.now() + micros);
    await this.#trips.send(() => ({ verb: "pause", micros }));
  }

  async update(policies: Policies): Promise<void> {
    const { list } = renumber(this.#declared, listPolicies(policies));
    await this.#trips.send(() => ({ verb: "set", numbers: writePolicies(list) }));
  }

  /** The declared numbers are in force again. */
  async reset(): Promise<void> {
    await this.#trips.send(() => ({ verb: "reset" }));
  }

  /** The policies in force, as the last reply told. */
  get policies(): readonly Policy[] {
    return readPolicies(this.#trips.inForce);
  }

  seat(asker: Asker, wait: number, sentAt: number): boolean {
    if (!this.#hasRoom(asker.amount)) return false;
    this.#sleptFor += sizeOf(asker.amount);
    asker.due = this.#dueAt(wait, sentAt);
    this.#line.add(asker, asker.asked + asker.longest);
    return true;
  }

  dismiss(asker: Asker): void {
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    if (asker.due === 0) return;
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.remove(asker);
  }

  leave(asker: Asker): void {
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.leave(asker);
  }

  giveBack(amount: Amount, answer: Answer): void {
    this.#trips.giveBack(amount, answer).catch(() => {});
  }

  full(amount: Amount): QueueFullError {
    const { name, maxWaiting } = this.#options;
    const most = mostWaiting(maxWaiting, this.policies);
    return new QueueFullError(name, sizeOf(amount), this.#waiting, most);
  }

  excess(amount: Amount): PermitsExceedCapacityError {
    return openCell({ names: this.#cell.names, list: this.policies }, 0, 0).excess(0, amount);
  }

  #ask(asker: Asker): void {
    if (asker.signal !== undefined) this.#signals.add(asker.signal, asker);
    this.#trips.ask(asker);
  }

  /** How many permits are waited for. */
  get #waiting(): number {
    let waiting = this.#sleptFor;
    for (const reservation of this.#reserved) {
      if (reservation.pending) waiting += reservation.size;
      else this.#reserved.delete(reservation);
    }
    return waiting;
  }

  #hasRoom(amount: Amount): boolean {
    return this.#waiting + sizeOf(amount) <= this.#options.maxWaiting;
  }

  /** By our own clock: the store's `now` was no later than the arrival of its answer. */
  #dueAt(wait: number, sentAt: number): number {
    return wait + (this.#options.epoch === undefined ? this.#line.now() : sentAt);
  }

  /** The amount, unless it is more than the policies could ever let through. */
  #possible(permits: Permits): Amount {
    const amount = this.#cell.amount(permits);
    if (this.#cell.earliest(0, amount) === Infinity) throw this.excess(amount);
    return amount;
  }
}
