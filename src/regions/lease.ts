/**
 * The lease on which a member holds a part of the pool for one key, and what its messages say. A key that its reserve
 * serves has none.
 */
import type { Clock } from "../ground/clock.ts";
import { WHOLE } from "../stores/ledger.ts";
import type { LedgerMessage, LedgerRecord } from "../stores/ledger-text.ts";
import { restOn } from "./numbers.ts";
import type { Part } from "./part.ts";
import { type Pieces, type Rest, RestingPieces } from "./resting.ts";

/** A message soon after a refusal does not tell how much is asked for in an interval. */
export const REFUSED = -1;
/** The same for all: nothing is under way. */
const DONE = Promise.resolve();
/** Pieces that are fresh now. */
const AT_ONCE: readonly Rest[] = [{ part: 1, micros: 0 }];

/** What a message says of pieces that were released; and which row of this member held them. */
type Report = Pick<LedgerMessage, "answered" | "claim" | "released">;

/** Pieces that were released, and the message that has said so first; 0: none has yet. */
interface ReleasedPieces extends Pieces {
  number: number;
}

export class Lease {
  readonly part: Part;
  readonly #clock: Clock;

  /** What is on lease, in `WHOLE`. */
  held = 0;
  /** No more of it is used, for others lack it. */
  most = Infinity;
  readonly #resting = new RestingPieces();
  /** What the home may not know yet: it is said until a message that says so was answered. */
  #released: ReleasedPieces[] = [];
  want = 0;
  /**
   * What was on lease when that ended: it all rests here, and is used again if the home has kept it. Only for pieces that
   * would have to rest elsewhere; the others are soon of use again.
   */
  #claim = 0;

  /** The last message. */
  number = 0;
  sentMs = 0;
  /** A message that gave everything back was not answered: its row may last until then. */
  #rowUntilMs = -Infinity;
  /** Whether the home knows that this member has nothing and wants nothing. */
  isEmptied = false;
  isAnswered = true;
  underWay = DONE;
  /** How often in a row no reply came in time. */
  missed = 0;
  /** Whether the last message seemed too old. */
  isLate = false;
  /** What the clock of its ledger shows beyond this one, ms; undefined: not known. In a cluster each key has another clock. */
  ahead: number | undefined;
  /** The last message that was answered. */
  heard = 0;
  /** Whether its key is not hot any more. */
  isOver = false;
  /** What is promised to it, and since when; undefined: nothing is. */
  promised = 0;
  promisedMs: number | undefined;
  /** The number of the last message in its row, and when the lease ends that this asked for. */
  answered = 0;
  endMs = 0;
  /** For so long the home keeps its parts then: afterwards they are fresh for all. */
  keptMs = 0;
  rows: LedgerRecord["rows"] = [];
  /** How many pieces nobody can use within two intervals, since they rest at the home. */
  restingAtHome = 0;

  /** When the next message is due. */
  nextMs: number;
  /** How many messages in a row did not wait for the interval, and for how many intervals the reserve was enough. */
  soon = 0;
  idle = REFUSED;

  constructor(part: Part, clock: Clock, nextMs: number) {
    this.part = part;
    this.#clock = clock;
    this.nextMs = nextMs;
  }

  /**
   * Has so many pieces on lease from now on, and uses at most `most` of them: others get the rest. Pieces that are of no
   * use to them before they are fresh rest here until then.
   *
   * @param fresh how many of those that come are fresh
   * @param restMs after how many ms the others are
   * @returns how many pieces are released
   */
  change(held: number, fresh: number, most = this.most, restMs = 0): number {
    this.most = most;
    const before = this.part.inUse;
    const now = this.#clock.now();
    const rested = this.#resting.takeFresh(now);
    const comeUsed = this.part.rests ? Math.max(0, held - this.held - fresh) : 0;
    const come = held - this.held - comeUsed + rested;
    const comeFresh = fresh + rested;
    const inUse = Math.min(before + come, most);
    const grown = Math.max(0, inUse - before);
    const freed = this.part.use(inUse, Math.min(comeFresh, grown));
    const freedFresh = piecesOf(freed.fresh);
    const resting = freed.resting.length > 0 ? before - inUse - freedFresh : 0;
    this.#resting.add(resting, freed.resting, now);
    this.#resting.add(comeUsed, [{ part: 1, micros: restMs * 1000 }], now);
    const released = before + come - inUse - resting;
    const unused = Math.min(released, freedFresh + Math.max(0, comeFresh - grown));
    // what comes back at a rate goes without any permit: it must fill anew
    const used = this.part.rests ? 0 : released - unused;
    this.#release(released - used, now);
    this.#release(used, now + this.keepMs);
    this.held = held - released;
    if (this.held === 0) this.part.lapseMs = Infinity;
    return released;
  }

