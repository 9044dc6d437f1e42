/**
 * A member's part of the limit of one key: a local limiter over a fraction of the policies, the lease on which the member
 * holds it, and what its messages say.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import type { ShareOptions, WaitOptions } from "../api/limiter-api.ts";
import type { CallOrder, CheckedOptions } from "../api/options.ts";
import type { OutageStats } from "../api/outage-stats.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import { diagnostics } from "../ground/diagnostics.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { AT_ONCE, QueueingLimiter } from "../local/queueing-limiter.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import { type Exchange, type LedgerRecord, WHOLE } from "../stores/ledger.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { PolicyState } from "../stores/state/one.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { Demand } from "./demand.ts";
import { type Freed, move, partsOf } from "./move.ts";
import { PartState, type Validity } from "./part-state.ts";
import { capacityOf, RestingPieces } from "./resting.ts";

/** A part is never smaller: a state at a rate of 0 would not know its debts. */
export const LEAST = 1e-9;
/** The record by which a member learns when the ledger was created is kept for so long, ms: 30 days. */
export const ROOT_MS = 30 * 24 * 3_600_000;
/** Leases and rests are longer at the home by this factor, for clocks that run at different speeds. */
export const DRIFT = 1.1;
/** Nothing is kept longer, as by other stores: 31 000 years. */
const LONGEST_MS = 1e15;

export interface MemberOptions {
  readonly name: string;
  readonly region: string;
  /** The weights of the regions, by name. */
  readonly weights: ReadonlyMap<string, number>;
  /** Of the whole limit, and of a part that has nothing on lease; `update` replaces them. */
  policies: PolicyList;
  basePolicies: PolicyList;
  /** The largest part, of which nothing is ever taken. */
  readonly largest: PolicyState;
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
  readonly order: CallOrder | undefined;
  readonly stats: OutageStats;
}

