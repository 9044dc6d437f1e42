/**
 * What callers who wait would ask for if they had more. It is found by trying: ten workers that call again as soon as they are
 * served ask for what they get, however much they could use.
 *
 * So while some wait for a good part of the time, the member states `MORE` times what is asked for. If they ask for more as the
 * part grows, or use all of it, or some wait all the time, it states that much more of that; who asks for more by chance does
 * not need it. If they ask for less and hardly wait, it states that much more of what is left.
 *
 * They have enough if for `PATIENCE` intervals hardly any wait, or the part is larger than what they ask for: short waits are
 * usual where a burst is small. Then it states what is asked for, and tries again after `REST` intervals, or when some have
 * waited all the time for `LONG` intervals: there are more callers by now. Where the part does not grow, since others may have
 * as much, it goes on while they wait: that costs others little, for they need nearly all of it.
 *
 * In between it states what is asked for, and `MORE` times the queue that stands: the least that has waited during the last
 * interval (as in CoDel: Nichols and Jacobson 2012). Otherwise the part would follow demand that rises slowly, and never
 * work off what waits. Callers who wait for moments leave no queue standing, and a few workers only a short one.
 *
 * Example: ten workers have 50 of 1000 a second, beside a region that asks for too much. The member states 75, then 112, 169,
 * 253, 380, and then they have their half. If they can use 300 it states 450, for 4 intervals of 34, and 300 in the others.
 *
 * Where it is inexact: callers of whom none waits for `LACKING` of the time have enough, though a single worker would call more
 * often.
 */

/** Callers lack permits if some wait for this part of the time. */
const LACKING = 0.3;
/** By this factor more is stated then. */
const MORE = 1.5;
/** What is asked for has grown if it is by this factor; and the part is larger than that if it is by this one. */
const GROWN = 1.2;
const LARGER = 1.05;
/** For so many intervals the part seems enough before it is; then no more is stated for so many. */
const PATIENCE = 3;
const REST = 30;
/** Unless some wait for this part of the time, for so many intervals. */
const ALL = 0.95;
const LONG = 8;
/** What waits is looked at again after this part of an interval: a usual count lasts 0.9, or a third. */
const STANDING = 0.85;

export class Waiting {
  readonly #everyMs: number;
  /** What callers wait for; for how long some have waited since the last look, and since when some do again. */
  cost = 0;
  #waitedMs = 0;
  #sinceMs = 0;
  /** The least that has waited since then, and in the time before: the queue that stands. */
  #least = 0;
  #leastMs = -Infinity;
  #standing = 0;
  /** What was asked for when more was stated, and what could be used; and since when the part has been enough. */
  #asked = 0;
  #part = 0;
  #enoughMs = Infinity;
  #isTrying = false;
  /** For how long some have waited all the time. */
  #fullMs = 0;
  #restUntilMs = -Infinity;

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  /** A caller waits from now on, for requests that cost so much. */
  begin(cost: number, now: number): void {
    if (this.cost === 0) this.#sinceMs = now;
    this.cost += cost;
  }

  /** It waits no more. */
  end(cost: number, now: number, isLast: boolean): void {
    // differences of sums are not exact
    this.cost = isLast ? 0 : Math.max(0, this.cost - cost);
    this.#least = Math.min(this.#least, this.cost);
    if (isLast) this.#waitedMs += now - this.#sinceMs;
  }

  /** What they ask for if they can have more. */
  stated(asked: number): number {
    if (this.#isTrying) return MORE * Math.max(asked, this.#asked);
    return asked + (MORE * Math.min(this.#standing, this.cost)) / this.#everyMs;
  }

  /** Forgets how long they have waited, as a count begins. */
  restart(now: number): void {
    this.#sinceMs = now;
    this.#waitedMs = 0;
  }

  /** For how long some have waited all the time, if some have since the last look. */
  fullMs(now: number, elapsedMs: number): number {
    return this.#waitedUntil(now) >= ALL * elapsedMs ? this.#fullMs + elapsedMs : 0;
  }

  #waitedUntil(now: number): number {
    return this.#waitedMs + (this.cost > 0 ? now - this.#sinceMs : 0);
  }

  /** A count has ended. @param asked what is asked for @param part what may be used, of the limit */
  look(now: number, elapsedMs: number, asked: number, part: number): void {
    if (now - this.#leastMs >= STANDING * this.#everyMs) {
      this.#standing = this.#least;
      this.#least = this.cost;
      this.#leastMs = now;
    }
    this.#fullMs = this.fullMs(now, elapsedMs);
    if (this.#fullMs >= LONG * this.#everyMs) this.#restUntilMs = now;
    const isLacking = this.#waitedUntil(now) >= LACKING * elapsedMs;
    const isShort = part < asked * LARGER;
    // a count lags behind a part that grows, and a cold part lets through less than that
    const isNeeded = isShort || part > this.#part * GROWN || this.#fullMs > 0;
    const isMore = isNeeded && asked > this.#asked * GROWN;
    if (this.#isTrying ? isMore : isLacking && now >= this.#restUntilMs) {
      this.#isTrying = true;
      this.#asked = asked;
      this.#part = part;
      this.#enoughMs = Infinity;
    } else if (asked + this.cost === 0) {
      this.#isTrying = false;
    } else if (this.#isTrying) {
      // they ask for less by now
      if (!isLacking && asked < this.#asked / GROWN) this.#asked = asked;
      if (isLacking && isShort) this.#enoughMs = Infinity;
      else if (this.#enoughMs === Infinity) this.#enoughMs = now;
      if (now - this.#enoughMs < PATIENCE * this.#everyMs) return;
      this.#isTrying = false;
      this.#fullMs = 0;
      this.#restUntilMs = now + REST * this.#everyMs;
    }
  }
}
