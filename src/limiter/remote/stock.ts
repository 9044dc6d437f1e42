/**
 * Permits that are reserved before anybody asks for them, so that most calls need no trip.
 *
 * A run is one trip: so many pieces of so many permits, each granted by the store for an instant of
 * its own. The pieces lie on a shelf in the order of their instants; whoever asks is served from
 * the front, and waits here where that instant has not come. When half of a run is used, the next
 * one is fetched, and pieces that lie in the future bridge the time until it is there.
 *
 * What it promises. A permit from here was granted by the store and is used once, at its instant or
 * later: counted from the limiter's birth, all processes use no more than requests of a piece's
 * size would be let through. What lies here and is on its way is never more than `permits`: a
 * process that dies takes no more with it, nor can more come late, all at once. When the first
 * piece has been usable for `maxAgeMs`, nobody here needs the stock: all of it goes back.
 *
 * How large a piece is: what the policies let go in a millisecond, and at least 1. So at up to 1000
 * permits a second the instants are those of single requests, and above that an instant is no finer
 * than a timer; and a million permits a second are a thousand pieces, not a million. A run has at
 * most 1024.
 *
 * How far ahead it looks: `maxAgeMs` beyond the last of those who wait here. What could be used only
 * later is left to others; a run that was cut short by that, or by a full bucket, is followed by
 * another when half of that time has passed.
 *
 * Worked example, 1000 a second, 100 permits, one caller: the first call is one trip, with its own
 * request and 100 pieces behind it, at 1, 2 … 100 ms. Call by call these are used, one each ms. At 50
 * ms a second trip fetches 50 more, at 101 … 150 ms, and so on: 20 trips a second instead of 1000.
 *
 * Order. Nobody is served past somebody who has asked before and whose instant is not known yet.
 * Whom the stock cannot serve waits for the run that is under way, or asks the store, and the next
 * run travels behind.
 */
import { atExit } from "../../at-exit.ts";
import type { Clock, Timer } from "../../clock.ts";
import type { Amount } from "../../permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../../stores/store.ts";
import { Fifo } from "../fifo.ts";
import type { Call, Taker } from "./call.ts";
import { RunSize } from "./run-size.ts";
import { type Part, type Piece, Shelf } from "./shelf.ts";
import type { WaitLine } from "./wait-line.ts";

export interface StockOptions {
  readonly permits: number | "auto";
  readonly maxAgeMs: number;
}

/** What a stock needs of its limiter. */
export interface Supply {
  readonly clock: Clock;
  readonly line: WaitLine;
  /** Calls wait for a store that is away, instead of failing. */
  readonly patient: boolean;
  /** The numbers in force, as the store told them. */
  readonly inForce: string;
  /** So many of each policy. */
  amountOf(permits: number): Amount;
  /** By our own clock. */
  dueAt(wait: number, sentAt: number): number;
  /** Asks the store. */
  send(call: Call): void;
  /** The store has given it. */
  took(amount: Amount): void;
  /** Tells the store, part for part: they were granted with that answer and not used. */
  giveBack(part: Part): void;
}

/** What the stock has promised; `parts` say where it came from. */
class Grant implements Answer {
  readonly wait: number;
  readonly receipts: readonly number[] = [];
  readonly slowest = 0;
  readonly quotas = [];
  readonly owed = [];
  readonly parts: Part[] = [];

  constructor(wait: number) {
    this.wait = wait;
  }
}

const NO: Answer = { wait: REFUSED, receipts: [], slowest: 0, quotas: [], owed: [] };

/** Pieces that travel together. */
interface Run {
  /** How many have no answer yet, and whether one was refused. */
  open: number;
  cut: boolean;
  readonly permits: number;
  /** Up to which instant it reserves, microseconds. */
  readonly reach: number;
  /** What comes of it now is given back. */
  gone: boolean;
}

export class Stock {
  readonly #supply: Supply;
  readonly #maxAge: number;
  readonly #size: RunSize;
  readonly #shelf = new Shelf();
  /** How many permits can be used now, as far as is known, and nobody stands before. */
  #ready = 0;
  /** With no more than this on the shelf, the next run is wanted. */
  #low = -1;
  #run: Run | undefined;
  /** Where the last run that was cut short ended: up to there others have reserved. */
  #cutAt = -Infinity;
  /** Those who wait for the run. */
  readonly #expecting = new Fifo<Taker>();
  /** Those who have asked the store and have no answer yet; and those who did so behind the run. */
  readonly #asked = new Set<Taker>();
  #behind = new Set<Taker>();
  #expiry: Timer | undefined;
  #forgetExit: (() => void) | undefined;
  #closed = false;

  constructor(supply: Supply, { permits, maxAgeMs }: StockOptions) {
    this.#supply = supply;
    this.#maxAge = maxAgeMs * 1000;
    this.#size = new RunSize(permits);
  }

