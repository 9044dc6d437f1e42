/**
 * What callers ask for who all call at once, and then pause, or call less.
 *
 * A count of requests from one message to the next tells nothing about them: it has two bursts in it, or none. So they are
 * counted from the beginning of a burst to that of a later one, an interval later or more. A burst begins in an eighth of an
 * interval that has four times as many requests as the one before, and goes on while there are a quarter of its most.
 *
 * Example: 40 calls each second, at one instant, and messages each 0.95 s. Counts have 40 or 80 in them, and at times none.
 * From burst to burst it is 40 in a second, always. If 80 come next, it is 120 in two seconds until that is counted. When the
 * next one is late it is 40 in the time since the last began; after twice the longest time between two there are no bursts.
 *
 * Where it is inexact: bursts of fewer than `STEEP` requests, and those with more requests beside them than in them, are counted
 * as other requests are. Bursts that are more than `LONGEST` intervals apart are single ones: who makes them asks for nothing
 * in between.
 */

/** What was asked for in a time. */
export interface Count {
  readonly asked: number;
  readonly elapsedMs: number;
}

/** How many slots an interval has. */
const SLOTS = 8;
/** By this factor more requests than in the slot before are a burst; and so many at least. */
const STEEP = 4;
/** In intervals. */
const LONGEST = 4;
/** Who has not begun a burst for so many times the longest time between two makes no more. */
const LATE = 2;

export class Bursts {
  readonly #everyMs: number;
  /** When the slot of the last request began; its requests, and what they ask for; the requests of the slot before. */
  #slotMs: number;
  #slot = 0;
  #slotAsked = 0;
  #slotBefore = 0;
  /** The most requests in a slot of the burst that goes on; 0: there is none. */
  #most = 0;
  /** Since when requests are counted; what they ask for; how many they are, and how many of them were in bursts. */
  #sinceMs: number;
  #asked = 0;
  #requests = 0;
  #inBursts = 0;
  /** When the last burst began, and the longest time between two. */
  #begunMs: number;
  #apartMs = 0;
  /** The same of the count before; a time of 0: these were no bursts. */
  #before = { asked: 0, elapsedMs: 0, apartMs: 0 };

  constructor(everyMs: number, now: number) {
    this.#everyMs = everyMs;
    this.#slotMs = now;
    this.#sinceMs = now;
    this.#begunMs = now;
  }

  asked(cost: number): void {
    this.#asked += cost;
    this.#slotAsked += cost;
  }

  /** There is a request now. */
  seen(now: number): void {
    const slotMs = this.#everyMs / SLOTS;
    if (now - this.#slotMs >= slotMs) this.#next(now, now - this.#slotMs < 2 * slotMs);
    this.#slot += 1;
    if (this.#slot === Math.max(STEEP, STEEP * this.#slotBefore)) this.#begin();
  }

  /** Begins a slot. @param isNext whether there was none without a request in between */
  #next(now: number, isNext: boolean): void {
    this.#requests += this.#slot;
    if (this.#slot * STEEP < this.#most) this.#most = 0;
    if (this.#most > 0) {
      this.#inBursts += this.#slot;
      this.#most = Math.max(this.#most, this.#slot);
    }
    if (!isNext) this.#most = 0;
    this.#slotBefore = isNext ? this.#slot : 0;
    this.#slotMs = now;
    this.#slot = 0;
    this.#slotAsked = 0;
  }

  #begin(): void {
    const now = this.#slotMs;
    const goesOn = this.#most > 0;
    this.#most = this.#slot;
    this.#apartMs = Math.max(this.#apartMs, now - this.#begunMs);
    this.#begunMs = now;
    const elapsedMs = now - this.#sinceMs;
    if (elapsedMs < this.#everyMs) return;
    // a burst that has not ended was demand, which is greater now
    const areBursts =
      !goesOn && 2 * this.#inBursts >= this.#requests && elapsedMs <= this.#everyMs * LONGEST;
    this.#before = {
      asked: this.#asked - this.#slotAsked,
      elapsedMs: areBursts ? elapsedMs : 0,
      apartMs: this.#apartMs,
    };
    this.#sinceMs = now;
    this.#asked = this.#slotAsked;
    this.#requests = 0;
    this.#inBursts = 0;
    this.#apartMs = 0;
  }

  /** Whether whoever comes now has nothing to do with those who came before. */
  isOver(now: number): boolean {
    return now - this.#slotMs > LONGEST * this.#everyMs;
  }

  /** Returns what was asked for in which time; undefined: there are no bursts. */
  count(now: number): Count | undefined {
    const { asked, elapsedMs, apartMs } = this.#before;
    const sinceMs = now - this.#sinceMs;
    const isLate = now - this.#begunMs > LATE * apartMs || sinceMs > LONGEST * this.#everyMs;
    if (elapsedMs === 0 || isLate) return undefined;
    const all = { asked, elapsedMs: Math.max(elapsedMs, sinceMs) };
    if (this.#asked <= asked) return all;
    return { asked: asked + this.#asked, elapsedMs: elapsedMs + all.elapsedMs };
  }
}
