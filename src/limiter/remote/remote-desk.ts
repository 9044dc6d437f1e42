/**
 * A limiter whose state lives in a store elsewhere: one trip reserves and tells the wait, the
 * waiting is done here. While the store is away somebody here stands in for it, if that is wanted.
 */
import type { Policy, Quota } from "../../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../../algorithms/index.ts";
import type { Clock } from "../../clock.ts";
import {
  LimiterClosedError,
  PermitsExceedCapacityError,
  QueueFullError,
  type StoreUnavailableError,
} from "../../errors.ts";
import { type Amount, combine, type Permits, sizeOf } from "../../permits.ts";
import { type Cell, openCell, type PolicyList } from "../../stores/memory.ts";
import {
  type Answer,
  type Place,
  REFUSED,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "../../stores/store.ts";
import { AbortGroups } from "../abort-groups.ts";
import { decision } from "../decision.ts";
import type { Decision, Reservation } from "../face.ts";
import type { Meter } from "../meter.ts";
import { mostWaiting } from "../options.ts";
import { correct } from "../reservation.ts";
import { type Asker, Booking, type BookingDesk, type Desk } from "./asker.ts";
import type { Call, Taker } from "./call.ts";
import type { CombinableDesk } from "./combined-call.ts";
import { Fallback } from "./fallback.ts";
import { KeptLimits } from "./kept-limits.ts";
import { LastKnown } from "./last-known.ts";
import { Outages } from "./outages.ts";
import { type RemoteAccount, RemoteReservation } from "./remote-reservation.ts";
import type { Part } from "./shelf.ts";
import type { StandIn } from "./stand-in.ts";
import { Stock, type StockOptions } from "./stock.ts";
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
  /** Permits are reserved before somebody asks. */
  readonly prefetch?: StockOptions | undefined;
  /** Of a limiter for each key: which one; what happens is told and counted with the others. */
  readonly key?: string;
  readonly outages?: Outages;
}

const WHEN_AWAY = { throw: "fail", wait: "wait", allow: "yield", local: "yield" } as const;

