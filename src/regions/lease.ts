/**
 * The lease on which a member holds a part of the pool for one key, and what its messages say. A key that its reserve
 * serves has none.
 */
import type { Clock } from "../ground/clock.ts";
import { type LedgerMessage, type LedgerRecord, type Resting, WHOLE } from "../stores/ledger.ts";
import { LONGEST_MS, restOn } from "./numbers.ts";
import type { Part } from "./part.ts";
import { type Rest, RestingPieces } from "./resting.ts";

/** A message soon after a refusal does not tell how much is asked for in an interval. */
export const REFUSED = -1;
/** The same for all: nothing is under way. */
const DONE = Promise.resolve();
/** Pieces that are fresh now. */
const AT_ONCE: readonly Rest[] = [{ part: 1, micros: 0 }];

/** What a message says of pieces that it releases; and which row of this member held them. */
type Report = Pick<LedgerMessage, "answered" | "claim" | "fresh" | "restMs" | "groups">;

export class Lease {
  readonly part: Part;
  readonly #clock: Clock;

  /** What is on lease, in `WHOLE`. */
  held = 0;
  /** No more of it is used, for others lack it. */
  most = Infinity;
  readonly #resting = new RestingPieces();
  /** Fresh pieces that were released and not acknowledged. */
  #freed = 0;
  want = 0;
  /**
   * What was on lease when that ended: it all rests here, and is used again if the home has kept it. Only for pieces that
   * would have to rest elsewhere; the others are soon of use again.
   */
  #claim = 0;
  /** After how many ms what was released is fresh; of what the home may not know yet. Undefined: it is not known. */
  #restMs: number | undefined = 0;

  /** The pieces that were given up, which the next message says. */
  #groups: readonly Resting[] = [];

  /** The last message. */
  number = 0;
  sentMs = 0;
  /**
   * What gives everything back. The same is said again until the home has answered, or its row is over. That is safe: no
   * piece is left that could be used in between; and if it came before, no row is left that could release any again.
   */
  #lastReport: (Report & { readonly untilMs: number }) | undefined;
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
  /** The number of the last message in its row, and when that was sent. */
  answered = 0;
  rowMs = 0;
  /** What the member used then counts for no longer. */
  rowKeepMs = 0;
  rows: LedgerRecord["rows"] = [];
  /** How many pieces nobody can use within two intervals, since they rest at the home. */
  restingAtHome = 0;

  /** When the next message is due. */
  nextMs: number;
  /** Half-way to the next message, where the demand that it states begins to be counted. */
  isHalfway = false;
  /** How many messages in a row did not wait for the interval, and for how many intervals the reserve was enough. */
  soon = 0;
  idle = REFUSED;

  constructor(part: Part, clock: Clock, nextMs: number) {
    this.part = part;
    this.#clock = clock;
    this.nextMs = nextMs;
  }

  /** The next message is due then. */
  speak(timeMs: number): void {
    this.nextMs = timeMs;
    this.isHalfway = false;
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
    // what comes back at a rate goes without any permit: it must fill anew
    if (released > 0) this.#release(this.part.rests ? 0 : this.keepMs);
    this.#freed += freedFresh + Math.max(0, comeFresh - grown);
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
    this.#groups = this.#resting.take(this.#clock.now());
    this.#release(this.#groups[0]?.restMs ?? 0);
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
    this.#freed = 0;
    this.#restMs = undefined;
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
    else {
      this.held = this.#claim;
      this.#restMs = 0;
    }
    this.#claim = 0;
  }

  /** Returns what the next message says of the pieces that were released. @param leaseMs how long a row lasts */
  report(now: number, leaseMs: number): Report {
    this.isEmptied = false;
    // afterwards its parts are fresh for all
    if (now >= this.#rowEndMs(leaseMs)) this.claimed(0);
    if (this.#claim > 0) {
      this.#lastReport = undefined;
      const none = { fresh: 0, restMs: LONGEST_MS, groups: [] };
      return { answered: this.answered, claim: this.#claim, ...none };
    }
    if (this.held + this.want > 0) {
      this.#lastReport = undefined;
      return this.#newReport(now, leaseMs);
    }
    this.#lastReport ??= { ...this.#newReport(now, leaseMs), untilMs: now + leaseMs };
    // whether the home has a row of it is not known before a reply: it begins anew, claims nothing of it and misses none
    this.answered = 0;
    this.promised = 0;
    this.promisedMs = undefined;
    return this.#lastReport;
  }

  /** The ledger keeps the row of this member for so long. */
  #rowEndMs(leaseMs: number): number {
    return this.rowMs + leaseMs + this.rowKeepMs;
  }

  #newReport(now: number, leaseMs: number): Report {
    // afterwards the ledger may have removed the row
    const answered = now < this.#rowEndMs(leaseMs) ? this.answered : 0;
    // not known: as long as it counts for any member
    const restMs = this.#restMs === undefined ? LONGEST_MS : restOn(this.#restMs);
    const fresh = this.#freed;
    const groups = this.#groups.map((group) => ({ ...group, restMs: restOn(group.restMs) }));
    // stated once only: if this message is lost, it is not known which of the released pieces they were
    this.#freed = 0;
    this.#groups = [];
    this.#restMs = undefined;
    return { answered, claim: 0, fresh, restMs, groups };
  }

  /**
   * The last message was answered, which said so much.
   *
   * @param isUsed whether the reply is: a closed member does not take the used pieces that a reply brings
   */
  acknowledged(held: number, want: number, isUsed: boolean): void {
    this.#lastReport = undefined;
    this.isEmptied = held + want === 0;
    if (isUsed && this.held === held) this.#restMs ??= 0;
  }

  /** Whether this member need not say any more that it has nothing: the home knows, or its row of it is over. */
  isDone(now: number): boolean {
    return this.isEmptied || (this.#lastReport !== undefined && now >= this.#lastReport.untilMs);
  }

  /** What is released is fresh after so many ms. */
  #release(restMs: number): void {
    if (this.#restMs !== undefined) this.#restMs = Math.max(this.#restMs, restMs);
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
