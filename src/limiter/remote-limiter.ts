/**
 * A limiter whose state lives in a store elsewhere: one trip reserves and tells the wait, the
 * waiting is done here.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../check.ts";
import type { Clock } from "../clock.ts";
import { type PermitsExceedCapacityError, QueueFullError } from "../errors.ts";
import { type Amount, combine, type Permits, sizeOf } from "../permits.ts";
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
import { AcquireAsker, type Asker, type Desk, TryAsker } from "./asker.ts";
import type { Call } from "./call.ts";
import { decision } from "./decision.ts";
import type { Decision, Limiter, Reservation, TryOptions, WaitOptions } from "./face.ts";
import { Fallback } from "./fallback.ts";
import { LastKnown } from "./last-known.ts";
import { checkTryOptions, checkWaitOptions, mostWaiting } from "./options.ts";
import { type RemoteAccount, RemoteReservation } from "./remote-reservation.ts";
import { correct } from "./reservation.ts";
import type { StandIn } from "./stand-in.ts";
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
  readonly #fallback: Fallback | undefined;
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
        found: () => this.#return(),
        isIdle: () => this.#fallback?.isIdle ?? true,
      },
      writePolicies(list),
    );
    if (whenUnavailable === "local") {
      const ask = (call: Call) => this.#trips.ask(call);
      this.#lastKnown = new LastKnown(this.#cell.amount(1), () => this.now(), ask);
    }
    if (whenUnavailable === "allow" || whenUnavailable === "local") {
      this.#fallback = new Fallback({
        kind: whenUnavailable,
        clock: options.clock,
        names: this.#cell.names,
        instances: options.instances ?? (() => 1),
        policies: () => this.policies,
        standing: () => this.#lastKnown?.standing,
        lastPromised: () => this.#line.lastIn,
        hasRoom: (amount) => this.#hasRoom(amount),
        full: (amount, policies) => this.full(amount, policies),
      });
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
    const heard = this.#tookIfGranted(amount);
    const { answer, sentAt } = await this.#trips.send(request, { taken: amount, heard });
    if (answer.wait === REFUSED) throw this.full(amount);
    if (answer.wait > 0 && answer.wait < Infinity && !this.#hasRoom(amount)) {
      this.giveBack(amount, answer);
      throw this.full(amount);
    }
    if (answer.wait === Infinity) throw this.excess(amount);
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
    const heard = this.#tookIfGranted(taken, 0);
    const { answer } = await this.#trips.send(request, { taken, longest: 0, heard });
    if (answer.wait === Infinity) throw this.excess(amount);
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
    this.#fallback?.remove(asker);
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

  full(amount: Amount, policies = this.policies): QueueFullError {
    const { name, maxWaiting } = this.#options;
    const most = mostWaiting(maxWaiting, policies);
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

  #tookIfGranted(amount: Amount, longest = Number.MAX_VALUE): (answer: Answer) => void {
    return ({ wait }) => {
      if (wait >= 0 && wait <= longest && sizeOf(amount) > 0) this.took(amount);
    };
  }

  failed(asker: Asker, error: unknown): void {
    try {
      if (this.#fallback === undefined) throw error;
      this.#fallback.for(error, asker.amount).admit(asker);
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
      if (this.#fallback === undefined) throw error;
      return here(this.#fallback.for(error, amount));
    }
  }

  /** The store is back: it is told what was used, and asked by those who wait. */
  #return(): void {
    this.#lastKnown?.outdated();
    const unheard = (deed: Promise<void>) => void deed.catch(() => {});
    const settlement = this.#fallback?.retire({
      charge: (amount) => unheard(this.#account.charge(amount)),
      refund: (amount) => unheard(this.#account.refund(amount)),
    });
    if (settlement === undefined) return;
    const { used, pause, askers } = settlement;
    if (pause > 0) unheard(this.#pause(pause));
    const nothing = combine(used, used, () => 0);
    correct(
      {
        charge: (amount) => unheard(this.#change("settle", amount)),
        refund: (amount) => unheard(this.#change("refund", amount)),
      },
      nothing,
      used,
    );
    for (const asker of askers) {
      asker.asksAgain();
      this.#trips.ask(asker);
    }
  }

  /** What is charged or given back, whoever keeps the state. */
  #change(verb: "charge" | "refund" | "settle", amount: Amount): Promise<void> {
    const isTaken = verb !== "refund";
    return this.#orHere(
      0,
      async () => {
        const heard = () => isTaken && this.took(amount);
        await this.#trips.send(() => ({ verb, amount }), { again: isTaken, heard });
      },
      (standIn) => standIn[verb](amount),
    );
  }

  async #pause(micros: number): Promise<void> {
    const paused = this.#orHere(
      0,
      () => this.#tell({ verb: "pause", micros }),
      (standIn) => standIn.pause(micros),
    );
    this.#retime();
    await paused;
  }

  /**
   * Those who sleep ask anew, with the same trip: whose instants lie in a pause would otherwise all go
   * at its end.
   */
  #retime(): void {
    for (const asker of this.#line.clear() as readonly Asker[]) {
      if (asker.gone) {
        asker.giveUp();
      } else {
        this.#sleptFor -= sizeOf(asker.amount);
        asker.recall();
        this.#trips.ask(asker);
      }
    }
  }

  async #tell(request: StoreRequest): Promise<void> {
    await this.#trips.send(() => request);
  }

  /** How many permits are waited for. */
  get #waiting(): number {
    let waiting = this.#sleptFor + (this.#fallback?.waiting ?? 0);
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
