/**
 * The reserve of a region in a store, as a second supply of those who wait for a part.
 *
 * All callers of a key wait in one line, that of the part. While one of them waits, the reserve is asked for what the
 * head of the line needs, in the store's own line and for one at a time. When it grants that, whoever is the head then goes
 * with it; the part may have served the others meanwhile. What is left over goes back, or all of it if it is too little.
 * When no caller waits any more, the place in the store is given up.
 * So no caller waits in two lines, those of one process keep their order, and each is counted once.
 *
 * What goes back was not used: while one process asks, the reserve keeps its bound. If several do, the others have their
 * places as late as they were promised, and what came back is saved up beside these: for each process but one less than its
 * largest request.
 *
 * Where it is inexact: what the reserve does for the callers behind the head is not known. A call with a time-out that the
 * part cannot serve in time is refused, unless the reserve has its permits at once.
 */
import type { RemoteLimiter, Reservation } from "../api/limiter-api.ts";
import type { Timer } from "../ground/clock.ts";
import { type Amount, combine, sameAmount, sizeOf } from "../ground/permits.ts";
import { type AccountedReservation, unpaid } from "../queue/reservation.ts";
import type { Waiter } from "../queue/waiter.ts";
import type { Part } from "./part.ts";

/** After an error the reserve is asked again as soon as this, ms, however long an interval is. */
const RETRY_MS = 250;
/** Without a part, a place that is due in more than this part of an interval is given up for a smaller one. */
const FAR = 0.5;

/** Those that the reserve has served: what they have used is settled there. With the charge that is under way for each. */
const served = new WeakMap<object, Promise<void> | undefined>();

/** From now on the reserve is known to have served it. */
export function serve(reservation: object, charge?: Promise<void>): void {
  served.set(reservation, charge);
}

/** Whether the reserve, and not the part, has served the reservation. */
export function isOfReserve(reservation: Reservation): boolean {
  return served.has(reservation);
}

/** Resolves when it is known what the reserve has charged for it; undefined: that is known. */
export function chargeOf(reservation: Reservation): Promise<void> | undefined {
  return served.get(reservation);
}

/** What the reserve is for one part while callers wait for it. */
export class Feed {
  readonly #part: Part;
  readonly #reserve: () => RemoteLimiter;
  readonly #pay: (amount: Amount) => Promise<void>;
  readonly #lack: () => void;
  readonly #everyMs: number;
  /** Whether no caller waits any more: those who come later need another one. */
  isOver = false;
  /** The place in the store's line, also while it is asked for; for what, and when it is due, if that is known. */
  #place = new AbortController();
  #asked: Amount = 0;
  #dueMs: number | undefined;
  /** What was taken before the reserve was reset, or has other numbers, does not go back. */
  #generation = 0;
  #resume: (() => void) | undefined;
  /** Whether the reserve does not serve the head at once. */
  #isRefused = false;
  readonly #looking: (() => void)[] = [];

  /**
   * @param pay charges the reserve
   * @param lack called when the reserve does not serve a caller at once
   * @param everyMs the interval
   */
  constructor(
    part: Part,
    reserve: () => RemoteLimiter,
    pay: (amount: Amount) => Promise<void>,
    lack: () => void,
    everyMs: number,
  ) {
    this.#part = part;
    this.#reserve = reserve;
    this.#pay = pay;
    this.#lack = lack;
    this.#everyMs = everyMs;
  }

  /** Serves the callers of the part until none waits. */
  async run(): Promise<void> {
    for (let head = this.#head; head !== undefined; head = this.#head) {
      await this.#serve(head.amount);
    }
    this.isOver = true;
    this.#answered();
  }

