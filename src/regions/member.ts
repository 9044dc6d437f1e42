/**
 * A member of a divided limit: a region or a process, and its parts of the limit of each key.
 *
 * A key that the reserve alone serves costs nothing. The first call that has to wait, or is refused, makes it hot: from
 * then on it exchanges one message with the ledger in each interval, until its demand has been below the reserve for some
 * intervals, without a refusal or bursts, and its part is given back. Messages for several keys share a call. A key that owes,
 * and has no reserve that pays, stays hot until its part has paid.
 *
 * The order makes it safe. A member that must shrink does so first, and says it then. A member grows when the ledger has
 * said so. A lease counts from when the message was sent, by the member's own clock, so it ends here before it ends in
 * the ledger. A reply to any message but the last one changes nothing.
 *
 * Of windows it says so later, when what was used is fresh (`resting.ts`); until then these pieces rest on its lease.
 *
 * A member shrinks no further than others lack, and by its own part of that: parts follow the demand without swinging,
 * and stay where no region would gain. While a member lacks permits it sends three messages in an interval.
 *
 * A member never makes more than about three rounds of messages in an interval, whatever the number of keys: two may follow
 * each other at once, so that a part that is given moves on soon, and more are a third of an interval apart.
 */
import type { Timer } from "../ground/clock.ts";
import { longestRest, sizeOf, WHOLE } from "../stores/ledger.ts";
import type { LedgerRecord } from "../stores/ledger-text.ts";
import { Alarm } from "./alarm.ts";
import { FIRST } from "./demand.ts";
import { divide, isLacked } from "./division.ts";
import { gapMs, HomeLink, patienceMs, type Reply, type Sender } from "./home-link.ts";
import { Lease, REFUSED } from "./lease.ts";
import { type Numbers, restAsLong, restOn } from "./numbers.ts";
import type { MemberOptions, Part } from "./part.ts";

/** Timers are as exact as this, ms: a sum of times may be greater by a rounding. */
const MICROSECOND = 0.001;
/** A member that lacks permits, or has just become hot, waits for this part of an interval. */
const SOON = 1 / 3;
/** The next message is so long after half an interval, or after a later reply; up to 0.05 longer, so an interval is never too long. */
const HALF = 0.4;
/** After so many such messages in a row it is as patient as the others: what it lacks is not there. */
const MOST_SOON = 6;
/** A key whose demand was below the reserve for so many intervals gives its part back. */
const IDLE_INTERVALS = 3;
/** A debt asks for at least so much of the limit. */
const OWED = 0.01;
/** A message is repeated at least once in so many times `patienceMs`. */
const LONGEST_PAUSE = 16;
/** Changes by more than this factor of the part do not wait for the next interval. */
const URGENT = 0.1;
/** The record by which a member learns when the ledger was created is kept for so long without a message, ms: a year. */
const ROOT_MS = 365 * 24 * 3_600_000;

export class Member {
  readonly #options: MemberOptions;
  readonly #home: HomeLink;
  readonly #hot = new Map<Part, Lease>();
  /** When the ledger was created, by its own clock; 0: not known. */
  #created = 0;
  readonly #root: Sender = { ahead: undefined, heard: 0 };
  /** A call asks for that from then on, if no key does: it has had no answer. */
  #greetMs = -Infinity;
  /**
   * Whether the messages of the keys wait for what tells when the ledger was created: a record that begins without that
   * is closed for a lease.
   */
  #isGreeting = false;
  #callers = 0;
  readonly #alarm: Alarm;
  #isClosed = false;
  #ending: Promise<void> | undefined;
  /** There is no call before this. */
  #callMs = -Infinity;

