/**
 * A limiter whose state lives in a store elsewhere: one trip reserves and tells the wait, the
 * waiting is done here.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../check.ts";
import type { Clock } from "../clock.ts";
import {
  type PermitsExceedCapacityError,
  QueueFullError,
  StoreUnavailableError,
} from "../errors.ts";
import { type Amount, combine, type Permits, sizeOf } from "../permits.ts";
import { isPermanent } from "../stores/breaker.ts";
import {
  type Cell,
  listPolicies,
  openCell,
  type Policies,
  type PolicyList,
  renumber,
} from "../stores/memory.ts";
import { OpenCell, ShareCell } from "../stores/stand-in.ts";
import { type Answer, REFUSED, type Store, type StoreRequest } from "../stores/store.ts";
import { AbortGroups } from "./abort-groups.ts";
import { AcquireAsker, type Asker, type Desk, TryAsker } from "./asker.ts";
import type { Call } from "./call.ts";
import { decision } from "./decision.ts";
import type { Decision, Limiter, Reservation, TryOptions, WaitOptions } from "./face.ts";
import { LastKnown } from "./last-known.ts";
import { checkTryOptions, checkWaitOptions, mostWaiting } from "./options.ts";
import { type RemoteAccount, RemoteReservation } from "./remote-reservation.ts";
import { correct } from "./reservation.ts";
import { StandIn } from "./stand-in.ts";
import { Trips } from "./trips.ts";
import { WaitLine } from "./wait-line.ts";

export interface RemoteOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail, wait for it, or be let in here: all of them, or as
   * many as this process' share of the limit allows.
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, which `"local"` has to know: 1 or more. */
  readonly instances?: () => number;
  readonly clock: Clock;
  /**
   * The clock is the store's too, and the time travels with every trip: this, microseconds, added
   * to the clock's is Unix time. Absent: the store goes by its own clock.
   */
  readonly epoch: number | undefined;
  /** For a policy whose limit is kept elsewhere: where, among the keys that the store has. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
}

const WHEN_AWAY = { throw: "fail", wait: "wait", allow: "yield", local: "yield" } as const;

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
  /** What was last heard of the state, and who lets callers in while it cannot be asked. */
  readonly #lastKnown: LastKnown | undefined;
  #standIn: StandIn | undefined;
  readonly #account: RemoteAccount = {
    charge: (amount) => this.#change("charge", amount),
    refund: (amount) => this.#change("refund", amount),
    giveBack: (amount, answer) => this.#trips.giveBack(amount, answer),
  };

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    this.#declared = declared;
    this.#options = options;
    this.#cell = openCell(declared, 0, 0);
    this.#line = new WaitLine(options.clock);
    const { whenUnavailable, limitsKeptAt } = options;
    const { list } = declared;
    this.#trips = new Trips(
      store,
      key,
      writePolicies(list, limitsKeptAt),
      {
        ...options,
        whenAway: WHEN_AWAY[whenUnavailable],
        now: () => this.#line.now(),
        lateBy: () => this.#line.lateBy(),
        along: () => this.#lastKnown?.inquiry(),
        found: () => this.#retire(),
      },
      writePolicies(list),
    );
    if (whenUnavailable === "local") {
      const ask = (call: Call) => this.#trips.ask(call);
      this.#lastKnown = new LastKnown(this.#cell.amount(1), () => this.now(), ask);
    }
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
    return this.#orHere(
      amount,
      () => this.#reserve(permits, amount),
      (standIn) => standIn.reserve(permits, amount),
    );
  }

  async #reserve(permits: Permits, amount: Amount): Promise<Reservation> {
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
    this.took(amount);
    const due = this.#dueAt(answer.wait, sentAt);
    const reservation = new RemoteReservation(
      this.#account,
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

  async decide(permits: Permits = 1): Promise<Decision> {
    const amount = this.#cell.amount(permits);
    return this.#orHere(
      amount,
      () => this.#look("decide", amount),
      (standIn) => standIn.decide(amount),
    );
  }

  async peek(permits: Permits = 1): Promise<Decision> {
    const amount = this.#cell.amount(permits);
    return this.#orHere(
      amount,
      () => this.#look("peek", amount),
      (standIn) => standIn.peek(amount),
    );
  }

  async #look(verb: "decide" | "peek", amount: Amount): Promise<Decision> {
    const request = (late: number) => ({ verb, amount, late });
    const taken = verb === "decide" ? amount : 0;
    const { answer } = await this.#trips.send(request, { taken, longest: 0 });
    if (answer.wait === Infinity) throw this.excess(amount);
    if (answer.wait === 0 && taken !== 0) this.took(amount);
    return decision(this.#cell.names, answer.quotas, amount, answer.wait, answer.slowest);
  }

  async charge(permits: Permits): Promise<void> {
    await this.#account.charge(this.#possible(permits));
  }

  async refund(permits: Permits): Promise<void> {
    await this.#account.refund(this.#possible(permits));
  }

  /**
   * For everybody who asks from now on, and for those who wait here; what other processes were told
   * before stays.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.#line.holdUntil(this.#line.now() + micros);
    await this.#pause(micros);
  }

  /** Holds for everybody, so the store has to be there, whatever `whenUnavailable` says. */
  async update(policies: Policies): Promise<void> {
    const { list } = renumber(this.#declared, listPolicies(policies));
    await this.#tell({ verb: "set", numbers: writePolicies(list) });
  }

  /** The declared numbers are in force again. */
  async reset(): Promise<void> {
    await this.#tell({ verb: "reset" });
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
    this.#standIn?.remove(asker);
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
    return this.#inForce().excess(0, amount);
  }

  #inForce(): Cell {
    return openCell({ names: this.#cell.names, list: this.policies }, 0, 0);
  }

  now(): number {
    return this.#line.now();
  }

  took(amount: Amount): void {
    this.#lastKnown?.took(amount);
  }

  failed(asker: Asker, error: unknown): void {
    try {
      this.#standInFor(error, asker.amount).admit(asker);
    } catch (reason) {
      this.dismiss(asker);
      asker.reject(reason);
    }
  }

  #ask(asker: Asker): void {
    if (asker.signal !== undefined) this.#signals.add(asker.signal, asker);
    this.#trips.ask(asker);
  }

  /** Asks the store, or while it is away whoever stands in for it. */
  async #orHere<T>(
    amount: Amount,
    there: () => Promise<T>,
    here: (standIn: StandIn) => T,
  ): Promise<T> {
    try {
      return await there();
    } catch (error) {
      return here(this.#standInFor(error, amount));
    }
  }

  #standInFor(error: unknown, amount: Amount): StandIn {
    const { whenUnavailable } = this.#options;
    const isLetIn = whenUnavailable === "allow" || whenUnavailable === "local";
    if (!isLetIn || !(error instanceof StoreUnavailableError) || isPermanent(error.cause))
      throw error;
    const cell = this.#inForce();
    if (cell.earliest(0, amount) === Infinity) throw cell.excess(0, amount);
    this.#standIn ??= this.#open(whenUnavailable);
    return this.#standIn;
  }

  #open(kind: "allow" | "local"): StandIn {
    const { clock, instances = () => 1 } = this.#options;
    const list = { names: this.#cell.names, list: this.policies };
    const standing = this.#lastKnown?.standing;
    const standIn = new StandIn({
      clock,
      policies: list.list,
      fraction: () => 1 / instances(),
      open: (fraction, now, epoch) =>
        kind === "allow"
          ? new OpenCell(openCell(list, now, epoch))
          : ShareCell.open(list, fraction, standing, now, epoch),
      hasRoom: (amount) => this.#hasRoom(amount),
      full: (amount) => this.full(amount),
    });
    if (standing !== undefined) standIn.pause(standing.held);
    return standIn;
  }

  /** The store is back: it is told what was used, and asked by those who wait. */
  #retire(): void {
    this.#lastKnown?.outdated();
    const standIn = this.#standIn;
    if (standIn === undefined) return;
    this.#standIn = undefined;
    const told = (deed: Promise<void>) => void deed.catch(() => {});
    const { used, pause, askers } = standIn.retire({
      charge: (amount) => told(this.#account.charge(amount)),
      refund: (amount) => told(this.#account.refund(amount)),
    });
    const nothing = combine(used, used, () => 0);
    if (pause > 0) told(this.#pause(pause));
    correct(this.#account, nothing, used);
    for (const asker of askers) {
      asker.delayed();
      this.#trips.ask(asker);
    }
  }

  /** What is charged or given back, whoever keeps the state. */
  #change(verb: "charge" | "refund", amount: Amount): Promise<void> {
    if (verb === "charge") this.took(amount);
    const again = verb === "charge";
    return this.#orHere(
      0,
      () => this.#tell({ verb, amount }, again),
      (standIn) => standIn[verb](amount),
    );
  }

  async #pause(micros: number): Promise<void> {
    await this.#orHere(
      0,
      () => this.#tell({ verb: "pause", micros }),
      (standIn) => standIn.pause(micros),
    );
  }

  async #tell(request: StoreRequest, again = true): Promise<void> {
    await this.#trips.send(() => request, { again });
  }

  /** How many permits are waited for. */
  get #waiting(): number {
    let waiting = this.#sleptFor + (this.#standIn?.waiting ?? 0);
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
