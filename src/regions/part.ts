/** A member's part of the limit of one key: a local limiter over a fraction of the policies. */
import type { Policy } from "../algorithms/algorithm.ts";
import type { ShareOptions } from "../api/limiter-api.ts";
import type { CheckedOptions } from "../api/options.ts";
import type { OutageStats } from "../api/outage-stats.ts";
import { asParticipant } from "../api/participant.ts";
import { type Because, CallStats } from "../api/stats.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import { type DiagnosticsSource, diagnostics, type RefusedMessage } from "../ground/diagnostics.ts";
import { type Amount, type Permits, sizeOf } from "../ground/permits.ts";
import { QueueingLimiter, type QueueingOptions } from "../local/queueing-limiter.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import { FIFO, type Order } from "../queue/order.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import type { Payment } from "../queue/reservation.ts";
import { type Exchange, WHOLE } from "../stores/ledger.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { PolicyState } from "../stores/state/one.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { Counting, mostOf } from "./counting.ts";
import { Demand } from "./demand.ts";
import { type Freed, freshIn, lifetimesOf, move, owedMs, partsOf } from "./move.ts";
import { LEAST, type Numbers } from "./numbers.ts";
import { known, PartState, UNKNOWN_MS, type Validity } from "./part-state.ts";
import { add, Refunds, type Sums } from "./refunds.ts";
import { capacityOf } from "./resting.ts";

export interface MemberOptions {
  readonly name: string;
  readonly region: string;
  /** The weights of the regions, by name. */
  readonly weights: ReadonlyMap<string, number>;
  /** `update` replaces them. */
  numbers: Numbers;
  /** The largest part, of which nothing is ever taken. */
  readonly largest: PolicyState;
  /** The same of what each region has always. */
  readonly reserve: PolicyState;
  readonly exchange: Exchange;
  /** The key of the ledger's records, with its prefix. */
  readonly ledgerKey: string;
  /** The fraction that needs no lease; 0 where the region's processes share it in a store. */
  readonly base: number;
  /** Demand up to this fraction needs no lease. */
  readonly reserved: number;
  /** What is on lease altogether. */
  readonly pool: number;
  readonly everyMs: number;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly maxWaiting: number;
  readonly onFull: CheckedOptions["onFull"];
  readonly order: Order;
  readonly stats: OutageStats;
}

/**
 * The part of the limit of one key; a clock that notices when its lease is over. A key that its reserve serves has no
 * queue: it takes a third of the memory.
 */
export class Part implements Validity, Clock {
  /** Undefined for the limiter without a key. */
  readonly key: string | undefined;
  #limiter: QueueingLimiter | undefined;
  #queue: PermitQueue | undefined;
  readonly #time: MonotonicTime;
  readonly #state: PartState;
  readonly #options: MemberOptions;
  /** Read by the state, written by the clock that it is read with. */
  isOver = false;
  /** When the clock was last read. */
  #readMs = 0;

  /** How many pieces of the pool it uses; they change in `use` only. */
  inUse = 0;
  /** Until when it may, ms of the clock. */
  lapseMs = Infinity;
  readonly demand: Demand;
  /** How many callers wait. */
  callers = 0;
  /** Undefined under one policy. */
  readonly #counting: Counting | undefined;
  /** Undefined until something is given back. */
  #refunds: Refunds | undefined;
  /** How many permits were ever granted, by policy if there are several, and since when. */
  #granted: number | Sums = 0;
  readonly #sinceMs: number;
  /** How many calls the reserve has granted that it has not been charged for: see `Reserve.owes`. */
  byReserve = 0;