  constructor(options: MemberOptions) {
    this.#options = options;
    this.#alarm = new Alarm(options.clock, () => this.#wake());
    this.#home = new HomeLink(options, (...answered) => this.#repeat(...answered));
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Learns when the ledger was created, so that a key that becomes hot later need not wait for that. */
  greet(): void {
    if (this.#greetMs === Infinity || this.#isClosed) return;
    if (this.#options.clock.now() >= this.#greetMs) this.#sendRoot();
  }

  /** Whether the part takes part in the messages. */
  isHot(part: Part): boolean {
    return this.#hot.has(part);
  }

  /** Pieces that rest go by the numbers in force from now on: where windows end is not known any more, if they are others. */
  renumber(before: Numbers): void {
    const { clock, numbers } = this.#options;
    if (restAsLong(numbers, before)) return;
    for (const lease of this.#hot.values()) lease.rest(clock.now() + numbers.keepMs);
  }

  /** A request of the part could not be granted at once. */
  lack(part: Part): void {
    const { clock, everyMs, pool } = this.#options;
    if (this.#isClosed || pool === 0) return;
    const now = clock.now();
    const hot = this.#hot.get(part);
    if (hot !== undefined) {
      hot.idle = REFUSED;
      const isUrgent = this.#isEarly(hot, now) && part.demand.isRising(now);
      if (isUrgent) hot.nextMs = now;
      if (isUrgent || (this.#callers > 0 && !this.#alarm.isAwaited)) this.#hasten(hot);
      return;
    }
    part.demand.begin(now);
    const lease = new Lease(part, clock, now + everyMs * FIRST);
    this.#hot.set(part, lease);
    // after this tick: requests of one tick make one demand
    queueMicrotask(() => this.#hasten(lease));
  }

  /** Whether the next message is not due soon, and no reply is under way, which it would make useless. */
  #isEarly(lease: Lease, now: number): boolean {
    return lease.isAnswered && lease.nextMs - now >= this.#options.everyMs * SOON;
  }

  /** Counts a caller among those that wait: they are demand in the next interval too, and keep the process alive. */
  waits(part: Part, cost: number, answer: Promise<unknown>): void {
    const { clock } = this.#options;
    part.demand.waiting.begin(cost, clock.now());
    part.callers += 1;
    this.#callers += 1;
    const done = () => {
      part.callers -= 1;
      part.demand.waiting.end(cost, clock.now(), part.callers === 0);
      this.#callers -= 1;
      if (this.#callers === 0) this.#alarm.leave();
    };
    answer.then(done, done);
  }

  /** Returns the part, without a lease that is over: a process may have been stopped until now. */
  current(part: Part): Part {
    part.now();
    if (part.isLapsed) this.lapse(part);
    return part;
  }

  /** Ends the lease of a part whose time is over. */
  lapse(part: Part): void {
    const lease = this.#hot.get(part);
    if (lease === undefined) return;
    lease.lapse();
    this.#hasten(lease);
  }

  /** Gives all parts back, and ends all timers. Resolves when the ledger knows, or has not answered for too long. */
  close(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  async #end(): Promise<void> {
    const { clock, stats } = this.#options;
    this.#isClosed = true;
    this.#alarm.end();
    const endMs = clock.now() + patienceMs(this.#options);
    let timer: Timer | undefined;
    const tooLong = new Promise<void>((resolve) => {
      timer = clock.wakeAt(endMs, resolve);
    });
    const sent = [...this.#hot.values()].map(async (lease) => {
      // it would be taken for a member that knows more, if it came after the last message
      if (!lease.isAnswered) await Promise.race([lease.underWay, tooLong]);
      this.#hot.delete(lease.part);
      lease.want = 0;
      if (lease.number === 0 || lease.isEmptied) return;
      lease.giveUp();
      await this.#send(lease, clock.now());
      // after an error: a connection may have been lost, and there is another one now
      if (!lease.isEmptied && clock.now() < endMs) await this.#send(lease, clock.now());
    });
    await Promise.race([Promise.all(sent), tooLong]);
    timer?.cancel();
    stats.end();
  }

  /** While no caller waits, the leases do not keep the process alive. */
  #arm(): void {
    let at = Infinity;
    for (const lease of this.#hot.values()) at = Math.min(at, this.#wakeMs(lease));
    this.#alarm.set(at, this.#callers > 0);
  }

  /** For a part that has changed, without a look at all others: at worst the alarm rings once too early. */
  #hasten(lease: Lease): void {
    this.#alarm.hasten(this.#wakeMs(lease), this.#callers > 0);
  }

  /** When its next message is due, or its lease ends. */
  #wakeMs({ nextMs, part }: Lease): number {
    return Math.min(Math.max(nextMs, this.#callMs), part.lapseMs);
  }

  #wake(): void {
    const now = this.#options.clock.now() + MICROSECOND;
    for (const lease of this.#hot.values()) {
      if (lease.part.lapseMs <= now) lease.lapse();
    }
    const due = [...this.#hot.values()].filter(({ nextMs }) => nextMs <= now);
    if (now >= this.#callMs && due.length > 0) {
      const isGreeted = this.#isGreeting;
      const mayBegin = due.some(({ answered }) => answered === 0);
      this.#isGreeting = this.#created === 0 && mayBegin && !isGreeted;
      if (this.#isGreeting) this.#callMs = now + patienceMs(this.#options);
      if (!isGreeted) this.#sendRoot();
      if (!this.#isGreeting) this.#sendDue(now);
    }
    this.#arm();
  }

  /** Keys that are due in half an interval go along, so that all share a call; but not before their first demand was counted. */
  #sendDue(now: number): void {
    const { everyMs } = this.#options;
    const pauseMs = everyMs * SOON;
    this.#callMs = Math.max(this.#callMs, now - pauseMs) + pauseMs;
    for (const lease of this.#hot.values()) {
      const mayGoAlong = lease.number > 0 && lease.isAnswered;
      if (lease.nextMs <= now + (mayGoAlong ? everyMs / 2 : 0)) this.#round(lease, now);
    }
  }

  /** Sends the message of a lease. Without a reply the next one is sent after `patienceMs`. */
  #round(lease: Lease, now: number): void {
    if (!lease.isAnswered) {
      const waitedMs = this.#home.patienceMs;
      this.#home.lost(lease, new Error(`the home has not answered for ${Math.round(waitedMs)} ms`));
      lease.missed += 1;
      // a client may keep each message: the pauses double
      const isDue = (lease.missed & (lease.missed - 1)) === 0;
      if (!isDue && lease.missed % LONGEST_PAUSE > 0) {
        lease.nextMs = now + waitedMs;
        return;
      }
    }
    // a member that has become patient lacks something else now
    const { part } = lease;
    const usable = this.#options.reserved + part.inUse / WHOLE;
    if (part.demand.measure(now, usable, this.#options.numbers.rests)) lease.soon = 0;
    part.weigh();
    // what waits, or comes at once, may need a larger part than the reserve, however seldom it comes
    const isCalled = part.callers > 0 || !part.isIdle || part.demand.isBursty(now);
    const isAwaited = isCalled || part.owedMs > 0;
    lease.idle = isAwaited || part.demand.value > this.#reservedOf(lease) ? 0 : lease.idle + 1;
    if (lease.idle >= IDLE_INTERVALS && lease.held === 0 && lease.want === 0 && lease.isDone(now)) {
      this.#hot.delete(lease.part);
      lease.isOver = true;
      this.#home.forget(lease);
      return;
    }
    lease.want = 0;
    lease.expire(now);
    if (lease.idle >= IDLE_INTERVALS) {
      // while others lack it, what rests here goes to them as it becomes fresh
      if (isLacked(lease.rows, this.#home.id) && !lease.isClaiming) lease.change(lease.held, 0, 0);
      else lease.giveUp();
    } else if (!lease.isClaiming && !lease.isEmptying(now)) {
      lease.change(lease.held, 0);
      lease.want = Math.max(
        Math.min(lease.held, lease.most),
        this.#divide(lease, lease.held).target,
      );
    }
    lease.isAnswered = false;
    lease.nextMs = now + this.#home.patienceMs;
    lease.underWay = this.#send(lease, now);
  }

  /** Demand up to this needs no lease: a reserve in a store is divided among the members that share it. */
  #reservedOf(lease: Lease): number {
    const region = encodeURIComponent(this.#options.region);
    const sharers = lease.rows.filter((row) => row.region === region).length;
    return (this.#options.reserved * WHOLE) / Math.max(1, sharers);
  }

  /** What needs a lease: once nobody asks any more, what pays within an interval or two for what was asked for before. */
  #demandOf({ part }: Lease): number {
    const { base, everyMs } = this.#options;
    const { value } = part.demand;
    if (value > 0) return Math.max(0, Math.floor(value - base * WHOLE));
    const { owedMs } = part;
    return owedMs > 0 ? Math.floor(Math.min(1, OWED + owedMs / everyMs) * WHOLE) : 0;
  }

  /** What the member should hold; and how much of what it holds it may use, since others lack the rest. */
  #divide(lease: Lease, held: number): { readonly target: number; readonly most: number } {
    const { pool, weights, region, clock, numbers } = this.#options;
    const { id } = this.#home;
    const me = { id, region: encodeURIComponent(region), demand: this.#demandOf(lease) };
    const { target, excess } = divide(lease.rows, me, pool, weights);
    let most = excess > 0 ? held - excess : Infinity;
    if (numbers.rests) {
      // nobody can use what rests: at the home, here, and with others, who do not want it
      const resting = lease.restingAt(clock.now() + 2 * gapMs(this.#options));
      let useful = pool - lease.restingAtHome;
      const rows = lease.rows.map((row) => {
        const used = row.id === id ? row.held - resting : Math.min(row.held, row.want);
        useful -= row.held - used;
        return { ...row, held: used };
      });
      const lacked = divide(rows, me, Math.max(0, useful), weights).excess;
      // what is not fresh would rest, too
      const given = lacked > 0 ? Math.min(lacked, Math.floor(lease.part.freshPieces)) : 0;
      if (given > 0) most = Math.min(most, held - resting - given);
    }
    return { target, most: Math.max(0, most) };
  }

  #restingAtHome({ resting, rows, last }: LedgerRecord): number {
    const restMs = 2 * gapMs(this.#options);
    const rest = resting.filter((group) => group.restMs > restMs).map(({ parts }) => parts);
    const lapsed = rows.filter(({ lapse }) => lapse <= last).map(sizeOf);
    return [...rest, ...lapsed].reduce((sum, parts) => sum + parts, 0);
  }

  #sendRoot(): void {
    const greeted = () => {
      if (!this.#isGreeting) return;
      this.#callMs = -Infinity;
      this.#arm();
    };
    const replied = ({ record }: Reply) => {
      this.#greetMs = Infinity;
      // not later than now, if the home's clock was ahead
      this.#created = Math.max(Math.min(this.#created, record.last), record.created);
      greeted();
    };
    this.#greetMs = this.#options.clock.now() + LONGEST_PAUSE * patienceMs(this.#options);
    const said = { keepMs: ROOT_MS, since: 0 };
    void this.#home.send(this.#root, this.#options.ledgerKey, said, replied, greeted);
  }

  /** After a silence of the home, what waits to be repeated is sent now, and what was just sent is repeated if it is lost. */
  #repeat(now: number, beforeMs: number, beforeSentMs: number): void {
    const { patienceMs: patience } = this.#home;
    if (now < beforeMs + 2 * patience) return;
    for (const lease of this.#hot.values()) {
      // a record that hangs while others are answered waits for its turn
      if (lease.isAnswered || lease.sentMs <= beforeSentMs) continue;
      lease.missed = 0;
      lease.nextMs = Math.max(now, lease.sentMs + patience);
      this.#hasten(lease);
    }
  }

  #send(lease: Lease, now: number): Promise<void> {
    const { ledgerKey, clock, everyMs, leaseMs, numbers } = this.#options;
    const { part, held, want } = lease;
    const demand = this.#demandOf(lease);
    const amounts = { held, want, demand, waitedMs: waitedMs(lease, now) };
    const number = this.#home.number + 1;
    const report = lease.report(number, now, leaseMs);
    const said = { ...amounts, ...report, since: this.#created, keepMs: numbers.keepMs };
    lease.number = number;
    lease.sentMs = clock.now();
    const isLast = () => number === lease.number && this.#hot.get(part) === lease;
    const known = held + report.claim;
    const replied = (reply: Reply) => {
      if (number === lease.number) lease.acknowledged(known, want);
      if (!isLast()) return;
      lease.isLate = false;
      if (part.lapseMs <= clock.now()) lease.lapse();
      this.#replied(lease, reply, now, known, report.claim > 0);
    };
    // the limiter without a key has none behind the bracket
    const of = part.key?.replace(/^%*$/, "%$&") ?? "";
    return this.#home.send(lease, `${ledgerKey}[${of}`, said, replied, (isLate) => {
      if (!isLast()) return;
      // the next message says the same: at once if this one seemed too old, since the ledger's time is known now
      lease.nextMs = clock.now() + (isLate && !lease.isLate ? 0 : everyMs);
      lease.isLate = isLate;
      lease.isAnswered = true;
      lease.missed = 0;
      this.#hasten(lease);
    });
  }

  /** @param known what the message said that it has, or claims */
  #replied(
    lease: Lease,
    { fresh, record, ...reply }: Reply,
    sentMs: number,
    known: number,
    isClaim: boolean,
  ): void {
    const { clock, leaseMs, everyMs } = this.#options;
    const halfMs = Math.max(clock.now(), sentMs + everyMs / 2);
    lease.nextMs = halfMs + everyMs * (HALF + Math.random() / 20);
    lease.isAnswered = true;
    lease.missed = 0;
    if (sentMs + leaseMs > clock.now()) {
      // its lease has ended since: what it said that it held may be another one's, if the ledger did not know of that
      lease.claimed(isClaim || record.closed <= record.last ? reply.held : 0);
      const held = Math.max(0, reply.held - known + lease.held);
      lease.rows = record.rows.filter(({ lapse }) => lapse > record.last);
      lease.restingAtHome = this.#restingAtHome(record);
      // a promise does not grow: a greater one is new, and so is one that follows one that was due
      const own = record.rows.find(({ id }) => id === this.#home.id);
      const { number = 0, promised = 0, keepMs = 0 } = own ?? {};
      lease.answered = number;
      const gap = gapMs(this.#options);
      lease.endMs = sentMs + leaseMs;
      lease.keptMs = keepMs + 2 * gap;
      const wasDue = waitedMs(lease, sentMs) >= gap;
      if (promised === 0) lease.promisedMs = undefined;
      else if (wasDue || promised > lease.promised) lease.promisedMs = sentMs;
      lease.promised = promised;
      lease.part.lapseMs = held > 0 ? sentMs + leaseMs : Infinity;
      const { target, most } = this.#divide(lease, held);
      // used just now at the latest
      const restMs = Math.min(lease.keepMs, restOn(longestRest(record.resting)));
      const released = lease.change(held, fresh, most, restMs);
      const isUrgent = (size: number) => size > lease.held * URGENT + 1;
      if (released > 0) {
        if (isUrgent(released)) lease.soon = 1;
        lease.want = Math.min(lease.held, lease.most);
        lease.nextMs = clock.now();
      } else if (lease.idle > 0 || (lease.soon === 0 && !isUrgent(target - lease.held))) {
        lease.soon = 0;
      } else if (lease.soon < MOST_SOON) {
        lease.soon += 1;
        lease.nextMs = sentMs + everyMs * SOON;
      } else if (!isUrgent(target - lease.held)) {
        lease.soon = 0;
      }
      // times are rounded down
      if (lease.promisedMs !== undefined)
        lease.nextMs = Math.min(lease.nextMs, lease.promisedMs + gap + 1);
    }
    this.#hasten(lease);
  }
}

/** For how long the member has known what is promised to it. */
function waitedMs({ promisedMs }: Lease, now: number): number {
  return promisedMs === undefined ? 0 : Math.max(0, Math.floor(now - promisedMs));
}
