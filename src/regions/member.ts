/**
 * A member of a divided limit: a region or a process, and its parts of the limit of each key.
 *
 * A key that the reserve alone serves costs nothing. The first call that has to wait, or is refused, makes it hot: from
 * then on it exchanges one message with the ledger in each interval, until its demand has been below the reserve for
 * some intervals and its part is given back. Messages for several keys share a call.
 *
 * The order makes it safe. A member that must shrink does so first, and says it then. A member grows when the ledger has
 * said so. A lease counts from when the message was sent, by the member's own clock, so it ends here before it ends in
 * the ledger. A reply to any message but the last one changes nothing.
 *
 * A member shrinks no further than others lack, and by its own part of that: parts follow the demand without swinging,
 * and stay where nobody would gain. While a member lacks permits it sends three messages in an interval.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import type { CallOrder, CheckedOptions } from "../api/options.ts";
import type { OutageStats } from "../api/outage-stats.ts";
import { show } from "../ground/check.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import { diagnostics } from "../ground/diagnostics.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { QueueingLimiter } from "../local/queueing-limiter.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import { orderIn } from "../queue/order.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import {
  type Exchange,
  type LedgerRecord,
  readLedger,
  WHOLE,
  writeMessage,
} from "../stores/ledger.ts";
import type { PolicyList } from "../stores/policies.ts";
import { divide } from "./division.ts";
import { move, PartState, partsOf, type Validity } from "./part-state.ts";

/** A part is never smaller: a state at a rate of 0 would not know its debts. */
const LEAST = 1e-9;
/** Timers are as exact as this, ms: a sum of times may be greater by a rounding. */
const MICROSECOND = 0.001;
/** The ledger's leases are longer by this factor, for clocks that run at different speeds. */
const DRIFT = 1.1;
/** A member that lacks permits, or has just become hot, waits for this part of an interval. */
const SOON = 1 / 3;
/** From half-way to the next message. Random numbers add up to 0.05, so that an interval is never too long. */
const HALF = 0.4;
/** The demand of a key that has become hot is counted for this part of an interval before it is told. */
const FIRST = 0.15;
/** After so many such messages in a row it is as patient as the others: what it lacks is not there. */
const MOST_SOON = 6;
/** A key whose demand was below the reserve for so many intervals gives its part back. */
const IDLE_INTERVALS = 3;
/** Changes by more than this factor of the part do not wait for the next interval. */
const URGENT = 0.1;
/** Demand that differs by so many standard deviations has changed; else the estimate follows by the other factor. */
const CHANCE = 3;
const CALM = 0.15;
/** Demand that has grown by this factor does not, either. */
const RISING = 1.5;
/** More demand than this is no more urgent, in limits. */
const MOST_DEMAND = 16;
/** The record by which a member learns when the ledger was created is kept for so long, ms: 30 days. */
const ROOT_MS = 30 * 24 * 3_600_000;

export interface MemberOptions {
  readonly name: string;
  readonly region: string;
  /** The weights of the regions, by name. */
  readonly weights: ReadonlyMap<string, number>;
  /** Of the whole limit; `update` replaces them. */
  policies: PolicyList;
  readonly exchange: Exchange;
  /** The key of the ledger's records, with its prefix. */
  readonly ledgerKey: string;
  /** The fraction that needs no lease; 0 where the region's processes share it in a store. */
  readonly base: number;
  /** Demand up to this fraction needs no lease. */
  readonly reserved: number;
  /** What is on lease altogether. */
  readonly pool: number;
  /** No request is granted that needs a larger fraction. */
  readonly most: number;
  readonly everyMs: number;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly maxWaiting: number;
  readonly onFull: CheckedOptions["onFull"];
  readonly order: CallOrder | undefined;
  readonly stats: OutageStats;
}

/** The part of the limit of one key. */
export class Part implements Validity {
  /** Undefined for the limiter without a key. */
  readonly key: string | undefined;
  readonly limiter: QueueingLimiter;
  readonly queue: PermitQueue;
  readonly #state: PartState;
  readonly #options: MemberOptions;
  /** Permits a ms of the whole limit, by policy. */
  #rates: readonly number[];
  /** Read by the state, written by the clock that it is read with. */
  isOver = false;

