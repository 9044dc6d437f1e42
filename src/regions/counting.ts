/**
 * Which of several policies say how much a region asks for: those that may limit it soon.
 *
 * Demand is a part of the limit, and each policy would state another one. Under 100 a second and 864 000 a day, who asks
 * for 80 a second asks for 0.8 of the second, and for 8 times what a day lets through on average. If the day counted, all
 * busy regions would have equal parts, however much of it is left.
 *
 * So a long policy counts while what is left of it in the part lasts for less than `FAR` intervals, as its permits were
 * asked for of late. The others, and the one that is back soonest, always count.
 *
 * Example: while more than 4800 are left of the day, 80 a second are 0.8 of the limit; then they are 8 limits, which is as
 * much as all others together may have.
 *
 * Where it is inexact: a policy that counts does so until twice as much is left. If a part grows whenever the policy counts
 * and shrinks whenever it does not, it may count in turns. And regions that ask for much can use up an hour or a day before
 * the others have had an equal share of it.
 */
import type { Amount } from "../ground/permits.ts";
import type { Numbers } from "./numbers.ts";
import { add } from "./refunds.ts";

/** A policy of which so much is left that it lasts for so many intervals is no limit soon. */
const FAR = 60;
/** A policy that is back after so many intervals always counts: what is left of it now says little. */
const SHORT = 600;
/** The speed at which a region has asked is remembered for some looks, and falls by this factor with each. */
const FADING = 0.9;
/** Looks are at least this part of an interval apart. */
const LEAST = 1 / 4;

export class Counting {
  #numbers: Numbers;
  /** Permits a ms of the whole limit, by policy; infinite for one that does not count. */
  #rates: readonly number[];
  /** How many permits of each policy were asked for since the last look; and how many a ms, of late at most. */
  readonly #asked: number[];
  readonly #speeds: number[];
  #lookedMs: number;

  constructor(numbers: Numbers, nowMs: number) {
    this.#numbers = numbers;
    this.#rates = numbers.rates;
    this.#asked = numbers.rates.map(() => 0);
    this.#speeds = numbers.rates.map(() => 0);
    this.#lookedMs = nowMs;
  }

  /** The same policies have other numbers; they count as before. */
  renumber(numbers: Numbers): void {
    this.#numbers = numbers;
    this.#rates = numbers.rates.map((rate, i) => (this.#rates[i] === Infinity ? Infinity : rate));
  }

  asked(amount: Amount): void {
    add(this.#asked, amount);
  }

  /** For how many ms the whole limit has to work for a request. */
  costOf(amount: Amount): number {
    // a request that names none of the policies that count costs what it would if all counted
    return mostOf(amount, this.#rates) || mostOf(amount, this.#numbers.rates);
  }

  /**
   * Looks which policies count from now on.
   *
   * @param left how many permits the part has, by policy
   * @returns whether they are others than before
   */
  look(nowMs: number, everyMs: number, left: readonly number[]): boolean {
    const elapsed = nowMs - this.#lookedMs;
    if (elapsed < everyMs * LEAST) return false;
    const { horizons, rates } = this.#numbers;
    const soonest = Math.min(...horizons);
    const before = this.#rates;
    this.#rates = rates.map((rate, i) => {
      const speed = Math.max((this.#asked[i] ?? 0) / elapsed, FADING * (this.#speeds[i] ?? 0));
      this.#asked[i] = 0;
      this.#speeds[i] = speed;
      const enough = FAR * everyMs * speed * (before[i] === Infinity ? 1 : 2);
      const isLong = (horizons[i] ?? 0) > Math.max(soonest, SHORT * everyMs);
      return isLong && (left[i] ?? 0) >= enough ? Infinity : rate;
    });
    this.#lookedMs = nowMs;
    return this.#rates.some((rate, i) => rate !== before[i]);
  }
}

/** Returns the amount in these units, by policy: the largest number. */
export function mostOf(amount: Amount, units: readonly number[]): number {
  if (typeof amount === "number") return amount / (units[0] ?? 1);
  return units.reduce((most, unit, i) => Math.max(most, (amount[i] ?? 0) / unit), 0);
}