/** The same for all parts: most are cold. */
const DONE = Promise.resolve();

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
  /** Permits a ms of the whole limit, by policy. */
  #rates: readonly number[];
  /** Read by the state, written by the clock that it is read with. */
  isOver = false;

  /** What is on lease, in `WHOLE`, and until when, ms of the clock. */
  held = 0;
  lapseMs = Infinity;
  /** No more of it is used, for others lack it. */
  most = Infinity;
  readonly #resting = new RestingPieces();
  /** Fresh pieces that were released and not acknowledged. */
  freed = 0;
  want = 0;
  number = 0;
  /** Whether its last message said that it has nothing and wants nothing. */
  isEmptied = false;
  isAnswered = true;
  underWay = DONE;
  /** How often in a row no reply came in time. */
  missed = 0;
  /** Whether the last message seemed too old. */
  isLate = false;
  /** What the clock of its ledger shows beyond this one, ms; undefined: not known. In a cluster each key has another clock. */
  ahead: number | undefined;
  /** What is promised to it, and since when; undefined: nothing is. */
  promised = 0;
  promisedMs: number | undefined;
  /** The number of the last message in its row, and when that was sent. */
  answered = 0;
  rowMs = 0;
  rows: LedgerRecord["rows"] = [];

  /** When the next message is due; `Infinity` while the key is cold. */
  nextMs = Infinity;
  /** Half-way to the next message, where the demand that it states begins to be counted. */
  isHalfway = false;
  soon = 0;
  idle = 0;
  readonly demand: Demand;
  /** How many callers wait. */
  callers = 0;

  constructor(key: string | undefined, options: MemberOptions) {
    const { clock, policies, basePolicies, largest, base, everyMs } = options;
    this.key = key;
    this.#options = options;
    this.isOver = base === 0;
    this.#time = new MonotonicTime(this);
    const { last, epoch } = this.#time;
    this.#state = new PartState(openPolicyState(basePolicies, last, epoch), largest, this);
    this.#rates = ratesOf(policies.list);
    this.demand = new Demand(everyMs, clock.now());
  }

  now(): number {
    const now = this.#options.clock.now();
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
    this.#queue ??= new PermitQueue(this.#time, this.#state, orderIn(this.#options));
    return this.#queue;
  }

  get limiter(): QueueingLimiter {
    const { policies, name, maxWaiting, onFull, stats } = this.#options;
    this.#limiter ??= new QueueingLimiter(
      this.queue,
      policies,
      { name, maxWaiting, onFull },
      stats.callStats(policies.names, this.key),
    );
    return this.#limiter;
  }

  /** The part that may be used now, from 0 to 1. */
  get fraction(): number {
    return this.#options.base + this.#inUse / WHOLE;
  }

  get isHot(): boolean {
    return this.nextMs < Infinity;
  }

  /** Whether its lease is over, and it has not been ended yet. */
  get isLapsed(): boolean {
    return this.isOver && this.held > 0;
  }

  /** Returns for how many ms the whole limit has to work for a request. */
  costOf(permits: Permits): number {
    const amount = this.#state.amount(permits);
    if (typeof amount === "number") return amount / (this.#rates[0] ?? 1);
    return this.#rates.reduce((most, rate, i) => Math.max(most, (amount[i] ?? 0) / rate), 0);
  }

  acquire(permits: Permits, options: WaitOptions | undefined): Promise<number> {
    const mayBeServed = this.#queue === undefined && options === undefined;
    if (mayBeServed && this.grants(permits)) return AT_ONCE;
    return this.limiter.acquire(permits, options);
  }

  tryAcquire(permits: Permits): boolean {
    return (this.#queue === undefined && this.grants(permits)) || this.limiter.tryAcquire(permits);
  }

  /** Takes the permits if they can be used now; a refusal is not counted, since the caller is asked elsewhere then. */
  grants(permits: Permits, options?: ShareOptions): boolean {
    const amount = this.#state.amount(permits);
    const order = orderIn(this.#options);
    const fairEntry = order.entryOf(options, amount);
    const isGranted =
      this.#queue === undefined && order === FIFO
        ? this.#takes(amount)
        : this.queue.grant(amount, fairEntry);
    if (isGranted) this.#options.stats.counts.granted += 1;
    return isGranted;
  }

  #takes(amount: Amount): boolean {
    const now = this.#time.now();
    const at = this.#state.earliest(now, amount);
    if (at <= now) this.#state.take(at, amount, now);
    return at <= now;
  }

  /** @throws TypeError or RangeError if these are not the options of a call */
  check(permits: Permits, options: ShareOptions): void {
    orderIn(this.#options).entryOf(options, this.#state.amount(permits));
  }

  /** Counts a request as demand. @throws PermitsExceedCapacityError if no part can ever grant it */
  asked(permits: Permits): void {
    const { largest } = this.#options;
    const amount = largest.amount(permits);
    if (largest.earliest(0, amount) === Infinity) throw largest.excess(0, amount);
    this.demand.asked(this.costOf(permits));
  }

  /** Whether no caller or reservation waits. */
  get isIdle(): boolean {
    return this.#queue?.isIdle ?? true;
  }

  /** Ends the calls that wait. */
  dismiss(reason: Error): void {
    for (const waiter of this.#queue?.waiters ?? []) this.#queue?.cancel(waiter, reason);
  }

  /** Whether nothing would be lost if the key were forgotten. */
  isForgettable(now: number): boolean {
    if (this.isHot || this.held > 0 || this.callers > 0 || !this.isIdle) return false;
    return this.#state.lifetime(this.#time.now()) <= 0 && this.demand.isOver(now);
  }

  /** The next message is due then. */
  speak(timeMs: number): void {
    this.nextMs = timeMs;
    this.isHalfway = false;
  }

  /** The key has no part of the pool any more, and forgets what it knew of it. */
  cool(): void {
    this.nextMs = Infinity;
    this.isAnswered = true;
    this.soon = 0;
    this.promised = 0;
    this.promisedMs = undefined;
    this.answered = 0;
    this.rows = [];
  }

  get #inUse(): number {
    return this.held - this.#resting.count;
  }

  /**
   * Has so many pieces on lease from now on, and uses at most `most` of them: others get the rest. Pieces that are of no
   * use to them before they are fresh rest here until then.
   *
   * @param fresh how many of those that come are fresh
   * @returns how many pieces are released
   */
  change(held: number, fresh: number, most = this.most): number {
    this.most = most;
    const before = this.#inUse;
    const now = this.#options.clock.now();
    const rested = this.#resting.takeFresh(now);
    const come = held - this.held + rested;
    const comeFresh = fresh + rested;
    const inUse = Math.min(before + come, most);
    const grown = Math.max(0, inUse - before);
    const freed = this.#use(before, inUse, Math.min(comeFresh, grown));
    const resting = freed.resting.length > 0 ? before - inUse - piecesOf(freed.fresh) : 0;
    this.#resting.add(resting, freed.resting, now);
    const released = before + come - inUse - resting;
    this.freed += Math.max(0, comeFresh - grown);
    this.held = held - released;
    if (this.held === 0) this.lapseMs = Infinity;
    return released;
  }

  /** Releases all pieces, fresh or not. */
  giveUp(): void {
    this.#use(this.#inUse, 0, 0);
    this.most = Infinity;
    this.#resting.clear();
    this.held = 0;
    this.lapseMs = Infinity;
  }

  /** Uses so many pieces. @param fresh how many of those that come are fresh */
  #use(from: number, to: number, fresh: number): Freed {
    let freed: Freed = { fresh: 0, resting: [] };
    if (from === to && !this.isOver) return freed;
    const { policies, base, clock, name, region } = this.#options;
    const [before, after] = [from, to].map((pieces) => Math.max(LEAST, base + pieces / WHOLE));
    const parts = { from: before as number, to: after as number, fresh: fresh / WHOLE };
    this.queue.change((state, now, epoch) => {
      // not before: a process that was suspended beyond its lease must not grant what became due meanwhile
      this.isOver = base + to === 0;
      const part = state as PartState;
      const moved = move(part, policies.list, parts, now, epoch);
      if (part === this.#state) freed = moved;
    });
    this.freed += piecesOf(freed.fresh);
    const channel = diagnostics.fraction;
    if (!channel.hasSubscribers) return freed;
    const { key } = this;
    const leaseMs = to === 0 ? 0 : Math.max(0, this.lapseMs - clock.now());
    const source = { limiter: name, ...(key === undefined ? {} : { key }) };
    const shares = { fraction: base + to / WHOLE, demand: this.demand.value / WHOLE };
    queueMicrotask(() => channel.publish({ ...source, region, ...shares, leaseMs }));
    return freed;
  }

  /** Goes by the numbers in force from now on. */
  renumber(): void {
    const { list } = this.#options.policies;
    const numbers = partsOf(list, Math.max(LEAST, this.fraction));
    if (this.#queue !== undefined) this.#queue.resize(numbers);
    else this.#state.resize(this.#time.now(), numbers, this.#time.epoch);
    this.#rates = ratesOf(list);
    this.#resting.extend(this.#options.clock.now() + this.keepMs);
  }

  /** Ends the lease: what was on lease is not used any more. */
  lapse(): void {
    this.isOver = true;
    this.giveUp();
    this.freed = 0;
  }

  /** How long the state of a part may matter: a piece is fresh after that, ms. */
  get keepMs(): number {
    const horizons = this.#options.policies.list.map((policy) => {
      const { algorithm } = policy;
      const state = algorithm.start(policy, 0);
      const capacity = capacityOf(policy);
      algorithm.take(policy, state, 0, Math.max(Number.MIN_VALUE, capacity));
      // stored permits of a warm-up are a time, too
      if (capacity === 0) return algorithm.lifetime(policy, state, 0);
      const { limit, windowMs } = algorithm.quota(policy, state, 0);
      // a limiter that lends grants the next request before it is full again
      const full = (algorithm.deficit(policy, state, 0) / limit) * windowMs * 1000;
      return Math.max(full, algorithm.earliest(policy, state, 0, capacity));
    });
    const known = horizons.filter(Number.isFinite);
    return Math.ceil(Math.min(LONGEST_MS, (DRIFT * Math.max(0, ...known)) / 1000));
  }
}

function piecesOf(part: number): number {
  return Math.floor(part * WHOLE);
}

function ratesOf(policies: readonly Policy[]): readonly number[] {
  return policies.map((policy) => {
    const { algorithm } = policy;
    const { limit, windowMs } = algorithm.quota(policy, algorithm.start(policy, 0), 0);
    return windowMs > 0 ? limit / windowMs : Infinity;
  });
}
