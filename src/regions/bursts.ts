/**
 * What callers ask for who all call at once, and then pause.
 *
 * A count of requests from one message to the next tells nothing about them: it has two bursts in it, or none. So they are
 * counted from the beginning of a burst to that of a later one, an interval later or more. A burst begins with the first
 * request after a pause.
 *
 * Example: 40 calls each second, at one instant, and messages each 0.95 s. Counts have 40 or 80 in them, and at times none.
 * From burst to burst it is 40 in a second, always. When the next one is late it is 40 in the time since the last began; after
 * twice the longest pause there are no bursts any more.
 *
 * Where it is inexact: bursts of fewer than `FEWEST` requests, and those of callers who pause for less than half of the time, are
 * counted as other requests are. Bursts that are more than `LONGEST` intervals apart are single ones: who makes them asks
 * for nothing in between.
 */

/** What was asked for in a time. */
export interface Count {
  readonly asked: number;
  readonly elapsedMs: number;
}

/** A shorter pause, in intervals, is none. */
const SHORTEST = 1 / 8;
const LONGEST = 4;
/** With fewer requests in each, on average, requests come by themselves. */
const FEWEST = 4;
/** Who has paused for so many times the longest of its pauses calls in bursts no more. */
const LATE = 2;

export class Bursts {
  readonly #everyMs: number;
  #seenMs: number;
  /** Since when bursts are counted, what they have asked for, and how long the pauses were in all and at most. */
  #sinceMs: number;
  #asked = 0;
  #requests = 0;
  #bursts = 0;
  #pausesMs = 0;
  #pauseMs = 0;
  /** The same of the count before; a time of 0: these were no bursts. */
  #before = { asked: 0, elapsedMs: 0, pauseMs: 0 };

  constructor(everyMs: number, now: number) {
    this.#everyMs = everyMs;
    this.#sinceMs = now;
    this.#seenMs = now;
  }

  asked(cost: number, requests: number): void {
    this.#asked += cost;
    this.#requests += requests;
  }

  /** There is a request now. */
  seen(now: number): void {
    const pauseMs = now - this.#seenMs;
    this.#seenMs = now;
    if (pauseMs >= this.#everyMs * SHORTEST) this.#begin(now, pauseMs);
  }

  #begin(now: number, pauseMs: number): void {
    this.#bursts += 1;
    this.#pausesMs += pauseMs;
    this.#pauseMs = Math.max(this.#pauseMs, pauseMs);
    const elapsedMs = now - this.#sinceMs;
    if (elapsedMs < this.#everyMs) return;
    const areMany = this.#requests >= FEWEST * this.#bursts;
    const arePauses = this.#pausesMs >= elapsedMs / 2 && elapsedMs <= this.#everyMs * LONGEST;
    this.#before = {
      asked: this.#asked,
      elapsedMs: areMany && arePauses ? elapsedMs : 0,
      pauseMs: this.#pauseMs,
    };
    this.#sinceMs = now;
    this.#asked = 0;
    this.#requests = 0;
    this.#bursts = 0;
    this.#pausesMs = 0;
    this.#pauseMs = 0;
  }

  /** Returns what was asked for in which time; undefined: there are no bursts. @param waiting what callers wait for */
  count(now: number, waiting: number): Count | undefined {
    const { asked, elapsedMs, pauseMs } = this.#before;
    if (elapsedMs === 0 || now - this.#seenMs > LATE * pauseMs) return undefined;
    const backlog = Math.max(0, waiting - this.#asked);
    return {
      asked: Math.max(asked, this.#asked) + backlog,
      elapsedMs: Math.max(elapsedMs, now - this.#sinceMs),
    };
  }
}
