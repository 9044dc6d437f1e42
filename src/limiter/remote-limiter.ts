/**
 * A limiter whose state lives in a store elsewhere: one trip reserves and tells the wait, the
 * waiting is done here.
 */
import type { Policy, Quota } from "../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../check.ts";
import type { Clock } from "../clock.ts";
import { asyncDispose } from "../dispose.ts";
import { LimiterClosedError, type PermitsExceedCapacityError, QueueFullError } from "../errors.ts";
import { type Amount, type Permits, sizeOf } from "../permits.ts";
import {
  type Cell,
  listPolicies,
  openCell,
  type Policies,
  type PolicyList,
  renumber,
} from "../stores/memory.ts";
import { type Answer, REFUSED, type Store, type StoreRequest } from "../stores/store.ts";
import { AbortGroups } from "./abort-groups.ts";
import {
  AcquireAsker,
  type Asker,
  type Desk,
  ReserveAsker,
  SleepyAsker,
  TryAsker,
} from "./asker.ts";
import type { Arrival, Call } from "./call.ts";
import { decision } from "./decision.ts";
import type { Decision, Limiter, Reservation, TryOptions, WaitOptions } from "./face.ts";
import { AT_ONCE } from "./limiter.ts";
import { checkTryOptions, checkWaitOptions, mostWaiting } from "./options.ts";
import { type Host, RemoteReservation } from "./remote-reservation.ts";
import type { Part } from "./shelf.ts";
import { Stock, type StockOptions } from "./stock.ts";
import { type Sending, Trips } from "./trips.ts";
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
  /** Permits are reserved before somebody asks. */
  readonly prefetch?: StockOptions | undefined;
}

const GRANTED = Promise.resolve(true);