  /** What is on lease, in `WHOLE`, and until when, ms of the clock. */
  held = 0;
  lapseMs = Infinity;
  /** Fresh pieces that were released and not acknowledged. */
  freed = 0;
  want = 0;
  number = 0;
  isAnswered = true;
  /** Whether the last message seemed too old. */
  isLate = false;
  /** What the clock of its ledger shows beyond this one, ms; undefined: not known. In a cluster each key has another clock. */
  ahead: number | undefined;
  /** Since when something is promised to it; undefined: nothing is. */
  promisedMs: number | undefined;
  seq = 0;
  rows: LedgerRecord["rows"] = [];

  /** When the next message is due; `Infinity` while the key is cold. */
  nextMs = Infinity;
  /** Half-way to the next message, where the demand that it states begins to be counted. */
  isHalfway = false;
  soon = 0;
  idle = 0;
  /** Demand, in ms of the whole limit: since when it is counted, and what was asked for since; what waits. */
  #sinceMs: number;
  #asked = 0;
  #requests = 0;
  /** Of a request, on average. */
  #cost = 0;
  #waited = 0;
  waiting = 0;
  callers = 0;
  /** The estimate, in `WHOLE`. */
  demand = 0;

  constructor(key: string | undefined, options: MemberOptions) {
    const { clock, policies, name, base, most, stats } = options;
    this.key = key;
    this.#options = options;
    const watched: Clock = {
      now: () => {
        const now = clock.now();
        if (now >= this.lapseMs) this.isOver = true;
        return now;
      },
      wakeAt: (timeMs, wake) => clock.wakeAt(timeMs, wake),
      epochMs: clock.epochMs ?? 0,
    };
    this.isOver = base === 0;
    const time = new MonotonicTime(watched);
    const part = Math.max(LEAST, base);
    this.#state = PartState.open(policies, { part, most }, this, time.last, time.epoch);
    this.queue = new PermitQueue(time, this.#state, orderIn(options));
    const { maxWaiting, onFull } = options;
    this.limiter = new QueueingLimiter(
      this.queue,
      policies,
      { name, maxWaiting, onFull },
      stats.callStats(policies.names, key),
    );
    this.#rates = ratesOf(policies.list);
    this.#sinceMs = clock.now();
  }

  /** The part that may be used now, from 0 to 1. */
  get fraction(): number {
    return this.#options.base + this.held / WHOLE;
  }

  get isHot(): boolean {
    return this.nextMs < Infinity;
  }

  /** Whether its lease is over, and it has not been ended yet. */
  get isLapsed(): boolean {
    return this.isOver && this.held > 0;
  }

  /** Returns for how many ms the whole limit has to work for a request. */
  costOf(amount: Amount): number {
    if (typeof amount === "number") return amount / (this.#rates[0] ?? 1);
    return this.#rates.reduce((most, rate, i) => Math.max(most, (amount[i] ?? 0) / rate), 0);
  }

  /** Takes the permits if they can be used now; a refusal is not counted, since the reserve is asked then. */
  grants(permits: Permits): boolean {
    const amount = this.queue.supply.amount(permits);
    if (!this.queue.grant(amount)) return false;
    this.#options.stats.counts.granted += 1;
    return true;
  }

  /** Counts a request as demand. */
  asked(amount: Amount): void {
    this.#asked += this.costOf(amount);
    this.#requests += 1;
  }

  /** Whether nothing would be lost if the key were forgotten. */
  isForgettable(now: number): boolean {
    if (this.isHot || this.held > 0 || this.callers > 0 || !this.queue.isIdle) return false;
    return (
      this.#state.lifetime(this.queue.last) <= 0 && now - this.#sinceMs > this.#options.everyMs
    );
  }

  /** Whether much more is asked for than the last message said, and the next one is not due soon. */
  isRising(now: number): boolean {
    // a further message would make the reply to the last one useless
    if (!this.isAnswered) return false;
    const { everyMs } = this.#options;
    const dueMs = this.nextMs + (this.isHalfway ? everyMs * HALF : 0);
    if (now - this.#sinceMs < everyMs * FIRST || dueMs - now < everyMs * SOON) return false;
    const demand = ((this.#asked + this.#waited) / (now - this.#sinceMs)) * WHOLE;
    return Math.min(demand, MOST_DEMAND * WHOLE) > this.demand * RISING;
  }

  /** Ends the interval: estimates the demand of its callers. */
  measure(now: number): void {
    const { everyMs } = this.#options;
    const elapsed = now - this.#sinceMs;
    // too short to tell: a message that follows another one at once says the same
    if (elapsed < (everyMs * FIRST) / 2) return;
    const asked = this.#asked + this.#waited;
    const newest = Math.min(MOST_DEMAND, asked / elapsed) * WHOLE;
    if (this.#requests > 0) this.#cost = this.#asked / this.#requests;
    // as many requests as the estimate lets expect, give or take what chance does
    const requests = asked / this.#cost;
    const expected = ((this.demand / WHOLE) * elapsed) / this.#cost;
    const deviation = Math.sqrt(Math.max(1, requests, expected));
    const isChance = Math.abs(requests - expected) <= CHANCE * deviation;
    this.demand = Math.round(isChance ? this.demand + CALM * (newest - this.demand) : newest);
    this.count(now);
  }

  /** Counts demand from now on. */
  count(now: number): void {
    this.#sinceMs = now;
    this.#asked = 0;
    this.#requests = 0;
    this.#waited = this.waiting;
  }

  /** The next message is due then. */
  speak(timeMs: number): void {
    this.nextMs = timeMs;
    this.isHalfway = false;
  }

  /** The key has no part of the pool any more, and forgets what it knew of it. */
  cool(): void {
    this.nextMs = Infinity;
    this.soon = 0;
    this.promisedMs = undefined;
    this.seq = 0;
    this.rows = [];
  }

  /** Uses `held` pieces from now on. @param fresh how many of those that come are fresh */
  change(held: number, fresh: number): void {
    if (held === this.held && !this.isOver) return;
    const { policies, base, clock, name, region } = this.#options;
    const from = Math.max(LEAST, this.fraction);
    this.held = held;
    const to = Math.max(LEAST, this.fraction);
    this.isOver = base + held === 0;
    this.queue.change((state, now, epoch) => {
      const part = state as PartState;
      const freed = move(part, policies.list, { from, to, fresh: fresh / WHOLE }, now, epoch);
      if (part === this.#state) this.freed += Math.floor(freed * WHOLE);
    });
    const { key, fraction } = this;
    const channel = diagnostics.fraction;
    if (!channel.hasSubscribers) return;
    const leaseMs = held === 0 ? 0 : Math.max(0, this.lapseMs - clock.now());
    const source = { limiter: name, ...(key === undefined ? {} : { key }) };
    const message = { ...source, region, fraction, demand: this.demand / WHOLE, leaseMs };
    queueMicrotask(() => channel.publish(message));
  }

  /** Goes by the numbers in force from now on. */
  renumber(): void {
    const { policies, most } = this.#options;
    const { list } = policies;
    const part = Math.max(LEAST, this.fraction);
    this.queue.resize(partsOf(list, part));
    this.#state.renumber(partsOf(list, most));
    this.#rates = ratesOf(list);
  }

  /** Ends the lease: what was on lease is not used any more. */
  lapse(): void {
    this.lapseMs = Infinity;
    this.isOver = true;
    this.change(0, 0);
    this.freed = 0;
  }

  /** How long the state of a part may matter: a piece is fresh after that, ms. */
  get keepMs(): number {
    const { list } = this.#options.policies;
    const horizons = list.map((policy) => {
      const state = policy.algorithm.start(policy, 0);
      policy.algorithm.take(
        policy,
        state,
        0,
        Math.max(Number.MIN_VALUE, policy.algorithm.bound(policy, 0, 0)),
      );
      return policy.algorithm.lifetime(policy, state, 0) / 1000;
    });
    return Math.ceil(Math.min(ROOT_MS, Math.max(0, ...horizons.filter(Number.isFinite))));
  }
}

function ratesOf(policies: readonly Policy[]): readonly number[] {
  return policies.map((policy) => {
    const { algorithm } = policy;
    const { limit, windowMs } = algorithm.quota(policy, algorithm.start(policy, 0), 0);
    return windowMs > 0 ? limit / windowMs : Infinity;
  });
}

export class Member {
  readonly #options: MemberOptions;
  readonly #id = crypto.randomUUID().replaceAll("-", "").slice(0, 12);
  readonly #hot = new Set<Part>();
  /** When the ledger was created, by its own clock; 0: not known. */
  #created = 0;
  readonly #root: Pick<Part, "ahead"> = { ahead: undefined };
  /** Of the last message, whatever its key: a key that was forgotten and comes back goes on counting. */
  #number = 0;
  #callers = 0;
  #timer: Timer | undefined;
  #timerAt = Infinity;
  #isAwaited = false;
  #isClosed = false;

  constructor(options: MemberOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Learns when the ledger was created, so that a key that becomes hot later need not wait for that. */
  greet(): void {
    if (this.#number === 0 && !this.#isClosed) this.#sendRoot();
  }

  /** A request of the part could not be granted at once. */
  lack(part: Part): void {
    if (this.#isClosed || this.#options.pool === 0) return;
    const now = this.#options.clock.now();
    if (part.isHot) {
      const isUrgent = part.isRising(now);
      if (isUrgent) part.speak(now);
      if (isUrgent || (this.#callers > 0 && !this.#isAwaited)) this.#arm();
      return;
    }
    part.count(now);
    part.speak(now + this.#options.everyMs * FIRST);
    part.idle = 0;
    this.#hot.add(part);
    // after this tick: requests of one tick make one demand
    queueMicrotask(() => this.#arm());
  }

  /** Counts a caller among those that wait: they are demand in the next interval too, and keep the process alive. */
  waits(part: Part, cost: number, answer: Promise<unknown>): void {
    part.waiting += cost;
    part.callers += 1;
    this.#callers += 1;
    const done = () => {
      part.callers -= 1;
      // differences of sums are not exact
      part.waiting = part.callers === 0 ? 0 : Math.max(0, part.waiting - cost);
      this.#callers -= 1;
      if (this.#callers > 0) return;
      this.#isAwaited = false;
      this.#timer?.unref?.();
    };
    answer.then(done, done);
  }

  /** Ends the lease of a part whose time is over. */
  lapse(part: Part): void {
    part.lapse();
    this.#arm();
  }

  /** Gives all parts back, and ends all timers. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const part of this.#hot) {
      part.want = 0;
      part.change(0, 0);
      if (part.number > 0) this.#send(part, this.#options.clock.now());
    }
    this.#hot.clear();
    this.#timer?.cancel();
    this.#options.stats.end();
  }

  /** Sets the timer to the next message or the next end of a lease. */
  #arm(): void {
    if (this.#isClosed) return;
    const isAwaited = this.#callers > 0;
    let at = Infinity;
    for (const part of this.#hot) at = Math.min(at, part.nextMs, part.lapseMs);
    if (this.#timer !== undefined && at === this.#timerAt && isAwaited === this.#isAwaited) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#isAwaited = isAwaited;
    this.#timer = at === Infinity ? undefined : this.#options.clock.wakeAt(at, this.#wake);
    // while nobody waits, the leases do not keep the process alive
    if (!isAwaited) this.#timer?.unref?.();
  }

  readonly #wake = (): void => {
    this.#timer = undefined;
    const { clock, everyMs } = this.#options;
    const now = clock.now() + MICROSECOND;
    for (const part of this.#hot) {
      if (part.lapseMs <= now) part.lapse();
      if (part.nextMs > now || !part.isHalfway) continue;
      part.isHalfway = false;
      part.count(now);
      part.nextMs = now + everyMs * (HALF + Math.random() / 20);
    }
    // keys that are due soon go along, so that all share a call from then on
    const due = [...this.#hot].filter((part) => part.nextMs <= now);
    const soon = (part: Part) => !part.isHalfway && part.nextMs <= now + everyMs / 10;
    if (due.length > 0) {
      this.#sendRoot();
      for (const part of this.#hot) if (soon(part)) this.#round(part, now);
    }
    this.#arm();
  };

  /** Sends the message of a part. Without a reply the next one is sent after `patienceMs`. */
  #round(part: Part, now: number): void {
    const { stats } = this.#options;
    if (!part.isAnswered)
      stats.lost(new Error(`the home has not answered for ${patienceMs(this.#options)} ms`));
    part.measure(now);
    // what waits may need a larger part than the reserve, however seldom it comes
    const isAwaited = part.callers > 0 || !part.queue.isIdle;
    part.idle = isAwaited || part.demand > this.#reservedOf(part) ? 0 : part.idle + 1;
    if (part.idle >= IDLE_INTERVALS && part.held === 0 && part.want === 0) {
      part.cool();
      this.#hot.delete(part);
      return;
    }
    if (part.idle >= IDLE_INTERVALS) {
      part.want = 0;
      part.change(0, 0);
    } else {
      part.want = Math.max(part.held, this.#divide(part).target);
    }
    this.#send(part, now);
    part.isAnswered = false;
    part.nextMs = now + patienceMs(this.#options);
  }

  /** Demand up to this needs no lease: a reserve in a store is divided among the members that share it. */
  #reservedOf(part: Part): number {
    const region = encodeURIComponent(this.#options.region);
    const sharers = part.rows.filter((row) => row.region === region).length;
    return (this.#options.reserved * WHOLE) / Math.max(1, sharers);
  }

  #divide(part: Part) {
    const { pool, weights, region, base } = this.#options;
    const demand = Math.max(0, Math.floor(part.demand - base * WHOLE));
    const me = { id: this.#id, region: encodeURIComponent(region), demand };
    return divide(part.rows, me, pool, weights);
  }

  #sendRoot(): void {
    const message = this.#message(this.#root, { keepMs: ROOT_MS, since: 0 });
    void this.#call(this.#root, this.#options.ledgerKey, message, ({ record }) => {
      this.#created = Math.max(this.#created, record.created);
    });
  }

  #send(part: Part, now: number): void {
    const { ledgerKey, base, clock, everyMs } = this.#options;
    const { key, held, freed, want, seq, keepMs } = part;
    // said once only: if this message is lost, nobody knows which of the released pieces they were
    part.freed = 0;
    const demand = Math.max(0, Math.floor(part.demand - base * WHOLE));
    const since = this.#created;
    const waitedMs = Math.max(0, Math.floor(now - (part.promisedMs ?? now)));
    const amounts = { held, fresh: freed, want, demand, waitedMs };
    const message = this.#message(part, { seq, since, ...amounts, keepMs });
    const number = this.#number;
    part.number = number;
    const isLast = () => number === part.number && this.#hot.has(part);
    const replied = (reply: Reply) => {
      if (!isLast()) return;
      part.isLate = false;
      this.#replied(part, reply, now);
    };
    // the limiter without a key has none behind the bracket
    const of = key?.replace(/^%*$/, "%$&") ?? "";
    void this.#call(part, `${ledgerKey}[${of}`, message, replied, (isLate) => {
      if (!isLast()) return;
      // the next message says the same: at once if this one seemed too old, since the ledger's time is known now
      part.speak(clock.now() + (isLate && !part.isLate ? 0 : everyMs));
      part.isLate = isLate;
      part.isAnswered = true;
      this.#arm();
    });
  }

  #message(
    { ahead }: Pick<Part, "ahead">,
    numbers: {
      readonly keepMs: number;
      readonly since: number;
      readonly seq?: number;
      readonly held?: number;
      readonly fresh?: number;
      readonly want?: number;
      readonly demand?: number;
      readonly waitedMs?: number;
    },
  ): readonly string[] {
    const { region, everyMs, leaseMs, pool, clock } = this.#options;
    this.#number += 1;
    const number = this.#number;
    const sent = ahead === undefined ? 0 : Math.max(0, Math.floor(clock.now() + ahead));
    const none = { number, seq: 0, sent, held: 0, fresh: 0, want: 0, demand: 0, waitedMs: 0 };
    const times = { leaseMs: Math.ceil(leaseMs * DRIFT), gapMs: Math.ceil(everyMs), pool };
    const id = this.#id;
    return writeMessage({ ...none, ...numbers, ...times, id, region: encodeURIComponent(region) });
  }

  /**
   * Whatever the ledger does, its reply is used, or counted as an outage.
   *
   * @param failed is told whether the message seemed too old
   */
  async #call(
    sender: Pick<Part, "ahead">,
    key: string,
    message: readonly string[],
    replied: (reply: Reply) => void,
    failed: (isLate: boolean) => void = () => {},
  ): Promise<void> {
    const { exchange, stats, clock, pool } = this.#options;
    try {
      const text = await exchange(key, message);
      const reply = readReply(text, pool);
      sender.ahead = (reply.record === undefined ? reply.late : reply.record.last) - clock.now();
      stats.answered();
      if (reply.record !== undefined) replied(reply);
      else failed(true);
    } catch (error) {
      stats.lost(error);
      failed(false);
    }
  }

  #replied(part: Part, { held, fresh, record }: Reply, sentMs: number): void {
    const { clock, leaseMs, everyMs } = this.#options;
    part.nextMs = sentMs + everyMs / 2;
    part.isHalfway = true;
    part.isAnswered = true;
    if (sentMs + leaseMs > clock.now()) {
      part.seq = record.seq;
      part.rows = record.rows;
      // what comes with this reply was promised before; what is promised now may be new
      const isPromised = (record.rows.find(({ id }) => id === this.#id)?.promised ?? 0) > 0;
      if (!isPromised) part.promisedMs = undefined;
      else if (held > part.held || part.promisedMs === undefined) part.promisedMs = sentMs;
      part.lapseMs = held > 0 ? sentMs + leaseMs : Infinity;
      part.change(held, fresh);
      const { target, excess } = this.#divide(part);
      const isUrgent = (size: number) => size > part.held * URGENT + 1;
      if (excess > 0) {
        if (isUrgent(excess)) part.soon = 1;
        part.want = Math.max(0, part.held - excess);
        part.change(part.want, 0);
        part.speak(clock.now());
      } else if (part.idle > 0 || (part.soon === 0 && !isUrgent(target - part.held))) {
        part.soon = 0;
      } else if (part.soon < MOST_SOON) {
        part.soon += 1;
        part.speak(sentMs + everyMs * SOON);
      } else if (!isUrgent(target - part.held)) {
        part.soon = 0;
      }
    }
    this.#arm();
  }
}

/** After so long without a reply a message counts as lost. */
function patienceMs({ everyMs, leaseMs }: MemberOptions): number {
  return Math.min(2 * everyMs, leaseMs / 2);
}

interface Reply {
  readonly held: number;
  readonly fresh: number;
  readonly record: LedgerRecord;
}

/** The message was not used; the time of the ledger. */
interface LateReply {
  readonly record?: undefined;
  readonly late: number;
}

/** @throws TypeError if it is none */
function readReply(text: string, pool: number): Reply | LateReply {
  const end = text.indexOf("\n");
  const [first, second] = text.slice(0, end < 0 ? text.length : end).split(" ");
  const [held, fresh] = [Number(first), Number(second)];
  if (first === "late" && fresh > 0 && fresh < Infinity) return { late: fresh };
  if (held >= 0 && held <= pool && fresh >= 0 && fresh <= pool) {
    return { held, fresh, record: readLedger(text.slice(end + 1)) };
  }
  throw new TypeError(`the home answered ${show(text)} to a region`);
}