  /** Takes the permits if that needs neither a wait nor a trip. */
  take(permits: unknown): boolean {
    if (typeof permits !== "number" || !(permits > 0)) return false;
    if (permits > this.#ready && !this.#isReady(permits)) return false;
    this.#ready -= permits;
    this.#shelf.draw(permits);
    if (this.#shelf.left <= this.#low) this.#refill();
    return true;
  }

  #isReady(permits: number): boolean {
    if (permits > this.#shelf.left || this.#isAwaited) return false;
    const { line } = this.#supply;
    line.catchUp();
    const now = line.now();
    this.#ready = line.turn > now ? 0 : this.#shelf.readyAt(now);
    return permits <= this.#ready;
  }

  /** Somebody has asked before and does not know its instant. */
  get #isAwaited(): boolean {
    return this.#asked.size + this.#behind.size + this.#expecting.size > 0;
  }

  /** Answers the asker, now or when the run is there; or the store does. */
  ask(asker: Taker): void {
    this.#ready = 0;
    if (this.#expecting.size > 0 || !this.#serve(asker)) {
      if (this.#isWorthAwaiting(permitsOf(asker.amount))) this.#expecting.append(asker);
      else this.#send(asker);
    }
    if (this.#size.fits(permitsOf(asker.amount))) this.#refill();
  }

  /** Takes permits that can be used now, as `waitFor` has told. */
  takeNow(amount: Amount): Answer | undefined {
    const answer = this.#promise(permitsOf(amount), 0);
    this.#refill();
    return answer;
  }

  /** How long such a request would have to wait for what lies here, microseconds, if that is enough. */
  waitFor(amount: Amount): number | undefined {
    const permits = permitsOf(amount);
    if (permits > this.#shelf.left || this.#isAwaited) return undefined;
    return this.#waitFor(permits);
  }

  /** How many permits can be used now. */
  get ready(): number {
    return this.#isReady(0) ? this.#ready : 0;
  }

  /** The asker has its answer, or wants none any more. */
  answered(asker: Taker): void {
    this.#behind.delete(asker);
    if (!this.#asked.delete(asker) || this.#asked.size > 0 || this.#expecting.size === 0) return;
    this.#serveExpecting();
    this.#refill();
  }

  /** Whether the store gave it before somebody asked. */
  isOurs(answer: Answer): boolean {
    return answer instanceof Grant;
  }

  /** @returns whether the answer was ours; then what it promised is here again */
  takeBack(answer: Answer): boolean {
    if (!(answer instanceof Grant)) return false;
    this.#ready = 0;
    this.#shelf.putBack(answer.parts);
    this.#keep(this.#closed ? 0 : this.#size.of(this.#supply.inForce).permits);
    return true;
  }

  /** All that lies here goes back to the store. */
  release(): void {
    this.#ready = 0;
    this.#keep(0);
  }

  /** As `release`; and so does what is on its way. */
  close(): void {
    this.#closed = true;
    if (this.#run !== undefined) this.#run.gone = true;
    this.release();
  }

  // -- those who ask --

  #serve(asker: Taker): boolean {
    const answer = this.#promise(permitsOf(asker.amount), asker.patience);
    if (answer === undefined) return false;
    asker.answer(answer, this.#supply.line.now());
    return true;
  }

  #promise(permits: number, longest: number): Answer | undefined {
    if (permits > this.#shelf.left || this.#asked.size + this.#behind.size > 0) return undefined;
    const wait = this.#waitFor(permits);
    if (wait > longest) return NO;
    const grant = new Grant(wait);
    this.#ready = 0;
    this.#shelf.draw(permits, grant.parts);
    return grant;
  }

  #waitFor(permits: number): number {
    const { line } = this.#supply;
    line.catchUp();
    const now = line.now();
    return Math.max(0, Math.max(this.#shelf.dueOf(permits), line.turn) - now);
  }

  /** Whether it may be served from here once those before it have their answers. */
  #isWorthAwaiting(permits: number): boolean {
    if (this.#expecting.size > 0) return true;
    if (this.#run === undefined) return this.#asked.size > 0 && permits <= this.#shelf.left;
    return this.#behind.size === 0 && permits <= this.#shelf.left + this.#run.permits;
  }

  /** The store answers it: after the run that is under way, and nobody overtakes it. */
  #send(asker: Taker): void {
    (this.#run === undefined ? this.#asked : this.#behind).add(asker);
    this.#supply.send(asker);
  }

  /** Those who wait for a run, in order, as far as it is known what becomes of them. */
  #serveExpecting(): void {
    for (let asker = this.#expecting.head; asker !== undefined; asker = this.#expecting.head) {
      const permits = permitsOf(asker.amount);
      const isServed = asker.gone || this.#serve(asker);
      const waits = this.#run !== undefined || permits <= this.#shelf.left;
      if (!isServed && waits) break;
      this.#expecting.remove(asker);
      if (!isServed) this.#send(asker);
    }
  }

  // -- runs --

  /** Fetches the next run, if it is time for it. */
  #refill(): void {
    this.#low = -1;
    if (this.#run !== undefined || this.#closed) return;
    const { line, inForce } = this.#supply;
    const half = this.#size.of(inForce).permits / 2;
    if (this.#shelf.left > half) {
      this.#low = half;
      return;
    }
    const now = line.now();
    const reach = Math.max(now, line.turn) + this.#maxAge;
    if (reach < this.#cutAt + this.#maxAge / 2) return;
    this.#size.adapt(now);
    const { permits, piece } = this.#size.of(inForce);
    const count = Math.floor((permits - this.#shelf.left) / piece);
    if (count > 0) this.#fetch(count, piece, reach, reach - now);
  }

  #fetch(count: number, permits: number, reach: number, longest: number): void {
    const run: Run = {
      ...{ open: count, permits: count * permits, reach },
      ...{ cut: false, gone: false },
    };
    this.#run = run;
    const amount = this.#supply.amountOf(permits);
    const piece: Call = {
      get gone() {
        return run.gone;
      },
      // where it is not known whether it has arrived, it may lie at the store already
      repeatable: false,
      request: (): StoreRequest => ({ verb: "reserve", amount, longest, late: 0, count: 1 }),
      answer: (answer, sentAt) => this.#arrive(run, permits, answer, sentAt),
      undo: (answer) => this.#undo(permits, answer),
      fail: (error) => this.#lose(run, error),
      delayed: () => this.#lose(run),
    };
    for (let i = 0; i < count && !run.gone; i++) this.#supply.send(piece);
  }

  #arrive(run: Run, permits: number, answer: Answer, sentAt: number): void {
    if (isGranted(answer)) {
      const due = this.#supply.dueAt(answer.wait, sentAt);
      this.#supply.took(this.#supply.amountOf(permits));
      this.#shelf.add({ due, answer, size: permits, left: permits });
    } else {
      run.cut = true;
    }
    run.open -= 1;
    if (run.open > 0) return;
    this.#run = undefined;
    if (run.cut) this.#cutAt = run.reach;
    this.#ready = 0;
    // they asked before those who asked the store behind it
    const behind = this.#behind;
    this.#behind = new Set();
    this.#serveExpecting();
    for (const asker of behind) this.#asked.add(asker);
    this.#refill();
    this.#arm();
  }

  /** It came too late. */
  #undo(permits: number, answer: Answer): void {
    if (!isGranted(answer)) return;
    const piece: Piece = { due: 0, answer, size: permits, left: 0 };
    this.#supply.giveBack({ piece, permits });
  }

  /** The run does not come, or not in time: those who wait for it share its fate, or ask the store. */
  #lose(run: Run, error?: Error): void {
    if (run.gone) return;
    run.gone = true;
    this.#run = undefined;
    this.#cutAt = run.reach;
    for (
      let asker = this.#expecting.shift();
      asker !== undefined;
      asker = this.#expecting.shift()
    ) {
      if (asker.gone) continue;
      if (error === undefined || this.#supply.patient) this.#send(asker);
      else asker.fail(error);
    }
  }

  // -- what is not used --

  /** Gives back what is more than that, the last of it first. */
  #keep(permits: number): void {
    for (const part of this.#shelf.dropBeyond(permits)) this.#supply.giveBack(part);
    this.#arm();
  }

  /** A timer as long as something lies here; it keeps no process alive. */
  #arm(): void {
    const { head } = this.#shelf;
    if (head === undefined) {
      this.#expiry?.cancel();
      this.#expiry = undefined;
      this.#forgetExit?.();
      this.#forgetExit = undefined;
    } else if (this.#expiry === undefined) {
      this.#expiry = this.#supply.clock.wakeAt((head.due + this.#maxAge) / 1000, this.#expire);
      this.#expiry.unref?.();
      this.#forgetExit ??= atExit(() => this.release());
    }
  }

  readonly #expire = (): void => {
    this.#expiry = undefined;
    const { head, left } = this.#shelf;
    if (head !== undefined && head.due + this.#maxAge <= this.#supply.line.now()) {
      this.#size.shrink(left);
      this.release();
    } else {
      this.#arm();
    }
  };
}

/** The one number that is asked of every policy; `Infinity`, which is never here, if they differ. */
function permitsOf(amount: Amount): number {
  if (typeof amount === "number") return amount;
  const [first = Infinity] = amount;
  return amount.every((permits) => permits === first) ? first : Infinity;
}

function isGranted({ wait }: Answer): boolean {
  return wait >= 0 && wait < Infinity;
}