export class RemoteLimiter implements Limiter, Desk, Host, AsyncDisposable {
  readonly #declared: PolicyList;
  readonly #options: RemoteOptions;
  readonly #trips: Trips;
  readonly #line: WaitLine;
  readonly #stock: Stock | undefined;
  readonly #signals = new AbortGroups<Asker>((asker, reason) => asker.abort(reason));
  readonly #askers = new Set<Asker>();
  readonly awaited = new Set<RemoteReservation>();
  /** Knows the policies' names and what can be asked of them; the state is not here. */
  readonly #cell: Cell;
  /** How many permits are slept for; and the reservations that may be. */
  #sleptFor = 0;
  readonly #reserved = new Set<RemoteReservation>();
  #closing: Promise<void> | undefined;

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
    this.#stock = options.prefetch && this.#openStock(options.prefetch);
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    if (options === undefined && this.#stock?.take(permits)) return AT_ONCE;
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const amount = this.#cell.amount(permits);
      const longest = this.#hasRoom(amount) ? Infinity : 0;
      this.#ask(new AcquireAsker(this, this.#line.now(), amount, longest, signal, resolve));
    });
  }

  tryAcquire(permits: Permits = 1, wait: number | TryOptions = 0): Promise<boolean> {
    if (wait === 0 && this.#stock?.take(permits)) return GRANTED;
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
    const { answer, sentAt } = await new Promise<Arrival>((resolve) => {
      this.#ask(new ReserveAsker(this, this.#line.now(), amount, longest, undefined, resolve));
    });
    if (answer.wait === REFUSED) throw this.full(amount);
    if (answer.wait > 0 && answer.wait < Infinity && !this.#hasRoom(amount)) {
      this.giveBack(amount, answer);
      throw this.full(amount);
    }
    if (answer.wait === Infinity) throw this.excess(amount);
    const due = this.#dueAt(answer.wait, sentAt);
    const reservation = new RemoteReservation(
      this,
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

  /** What lies here decides, if it can; how the policies stand the store tells. */
  async #look(verb: "decide" | "peek", permits: Permits): Promise<Decision> {
    const amount = this.#cell.amount(permits);
    const here = this.#stock?.waitFor(amount);
    const taken = verb === "decide" && here === 0 ? this.#stock?.takeNow(amount) : undefined;
    const ready = this.#stock?.ready ?? 0;
    const asked = here === undefined ? verb : "peek";
    const request = (late: number) => ({ verb: asked, amount, late });
    try {
      const { answer } = await this.#send(request, {
        taken: asked === "decide" ? amount : 0,
        longest: 0,
      });
      if (answer.wait === Infinity) throw this.excess(amount);
      const quotas =
        ready === 0 ? answer.quotas : answer.quotas.map((each) => atLeast(each, ready));
      return decision(this.#cell.names, quotas, amount, here ?? answer.wait, answer.slowest);
    } catch (error) {
      if (taken !== undefined) this.giveBack(amount, taken);
      throw error;
    }
  }

  async charge(permits: Permits): Promise<void> {
    const amount = this.#possible(permits);
    await this.#send(() => ({ verb: "charge", amount }));
  }

  async refund(permits: Permits): Promise<void> {
    const amount = this.#possible(permits);
    await this.#send(() => ({ verb: "refund", amount }), { again: false });
  }

  /**
   * For everybody who asks from now on, and for those who wait here; what other processes were told
   * before stays.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.checkOpen();
    this.#line.holdUntil(this.#line.now() + micros);
    this.#stock?.pause();
    await this.#send(() => ({ verb: "pause", micros }));
  }

  async update(policies: Policies): Promise<void> {
    const { list } = renumber(this.#declared, listPolicies(policies));
    await this.#change(() => ({ verb: "set", numbers: writePolicies(list) }));
  }

  /** The declared numbers are in force again. */
  async reset(): Promise<void> {
    await this.#change(() => ({ verb: "reset" }));
  }

  /** What was reserved ahead by the numbers of before goes back first. */
  async #change(request: () => StoreRequest): Promise<void> {
    this.checkOpen();
    this.#stock?.release();
    await this.#trips.send(request);
  }

  /**
   * Ends the limiter in this process: who waits, in `ready()` too, is rejected with a
   * LimiterClosedError, and so is every further call. What they were promised is given back, and what
   * was reserved ahead. Reservations for which nobody waits stay their holders'.
   *
   * @returns when all that is done and nothing is under way any more, or after `timeoutMs`
   * @example
   * await limiter.close();
   * redis.disconnect();
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    const error = this.#closedError();
    for (const asker of [...this.#askers]) asker.abort(error);
    for (const reservation of [...this.awaited]) reservation.abort(error);
    this.#stock?.close();
    // the line closes its ranks, and what is left over goes back
    await Promise.resolve();
    await this.#trips.close(error);
  }

  checkOpen(): void {
    if (this.#closing !== undefined) throw this.#closedError();
  }

  #closedError(): LimiterClosedError {
    return new LimiterClosedError(this.#options.name);
  }

  /** The policies in force, as the last reply told. */
  get policies(): readonly Policy[] {
    return readPolicies(this.#trips.inForce);
  }

  seat(asker: SleepyAsker, wait: number, sentAt: number): boolean {
    if (!this.#hasRoom(asker.amount)) return false;
    this.#sleptFor += sizeOf(asker.amount);
    asker.due = this.#dueAt(wait, sentAt);
    this.#line.add(asker, asker.asked + asker.longest);
    this.#stock?.answered(asker);
    return true;
  }

  dismiss(asker: Asker): void {
    this.#askers.delete(asker);
    this.#stock?.answered(asker);
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    if (!(asker instanceof SleepyAsker) || asker.due === 0) return;
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.remove(asker);
  }

  leave(asker: SleepyAsker): void {
    this.#askers.delete(asker);
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.leave(asker);
  }

  giveBack(amount: Amount, answer: Answer): void {
    this.restore(amount, answer).catch(() => {});
  }

  async restore(amount: Amount, answer: Answer): Promise<void> {
    if (!this.#stock?.takeBack(answer)) await this.#trips.giveBack(amount, answer);
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
    this.checkOpen();
    if (asker.signal !== undefined) this.#signals.add(asker.signal, asker);
    this.#askers.add(asker);
    (this.#stock ?? this.#trips).ask(asker);
  }

  #send(request: (late: number) => StoreRequest, sending?: Sending): Promise<Arrival> {
    if (this.#closing !== undefined) return Promise.reject(this.#closedError());
    return this.#trips.send(request, sending);
  }

  #openStock(prefetch: StockOptions): Stock {
    const trips = this.#trips;
    const { clock, patient } = this.#options;
    const { list } = this.#declared;
    const amountOf = (permits: number) => this.#cell.amount(permits);
    const supply = {
      ...{ clock, patient, amountOf, line: this.#line },
      get inForce() {
        return trips.inForce;
      },
      dueAt: (wait: number, sentAt: number) => this.#dueAt(wait, sentAt),
      send: (call: Call) => trips.ask(call),
      giveBack: ({ piece, permits }: Part) => {
        const { answer, size } = piece;
        // of a part, those that were stored come back last
        const receipts = answer.receipts.map((receipt, i) =>
          list[i]?.algorithm.dated || i >= list.length
            ? receipt
            : Math.max(0, receipt - (size - permits)),
        );
        this.giveBack(amountOf(permits), { ...answer, receipts });
      },
    };
    return new Stock(supply, prefetch);
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

/** What lies here may be used whatever the store has. */
function atLeast(quota: Quota, remaining: number): Quota {
  return { ...quota, remaining: Math.max(quota.remaining, Math.min(quota.limit, remaining)) };
}