/** Where those who ask are known until they have their answer, whoever gives it. */
export class RemoteDesk implements Desk, BookingDesk, CombinableDesk {
  readonly #declared: PolicyList;
  readonly #options: RemoteOptions;
  readonly #trips: Trips;
  readonly #line: WaitLine;
  readonly #stock: Stock | undefined;
  readonly #signals = new AbortGroups<Asker | RemoteReservation>((one, reason) =>
    one.abort(reason),
  );
  /** Who has no answer yet, and those for whose reservation somebody waits. */
  readonly #askers = new Set<Asker | Booking>();
  readonly #awaited = new Set<RemoteReservation>();
  /** Knows the policies' names and what can be asked of them; the state is not here. */
  readonly cell: Cell;
  /** How many permits are slept for; and the reservations that may be. */
  #sleptFor = 0;
  readonly #reserved = new Set<RemoteReservation>();
  /** What was last heard of the state, and who lets callers in while it cannot be asked. */
  readonly #lastKnown: LastKnown | undefined;
  readonly #fallback: Fallback | undefined;
  readonly outages: Outages;
  readonly meter: Meter;
  readonly account: RemoteAccount = {
    charge: (amount) => this.#change("charge", amount),
    refund: (amount) => this.#change("refund", amount),
    giveBack: (amount, answer) => this.#restore(amount, answer),
    awaited: this.#awaited,
    signals: this.#signals,
    checkOpen: () => this.checkOpen(),
    cancelled: (amount, waited, reason) => this.meter.cancelled(amount, waited, reason),
  };
  readonly #limits: KeptLimits;
  #closing: Promise<void> | undefined;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    this.#declared = declared;
    this.#options = options;
    this.cell = openCell(declared, 0, 0);
    this.outages = options.outages ?? new Outages(options.name);
    this.meter = this.outages.meter(declared.names, options.key);
    this.#limits = new KeptLimits({ limiter: options.name }, declared.names);
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
        lost: (cause) => this.outages.lost(cause),
        answered: () => this.outages.answered(),
        noted: (notes) => this.#limits.noted(notes),
        found: () => this.#return(),
        isIdle: () => this.#fallback?.isIdle ?? true,
      },
      writePolicies(list),
    );
    this.#stock = options.prefetch && this.#openStock(options.prefetch);
    if (whenUnavailable === "local") {
      const ask = (call: Call) => this.#trips.ask(call);
      this.#lastKnown = new LastKnown(this.cell.amount(1), () => this.now(), ask);
    }
    if (whenUnavailable === "allow" || whenUnavailable === "local") {
      this.#fallback = new Fallback({
        kind: whenUnavailable,
        clock: options.clock,
        names: this.cell.names,
        instances: options.instances ?? (() => 1),
        policies: () => this.policies,
        standing: () => this.#lastKnown?.standing,
        lastPromised: () => this.#line.lastIn,
        hasRoom: (amount) => this.hasRoom(amount),
        full: (amount, policies) => this.full(amount, policies),
        granted: (amount) => this.outages.granted(amount),
        meter: this.meter,
      });
    }
  }

  /** Takes permits that were reserved before, if there are enough and nobody waits. */
  isHere(permits: Permits): boolean {
    if (!this.#stock?.take(permits)) return false;
    this.meter.counts.granted += 1;
    return true;
  }

  async reserve(permits: Permits, amount: Amount): Promise<Reservation> {
    const longest = this.hasRoom(amount) ? Infinity : 0;
    const booking = new Booking(this, amount, longest);
    this.#askers.add(booking);
    this.#send(booking);
    const { answer, sentAt } = await booking.answered;
    if (answer.wait === REFUSED) throw this.full(amount);
    if (answer.wait > 0 && answer.wait < Infinity && !this.hasRoom(amount)) {
      this.giveBack(amount, answer);
      throw this.full(amount);
    }
    if (answer.wait === Infinity) throw this.excess(amount);
    return this.#reservation(permits, amount, answer, sentAt);
  }

  #reservation(permits: Permits, amount: Amount, answer: Answer, sentAt: number) {
    const due = this.dueAt(answer.wait, sentAt);
    const reservation = new RemoteReservation(
      this.account,
      this.#line,
      this.cell,
      permits,
      amount,
      answer,
      due,
    );
    if (this.#options.maxWaiting < Infinity) this.#reserved.add(reservation);
    return reservation;
  }

  // -- as a member of combinations: see combined-call.ts --

  get name(): string {
    return this.#options.name;
  }

  get timeoutMs(): number {
    return this.#options.timeoutMs;
  }

  get whenUnavailable(): RemoteOptions["whenUnavailable"] {
    return this.#options.whenUnavailable;
  }

  get place(): Place | undefined {
    return this.#trips.place;
  }

  combinedPart() {
    return { ...this.#trips.combinedPart(), late: this.#line.lateBy() };
  }

  refusal(): StoreUnavailableError | undefined {
    return this.#trips.refusal();
  }

  replied(reply: Pick<StoreReply, "inForce" | "notes">): void {
    this.#trips.replied(reply);
  }

  lost(cause: unknown, isOverdue: boolean): void {
    this.outages.lost(cause);
    this.#trips.lost(cause, isOverdue);
  }

  failed(error: unknown): unknown {
    return this.outages.failed(error);
  }

  whenBack(): Promise<unknown> {
    return this.#trips.send(() => ({ verb: "owed" }));
  }

  granted(permits: Permits, amount: Amount, answer: Answer, sentAt: number): RemoteReservation {
    this.took(amount);
    this.meter.granted(amount, answer.wait);
    return this.#reservation(permits, amount, answer, sentAt);
  }

  standIn(error: unknown, amount: Amount): StandIn {
    if (this.#fallback === undefined) throw error;
    return this.#fallback.for(error, amount);
  }

  /** What lies here decides, if it can; how the policies stand the store tells. */
  async look(verb: "decide" | "peek", amount: Amount): Promise<Decision> {
    const here = this.#stock?.waitFor(amount);
    const own = verb === "decide" && here === 0 ? this.#stock?.takeNow(amount) : undefined;
    const ready = this.#stock?.ready ?? 0;
    const asked = here === undefined ? verb : "peek";
    const request = (late: number) => ({ verb: asked, amount, late });
    const taken = asked === "decide" ? amount : 0;
    const heard = this.#tookIfGranted(taken, 0);
    try {
      const { answer } = await this.#trips.send(request, { taken, longest: 0, heard });
      if (answer.quotas.length === 0) throw this.excess(amount);
      const quotas = answer.quotas.map((each) => {
        const allowed = here === undefined ? each.allowed : here === 0;
        return { ...(ready === 0 ? each : atLeast(each, ready)), allowed };
      });
      const told = here ?? answer.wait;
      const wait = told > 0 && !this.hasRoom(amount) ? Infinity : told;
      return decision(this.cell.names, quotas, amount, wait, answer.slowest);
    } catch (error) {
      if (own !== undefined) this.giveBack(amount, own);
      throw error;
    }
  }

  /** The policies in force, as the last reply told. */
  get policies(): readonly Policy[] {
    return readPolicies(this.#trips.inForce);
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /** Everybody is turned away; when nothing is under way any more. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const error = this.#closedError();
    for (const asker of [...this.#askers]) asker.abort(error);
    for (const reservation of [...this.#awaited]) reservation.abort(error);
    this.#stock?.close();
    // the line closes its ranks, and what is left over goes back
    await Promise.resolve();
    await this.#trips.close(error);
    // a limiter for a key has those of all keys
    if (this.#options.outages === undefined) this.outages.end();
  }

  checkOpen(): void {
    if (this.#closing !== undefined) throw this.#closedError();
  }

  #closedError(): LimiterClosedError {
    return new LimiterClosedError(this.#options.name);
  }

  seat(asker: Asker): boolean {
    if (!this.hasRoom(asker.amount)) return false;
    this.#sleptFor += sizeOf(asker.amount);
    this.#line.add(asker, asker.asked + asker.longest);
    this.#stock?.answered(asker);
    return true;
  }

  booked(booking: Booking): void {
    this.#askers.delete(booking);
    this.#stock?.answered(booking);
  }

  dismiss(asker: Asker): void {
    this.#askers.delete(asker);
    this.#stock?.answered(asker);
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    this.#fallback?.remove(asker);
    if (asker.due === 0) return;
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.remove(asker);
  }

  leave(asker: Asker): void {
    this.#askers.delete(asker);
    if (asker.signal !== undefined) this.#signals.delete(asker.signal, asker);
    this.#sleptFor -= sizeOf(asker.amount);
    this.#line.leave(asker);
  }

  giveBack(amount: Amount, answer: Answer): void {
    this.#restore(amount, answer).catch(() => {});
  }

  async #restore(amount: Amount, answer: Answer): Promise<void> {
    if (!this.#stock?.takeBack(answer)) await this.#trips.giveBack(amount, answer);
  }

  full(amount: Amount, policies = this.policies): QueueFullError {
    const { name, maxWaiting } = this.#options;
    const most = mostWaiting(maxWaiting, policies);
    return new QueueFullError(name, sizeOf(amount), this.#waiting, most);
  }

  excess(amount: Amount): PermitsExceedCapacityError {
    return this.#limits.refusal(amount) ?? this.#inForce().excess(0, amount);
  }

  #inForce(): Cell {
    return openCell({ names: this.cell.names, list: this.policies }, 0, 0);
  }

  now(): number {
    return this.#line.now();
  }

  took(amount: Amount, answer?: Answer): void {
    if (answer === undefined || !this.#stock?.isOurs(answer)) this.#lastKnown?.took(amount);
  }

  #tookIfGranted(amount: Amount, longest = Number.MAX_VALUE): (answer: Answer) => void {
    return ({ wait }) => {
      if (wait >= 0 && wait <= longest && sizeOf(amount) > 0) this.took(amount);
    };
  }

  unanswered(asker: Asker, error: unknown): void {
    this.#stock?.answered(asker);
    try {
      if (this.#fallback === undefined) throw error;
      const standIn = this.#fallback.for(error, asker.amount);
      this.checkLimits(asker.amount);
      standIn.admit(asker);
    } catch (reason) {
      this.dismiss(asker);
      if (reason instanceof PermitsExceedCapacityError) asker.never(reason);
      else asker.reject(this.outages.failed(reason));
    }
  }

  ask(asker: Asker): void {
    if (asker.signal !== undefined) this.#signals.add(asker.signal, asker);
    this.#askers.add(asker);
    this.#send(asker);
  }

  /** What lies here answers, or the store. */
  #send(taker: Taker): void {
    (this.#stock ?? this.#trips).ask(taker);
  }

  /** Asks the store, or while it is away whoever stands in for it. */
  async orHere<T>(
    amount: Amount,
    there: () => Promise<T>,
    here: (standIn: StandIn) => T,
  ): Promise<T> {
    this.checkOpen();
    // what lies here may be used whatever the store says
    const refusal = this.#stock === undefined ? this.#trips.refusal() : undefined;
    try {
      if (refusal !== undefined) throw refusal;
      return await there();
    } catch (error) {
      if (this.#fallback === undefined) throw this.outages.failed(error);
      return here(this.#fallback.for(error, amount));
    }
  }

  /** While the store is away a limit that was 0 when it last told stays 0. */
  checkLimits(amount: Amount): void {
    const refusal = this.#limits.refusal(amount);
    if (refusal !== undefined) throw refusal;
  }

  /** Which policy's limit is 0; -1 if none is. */
  get closedPolicy(): number {
    return this.#limits.closed(1);
  }

  /** The answer of `decide` and `peek` while the store is away, where a limit was 0 before. */
  shut(amount: Amount): Decision | undefined {
    const closed = this.#limits.closed(amount);
    if (closed < 0) return undefined;
    const quotas = this.#inForce()
      .quotas(0)
      .map((quota, i) => {
        const isClosed = this.#limits.closes(i);
        return { ...quota, allowed: !isClosed, ...(isClosed && { limit: 0, remaining: 0 }) };
      });
    return decision(this.cell.names, quotas, amount, Infinity, closed);
  }

  /** The store is back: it is told what was used, and asked by those who wait. */
  #return(): void {
    this.outages.answered();
    this.#lastKnown?.outdated();
    const unheard = (deed: Promise<void>) => void deed.catch(() => {});
    const settlement = this.#fallback?.retire({
      charge: (amount) => unheard(this.account.charge(amount)),
      refund: (amount) => unheard(this.account.refund(amount)),
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
      this.#send(asker);
    }
  }

  /** What is charged or given back, whoever keeps the state. */
  #change(verb: "charge" | "refund" | "settle", amount: Amount): Promise<void> {
    const isTaken = verb !== "refund";
    return this.orHere(
      0,
      async () => {
        const heard = () => isTaken && this.took(amount);
        await this.#trips.send(() => ({ verb, amount }), { again: isTaken, heard });
      },
      (standIn) => standIn[verb](amount),
    );
  }

  async pause(micros: number): Promise<void> {
    this.checkOpen();
    this.#line.holdUntil(this.#line.now() + micros);
    await this.#pause(micros);
  }

  async #pause(micros: number): Promise<void> {
    const paused = this.orHere(
      0,
      async () => {
        await this.#tell({ verb: "pause", micros });
      },
      (standIn) => standIn.pause(micros),
    );
    this.#retime();
    await paused;
  }

  /** The state is a new one. What is given back to the old one arrives before, in the same trip. */
  async reset(): Promise<void> {
    this.checkOpen();
    const refusal = this.#trips.refusal();
    if (refusal !== undefined) throw this.outages.failed(refusal);
    const reset = this.#tell({ verb: "reset" });
    this.#lastKnown?.outdated();
    this.#retime();
    await reset;
  }

  /**
   * Those who sleep ask anew, with the same trip: whose instants lie in a pause would otherwise all go
   * at its end.
   */
  #retime(): void {
    const sleepers = this.#line.clear() as readonly Asker[];
    for (const asker of sleepers) {
      if (asker.gone) {
        asker.giveUp();
      } else {
        this.#sleptFor -= sizeOf(asker.amount);
        asker.recall();
      }
    }
    this.#stock?.release();
    for (const asker of sleepers) if (!asker.gone) this.#send(asker);
  }

  /** Other numbers are in force for everybody: what was reserved ahead by those of before goes back. */
  async renumber(request: StoreRequest): Promise<Answer> {
    this.#stock?.release();
    return this.#tell(request);
  }

  async #tell(request: StoreRequest): Promise<Answer> {
    this.checkOpen();
    const { answer } = await this.#trips.send(() => request);
    return answer;
  }

  #openStock(prefetch: StockOptions): Stock {
    const trips = this.#trips;
    const { clock, whenUnavailable } = this.#options;
    const { list } = this.#declared;
    const amountOf = (permits: number) => this.cell.amount(permits);
    const supply = {
      ...{ clock, amountOf, line: this.#line, patient: whenUnavailable === "wait" },
      get inForce() {
        return trips.inForce;
      },
      dueAt: (wait: number, sentAt: number) => this.dueAt(wait, sentAt),
      send: (call: Call) => trips.ask(call),
      took: (amount: Amount) => this.took(amount),
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
    let waiting = this.#sleptFor + (this.#fallback?.waiting ?? 0);
    for (const reservation of this.#reserved) {
      if (reservation.pending) waiting += reservation.size;
      else this.#reserved.delete(reservation);
    }
    return waiting;
  }

  hasRoom(amount: Amount): boolean {
    return this.#waiting + sizeOf(amount) <= this.#options.maxWaiting;
  }

  /** By our own clock: the store's `now` was no later than the arrival of its answer. */
  dueAt(wait: number, sentAt: number): number {
    return wait + (this.#options.epoch === undefined ? this.#line.now() : sentAt);
  }

  /** The amount, unless it is more than the policies could ever let through. */
  possible(permits: Permits): Amount {
    const amount = this.cell.amount(permits);
    if (this.cell.earliest(0, amount) === Infinity) throw this.excess(amount);
    return amount;
  }
}

/** What lies here may be used whatever the store has. */
function atLeast(quota: Quota, remaining: number): Quota {
  return { ...quota, remaining: Math.max(quota.remaining, Math.min(quota.limit, remaining)) };
}