  /** Resolves when the reserve has answered: it has served the first one, or lets it wait. */
  looked(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isOver || this.#isRefused) resolve();
      else this.#looking.push(resolve);
    });
  }

  /** Returns how long the caller waits for the reserve, ms; `Infinity` if that is not known, as behind others. */
  waitMs(caller: object): number {
    const head = this.#head;
    const isAsked = head === caller && contains(this.#asked, head.amount);
    return isAsked ? this.#waitMs(Infinity) : Infinity;
  }

  #waitMs(unknown = 0): number {
    return this.#dueMs === undefined ? unknown : Math.max(0, this.#dueMs - this.#part.now());
  }

  /**
   * A caller has come, or left, or needs less. If the head is another one by now, it takes the place of the one before:
   * the store cannot give back a place with others behind it, and what that was promised is unused until then. It gets a
   * place of its own if it needs less, that one is far, and no part serves it meanwhile; or where what was used comes back
   * at instants, since there every place is given back.
   */
  changed(): void {
    const head = this.#head;
    if (head !== undefined && sameAmount(head.amount, this.#asked)) return;
    const isSmaller = head !== undefined && contains(this.#asked, head.amount);
    const isFar = this.#waitMs() > this.#everyMs * FAR;
    const isGivenUp = isSmaller && isFar && this.#part.fraction === 0;
    if (head === undefined || this.#part.rests || isGivenUp) this.#giveUp();
    else this.#resume?.();
  }

  /** The place is given up, and the reserve is asked again: it was reset or paused, or has other numbers. */
  renew(): void {
    this.#generation += 1;
    this.#giveUp();
  }

  #giveUp(): void {
    this.#isRefused = false;
    this.#place.abort();
    this.#resume?.();
  }

  get #head(): Waiter | undefined {
    const { callers, queue } = this.#part;
    queue.catchUp();
    return callers > 0 ? queue.head : undefined;
  }

  /** Takes the permits from the reserve for the head. Whatever the store does, it is asked again while a caller waits. */
  async #serve(amount: Amount): Promise<void> {
    const place = new AbortController();
    this.#place = place;
    this.#asked = amount;
    this.#dueMs = undefined;
    this.#isRefused = false;
    const generation = this.#generation;
    try {
      if (sizeOf(amount) > 0) await this.#take(amount, place.signal);
      const left = await this.#hand(amount);
      if (generation === this.#generation) this.#giveBack(left);
    } catch {
      if (place.signal.aborted) return;
      this.#dueMs = undefined;
      this.#refused();
      await this.#pause();
    }
  }

  async #take(amount: Amount, signal: AbortSignal): Promise<void> {
    this.#part.checkReserve(amount);
    // without the signal: what is granted at once would be lost
    const reservation = await this.#reserve().reserve(this.#part.permitsOf(amount));
    if (reservation.waitMs === 0) return;
    this.#dueMs = this.#part.now() + reservation.waitMs;
    this.#refused();
    this.changed();
    await reservation.ready({ signal });
  }

  #refused(): void {
    this.#isRefused = true;
    this.#lack();
    this.#answered();
  }

  #answered(): void {
    for (const resolve of this.#looking.splice(0)) resolve();
  }

  /** Lets those go first in the line for whom the permits are enough. @returns what is left */
  async #hand(permits: Amount): Promise<Amount> {
    let left = permits;
    // the place is used
    this.#dueMs = undefined;
    this.#isRefused = false;
    for (let head = this.#head; head !== undefined; head = this.#head) {
      const { amount, taken } = head;
      if (!contains(left, amount)) break;
      left = less(left, amount);
      serve(head);
      this.#part.grantedByReserve(taken);
      const { queue } = this.#part;
      queue.remove(head, queue.last);
      head.release(queue.last, queue.last);
      await this.#charge(head, less(taken, amount));
    }
    this.#answered();
    return left;
  }

  /** As if it had not been taken. What comes back at instants is lost: it could lower a later window. */
  #giveBack(left: Amount): void {
    if (sizeOf(left) === 0 || this.#part.rests) return;
    // not awaited: the next one is asked for in the same trip; without an answer they are lost
    void this.#reserve()
      .refund(this.#part.permitsOf(left))
      .catch(() => {});
  }

  /** Charges what a reservation was settled to while it waited; if that fails, its next settlement makes up for it. */
  async #charge(head: Waiter, amount: Amount): Promise<void> {
    if (sizeOf(amount) === 0) return;
    const charge = this.#pay(amount).catch(() => {
      // no other waiter takes more than it waits for
      const reservation = head as Waiter & AccountedReservation;
      reservation.used = unpaid(reservation.used, ["charge", amount]);
    });
    serve(head, charge);
    await charge;
    serve(head);
  }

  async #pause(): Promise<void> {
    let timer: Timer | undefined;
    await new Promise<void>((resolve) => {
      this.#resume = resolve;
      const pauseMs = Math.min(RETRY_MS, this.#everyMs);
      timer = this.#part.wakeAt(this.#part.now() + pauseMs, resolve);
    });
    timer?.cancel();
  }
}

function contains(whole: Amount, part: Amount): boolean {
  if (typeof whole === "number" || typeof part === "number") return Number(part) <= Number(whole);
  return part.every((permits = 0, i) => permits <= (whole[i] ?? 0));
}

function less(amount: Amount, by: Amount): Amount {
  return combine(amount, by, (is, minus = 0) => Math.max(0, is - minus));
}