  constructor(key: string | undefined, options: MemberOptions) {
    const { clock, numbers, largest, reserve, base, everyMs } = options;
    this.key = key;
    this.#options = options;
    this.isOver = base === 0;
    this.#time = new MonotonicTime(this);
    const { last, epoch } = this.#time;
    const state = openPolicyState(numbers.basePolicies, last, epoch);
    this.#state = new PartState(state, largest, reserve, this);
    this.#sinceMs = clock.now();
    this.demand = new Demand(everyMs, this.#sinceMs);
    if (numbers.rates.length === 1) return;
    this.#counting = new Counting(numbers, this.#sinceMs);
    this.#granted = numbers.rates.map(() => 0);
  }

  now(): number {
    const now = this.#options.clock.now();
    this.#readMs = now;
    if (now >= this.lapseMs) this.isOver = true;
    return now;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    return this.#options.clock.wakeAt(timeMs, wake);
  }

  get epochMs(): number {
    return this.#options.clock.epochMs ?? 0;
  }

  get queue(): PermitQueue {
    this.#queue ??= new PermitQueue(this.#time, this.#state, this.#options.order);
    return this.#queue;
  }

  get limiter(): QueueingLimiter {
    const { numbers, name, maxWaiting, onFull, stats } = this.#options;
    const { policies } = numbers;
    this.#limiter ??= new LimiterOfPart(
      this,
      policies,
      { name, maxWaiting, onFull },
      new PartStats(this.#source, policies.names, stats.counts),
    );
    return this.#limiter;
  }

  /** The part that may be used now, from 0 to 1. */
  get fraction(): number {
    return this.#options.base + this.inUse / WHOLE;
  }

  /** Whether its lease is over, and it has not been ended yet. */
  get isLapsed(): boolean {
    return this.isOver && this.#options.clock.now() >= this.lapseMs;
  }

  /** Returns the permits in the form in which policies take them. */
  amountOf(permits: Permits): Amount {
    return this.#state.amount(permits);
  }

  /** Returns the permits in the form in which a caller asks for them. */
  permitsOf(amount: Amount): Permits {
    if (typeof amount === "number") return amount;
    const asked = this.#state.names.map((name, i) => [name, amount[i] ?? 0] as const);
    return Object.fromEntries(asked.filter(([, permits]) => permits > 0));
  }

  /** Returns how long a call that is made now would wait, ms; `Infinity` if it is not known. */
  waitMs(permits: Permits, options: ShareOptions | undefined): number {
    const amount = this.#state.amount(permits);
    const fairEntry = this.#options.order.entryOf(options, amount);
    return known(this.queue.look(amount, Infinity, fairEntry)).waitMs;
  }

  /** @throws PermitsExceedCapacityError if the reserve can never grant the amount */
  checkReserve(amount: Amount): void {
    const { reserve } = this.#options;
    if (reserve.earliest(0, amount) === Infinity) throw reserve.excess(0, amount);
  }

  /** Whether so many more permits may be waited for. */
  hasRoom(permits: Permits): boolean {
    const { queue } = this;
    const amount = this.#state.amount(permits);
    const isInBounds = queue.permits + sizeOf(amount) <= this.#options.maxWaiting;
    return isInBounds && queue.overflowing(amount) < 0;
  }

  /** Returns for how many ms the whole limit has to work for what will be kept of a request. */
  costOf(permits: Permits): number {
    return this.#costOf(this.#kept(this.#state.amount(permits)));
  }

  /** Counts the request, and takes the permits if they can be used now, or counts the refusal. */
  tryAcquire(permits: Permits): boolean {
    if (this.#queue === undefined) {
      if (this.grants(permits)) return true;
    } else this.asked(permits);
    const isGranted = this.limiter.tryAcquire(permits);
    this.seen();
    return isGranted;
  }

  /**
   * Counts the request, and takes the permits if they can be used now; a refusal is not counted, since the caller is asked
   * elsewhere then.
   */
  grants(permits: Permits, options?: ShareOptions): boolean {
    const { order, stats } = this.#options;
    const amount = this.#checked(permits);
    const fairEntry = order.entryOf(options, amount);
    this.#counts(amount);
    const isGranted =
      this.#queue === undefined && order === FIFO
        ? this.#state.takes(this.#time.now(), amount)
        : this.queue.grant(amount, fairEntry);
    this.seen();
    if (isGranted) stats.counts.granted += 1;
    return isGranted;
  }

  /** Counts a request as demand. @throws TypeError or RangeError as the call does, PermitsExceedCapacityError as `#checked` */
  asked(permits: Permits, options?: ShareOptions): void {
    const amount = this.#checked(permits);
    this.#options.order.entryOf(options, amount);
    this.#counts(amount);
  }

  /** @throws PermitsExceedCapacityError if no part can ever grant it */
  #checked(permits: Permits): Amount {
    const { largest, numbers } = this.#options;
    const amount = largest.amount(permits);
    if (typeof amount === "number" && amount <= numbers.fits) return amount;
    if (largest.earliest(0, amount) === Infinity) throw this.#state.excess(0, amount);
    if (typeof amount === "number") numbers.fits = amount;
    return amount;
  }

