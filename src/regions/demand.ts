/**
 * How much the callers of a key ask for, as the members tell each other: an estimate, from interval to interval.
 *
 * Requests come at random, so a short count of them varies although the demand does not: of 10 on average come 7 to 13,
 * and parts that followed each count would swing. Therefore a count that differs from what the estimate lets
 * expect by no more than chance explains moves the estimate by 0.15 of the difference. One that differs by more replaces
 * it: the demand has changed. Chance is 3 standard deviations of a Poisson count. Twice the square root of count + 3/8 has
 * a standard deviation of about 1 whatever is expected, also if that is little (Anscombe 1948).
 *
 * Example: the estimate is 100 requests in an interval. 73 to 132 are chance: after 112 it becomes 101.8. Then come 200: it
 * becomes 200. If 5 are expected, 1 to 14 are chance; if none is, up to 4.
 *
 * Callers that wait are demand in the next interval too. Times are ms; costs are ms for which the whole limit has to work.
 */
import { WHOLE } from "../stores/ledger.ts";

/** A count is too short to tell anything before this part of an interval. */
const LEAST = 0.075;
/** Demand that has just risen is counted for this part of an interval before a message states it. */
export const FIRST = 0.15;
/** Beyond so many standard deviations the demand has changed; within, the estimate follows by the other factor. */
const CHANCE = 3;
const CALM = 0.15;
/** Fewer requests in an interval are none, or an estimate would never be 0. */
const LITTLE = 0.05;
/** Demand that has grown by this factor does not wait for the next interval. */
const RISING = 1.5;
/** More demand than this is no more urgent, in limits. */
const MOST = 16;

export class Demand {
  readonly #everyMs: number;
  /** The estimate, in `WHOLE`. */
  value = 0;
  /** What callers wait for. */
  waiting = 0;
  #sinceMs: number;
  #asked = 0;
  #requests = 0;
  /** Of a request, on average. */
  #cost = 0;
  /** What was waited for when the count began. */
  #waited = 0;

  constructor(everyMs: number, now: number) {
    this.#everyMs = everyMs;
    this.#sinceMs = now;
  }

  /** Counts requests that cost so much together. */
  asked(cost: number, requests = 1): void {
    this.#asked += cost;
    this.#requests += requests;
  }

  /** Counts from now on. */
  count(now: number): void {
    this.#sinceMs = now;
    this.#asked = 0;
    this.#requests = 0;
    this.#waited = this.waiting;
  }

  /** Estimates the demand, and counts from now on. @returns whether the demand has changed by more than chance */
  measure(now: number): boolean {
    const elapsed = now - this.#sinceMs;
    // a message that follows another one at once says the same
    if (elapsed < this.#everyMs * LEAST) return false;
    const asked = this.#asked + this.#waited;
    const newest = Math.min(MOST, asked / elapsed) * WHOLE;
    if (this.#requests > 0) this.#cost = this.#asked / this.#requests;
    const requests = asked / this.#cost;
    const expected = ((this.value / WHOLE) * elapsed) / this.#cost;
    const deviations = 2 * Math.abs(Math.sqrt(requests + 3 / 8) - Math.sqrt(expected + 3 / 8));
    const isChance = deviations <= CHANCE;
    const isOver = asked === 0 && expected < LITTLE;
    const next = isChance ? this.value + CALM * (newest - this.value) : newest;
    this.value = isOver ? 0 : Math.round(next);
    this.count(now);
    return !isChance;
  }

  /** Whether much more is asked for than the estimate says. */
  isRising(now: number): boolean {
    const elapsed = now - this.#sinceMs;
    if (elapsed < this.#everyMs * FIRST) return false;
    return Math.min(MOST, (this.#asked + this.#waited) / elapsed) * WHOLE > this.value * RISING;
  }

  /** Whether nothing was counted lately. */
  isOver(now: number): boolean {
    return now - this.#sinceMs > this.#everyMs;
  }
}