  /** What is used counts for no longer, for any member. */
  get keepMs(): number {
    return this.rows.reduce((most, row) => Math.max(most, row.keepMs), this.part.keepMs);
  }

  /** Releases all pieces, fresh or not: those that rest do so elsewhere. */
  giveUp(): void {
    this.claimed(0);
    this.change(this.held, 0, 0);
    this.#releaseResting();
    this.most = Infinity;
    this.held = 0;
    this.part.lapseMs = Infinity;
  }

  /** What was on lease is not used any more: its time is over. */
  lapse(): void {
    const { part } = this;
    const now = this.#clock.now();
    part.isOver = true;
    const before = part.inUse;
    const { fresh, resting } = part.use(0, 0);
    const freshPieces = piecesOf(fresh);
    this.#resting.add(freshPieces, AT_ONCE, now);
    this.#resting.add(before - freshPieces, resting.length > 0 ? resting : AT_ONCE, now);
    this.#claim = part.rests && this.answered > 0 ? this.held : 0;
    if (this.#claim === 0) this.#resting.clear();
    this.most = Infinity;
    this.held = 0;
    part.lapseMs = Infinity;
  }

  get isClaiming(): boolean {
    return this.#claim > 0;
  }

  /** @param held what the home has for this member now; less than the claim: it is not known which pieces these are */
  claimed(held: number): void {
    if (this.#claim === 0) return;
    if (held < this.#claim) this.#resting.clear();
    else this.held = this.#claim;
    this.#claim = 0;
  }

  /** Forgets what is promised when its row is over, and claims no longer than the home keeps its parts: they are fresh then. */
  expire(now: number): void {
    if (now >= this.endMs) this.#forgetPromise();
    if (now < this.endMs + this.keptMs || this.#claim === 0) return;
    this.#claim = 0;
    this.#releaseResting();
  }

  /** Returns what the next message says, which has this number. @param leaseMs how long a row lasts */
  report(number: number, now: number, leaseMs: number): Report {
    this.isEmptied = false;
    const isEmpty = this.held + this.want + this.#claim === 0;
    if (isEmpty && this.#rowUntilMs === -Infinity) this.#rowUntilMs = now + leaseMs;
    // whether the home has a row of it is not known any more: it begins anew, claims nothing of it and misses none
    if (!isEmpty && this.#rowUntilMs > -Infinity) this.#begin();
    for (const pieces of this.#released) pieces.number ||= number;
    return {
      answered: now < this.endMs + this.keptMs ? this.answered : 0,
      claim: this.#claim,
      released: this.#released.map(({ number, count, freshMs }) => {
        return { number, parts: count, restMs: freshMs > now ? restOn(freshMs - now) : 0 };
      }),
    };
  }

  #begin(): void {
    this.#rowUntilMs = -Infinity;
    this.answered = 0;
    this.#forgetPromise();
  }

  #forgetPromise(): void {
    this.promised = 0;
    this.promisedMs = undefined;
  }

  /** The last message was answered, which said so much. */
  acknowledged(held: number, want: number): void {
    this.#released = this.#released.filter(({ number }) => number === 0);
    this.isEmptied = held + want === 0;
    if (this.isEmptied) this.#begin();
  }

  /** Whether it has given everything back, and the home may not know that: it wants nothing before. */
  isEmptying(now: number): boolean {
    return now < this.#rowUntilMs;
  }

  /** Whether this member need not say any more that it has nothing: the home knows, or its row of it is over. */
  isDone(now: number): boolean {
    return this.isEmptied || (this.#rowUntilMs > -Infinity && now >= this.#rowUntilMs);
  }

  /** From then on they are fresh. */
  #release(count: number, freshMs: number): void {
    if (count === 0) return;
    this.#released.push({ count, freshMs, number: 0 });
  }

  #releaseResting(): void {
    for (const { count, freshMs } of this.#resting.take()) this.#release(count, freshMs);
  }

  /** How many pieces rest here then. */
  restingAt(timeMs: number): number {
    return this.#resting.countAt(timeMs);
  }

  /** Pieces that rest are fresh only then. */
  rest(untilMs: number): void {
    this.#resting.extend(untilMs);
  }
}

function piecesOf(part: number): number {
  return Math.floor(part * WHOLE);
}