  #counts(amount: Amount): void {
    const { largest, rates } = this.#options.numbers;
    const kept = this.#kept(amount);
    // the usual case, without a call
    if (typeof kept === "number")
      this.demand.asked(kept / (rates[0] ?? 1), Number(amount) / (largest[0] ?? 1));
    else {
      this.#counting?.asked(kept);
      this.demand.asked(this.#costOf(kept), mostOf(amount, largest));
    }
  }

  /** Returns what will be kept of a request. */
  #kept(amount: Amount): Amount {
    return this.#refunds === undefined ? amount : this.#refunds.kept(amount);
  }

  #costOf(amount: Amount): number {
    return this.#counting?.costOf(amount) ?? mostOf(amount, this.#options.numbers.rates);
  }

  /** A request has just been looked at. */
  seen(): void {
    this.demand.seen(this.#readMs);
  }

  /** Permits were taken from its state. */
  took(state: PartState, amount: Amount): void {
    if (state === this.#state) this.granted(amount);
  }

  /** The reserve has granted a call for which it has not been charged. */
  grantedByReserve(amount: Amount): void {
    this.byReserve += 1;
    this.granted(amount);
  }

  /** Permits were granted, or charged: they may come back. */
  granted(amount: Amount): void {
    if (typeof this.#granted === "number") this.#granted += Number(amount);
    else add(this.#granted, amount);
    this.#refunds?.granted(amount, this.#readMs);
  }

  /** A charge is demand, though no part must be as large as that. A refund makes later requests count for less. */
  paid(payments: readonly Payment[]): void {
    for (const [verb, amount] of payments) {
      if (verb === "charge") this.demand.asked(this.#costOf(this.#kept(amount)), 0);
      else {
        const nowMs = this.#options.clock.now();
        const granted = typeof this.#granted === "number" ? [this.#granted] : this.#granted;
        this.#refunds ??= new Refunds(granted, nowMs - this.#sinceMs, nowMs);
        this.#refunds.refunded(amount, nowMs);
      }
    }
  }

  /** Counts a caller that has given up, or was ended, while it was not in the line. */
  cancelled(permits: Permits, waitedMs: number, reason: unknown): void {
    const { callStats, amount } = this.limiter[asParticipant]();
    callStats().cancelled(amount(permits), waitedMs * 1000, reason);
  }

  /** Looks which policies say from now on how much is asked for. */
  weigh(): void {
    if (this.#counting === undefined) return;
    const { numbers, everyMs, clock } = this.#options;
    const lacking = this.#state.deficit(this.#time.now());
    const left = numbers.policies.list.map(
      (policy, i) => capacityOf(policy) * this.fraction - (lacking[i] ?? 0),
    );
    if (this.#counting.look(clock.now(), everyMs, left)) this.demand.reprice();
  }

  /** Whether no caller or reservation waits. */
  get isIdle(): boolean {
    return this.#queue?.isIdle ?? true;
  }

  /** Ends the calls that wait. */
  dismiss(reason: Error): void {
    for (const waiter of this.#queue?.waiters ?? []) this.#queue?.cancel(waiter, reason);
  }

  /** For how many ms the whole limit has to work for what this part owes, if no reserve pays that. */
  get owedMs(): number {
    const { base, numbers } = this.#options;
    if (base > 0) return 0;
    const part = Math.max(LEAST, this.fraction);
    return owedMs(this.#state, numbers.policies.list, numbers.rates, part, this.#time.now());
  }

  /** Whether nothing would be lost if the key were forgotten, while nothing is on lease. */
  isForgettable(now: number): boolean {
    if (this.callers > 0 || !this.isIdle) return false;
    const { basePolicies, lifetimes } = this.#options.numbers;
    const left = lifetimesOf(this.#state, basePolicies.list, this.#time.now());
    return this.demand.isOver(now) && left.every((micros, i) => micros <= (lifetimes[i] ?? 0));
  }

  /** Uses so many pieces from now on. @param fresh how many of those that come are fresh */
  use(to: number, fresh: number): Freed {
    const from = this.inUse;
    let freed: Freed = { fresh: 0, resting: [] };
    if (from === to && this.isOver === (this.#options.base + to === 0)) return freed;
    this.inUse = to;
    const { numbers, base, clock, region } = this.#options;
    const [before, after] = [from, to].map((pieces) => Math.max(LEAST, base + pieces / WHOLE));
    const parts = { from: before as number, to: after as number, fresh: fresh / WHOLE, base };
    const overMicros = Math.ceil(Math.max(0, clock.now() - this.lapseMs) * 1000);
    this.queue.change((state, now, epoch) => {
      // not before: a process that was suspended beyond its lease must not grant what became due meanwhile
      this.isOver = base + to === 0;
      const part = state as PartState;
      // … and has regained nothing on its lease since that ended
      const moved = move(part, numbers.policies.list, parts, now - overMicros, epoch);
      if (part === this.#state) freed = moved;
    });
    const channel = diagnostics.fraction;
    if (!channel.hasSubscribers) return freed;
    const leaseMs = to === 0 ? 0 : Math.max(0, this.lapseMs - clock.now());
    const shares = { fraction: base + to / WHOLE, demand: this.demand.value / WHOLE };
    queueMicrotask(() => channel.publish({ ...this.#source, region, ...shares, leaseMs }));
    return freed;
  }

  /** How many of the pieces in use are fresh. */
  get freshPieces(): number {
    const { numbers, base } = this.#options;
    const { list } = numbers.policies;
    return freshIn(this.#state, list, this.fraction, base, this.#time.now()) * WHOLE;
  }

  /** Publishes that a reservation has waited for a time that was not known before. */
  waited(permits: Permits, waitMs: number): void {
    const channel = diagnostics.wait;
    if (waitMs > 0 && channel.hasSubscribers) channel.publish({ ...this.#source, permits, waitMs });
  }

  /** What its messages are about. */
  get #source(): DiagnosticsSource {
    const { key } = this;
    return { limiter: this.#options.name, ...(key === undefined ? {} : { key }) };
  }

  /** What it uses counts for no longer, ms. */
  get keepMs(): number {
    return this.#options.numbers.keepMs;
  }

  /** Whether pieces rest that were used: see `resting.ts`. */
  get rests(): boolean {
    return this.#options.numbers.rests;
  }

  /** The numbers by which its callers wait: without a part those of the reserve. */
  get line(): readonly Policy[] {
    return partsOf(this.#options.numbers.policies.list, this.fraction || this.#options.reserved);
  }

  #policiesOf(fraction: number): readonly Policy[] {
    return partsOf(this.#options.numbers.policies.list, Math.max(LEAST, fraction));
  }

  /** Goes by the numbers in force from now on. */
  renumber(): void {
    const policies = this.#policiesOf(this.fraction);
    if (this.#queue !== undefined) this.#queue.resize(policies);
    else this.#state.resize(this.#time.now(), policies, this.#time.epoch);
    this.#counting?.renumber(this.#options.numbers);
  }
}

/** A wait that depends on other regions is not known: it is not published before it is over. */
class PartStats extends CallStats {
  override granted(amount: Amount, wait: number): void {
    super.granted(amount, wait / 1000 < UNKNOWN_MS ? wait : 0);
  }

  override refused(amount: Amount, reason: RefusedMessage["reason"], because?: Because): void {
    super.refused(amount, reason, () => {
      const why = because?.();
      return why !== undefined && why.waitMs < UNKNOWN_MS ? why : undefined;
    });
  }
}

/** Its errors name the numbers of the part. */
class LimiterOfPart extends QueueingLimiter {
  readonly #part: Part;

  constructor(part: Part, policies: PolicyList, options: QueueingOptions, stats: CallStats) {
    super(part.queue, policies, options, stats);
    this.#part = part;
  }

  protected override get policies(): readonly Policy[] {
    return this.#part.line;
  }
}
