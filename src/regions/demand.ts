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
 * A member that lacks permits counts each third of an interval. Demand that repeats itself about once in an interval differs
 * from third to third, and messages would follow the same third for ever. So counts are added up until they last an
 * interval, but for one that is more than `JUMP` times the estimate: that tells of itself, without those before; and for
 * one that lasts an interval and tells of a change after some intervals without one: that lies in it, so later ones are
 * counted without it.
 *
 * Counts that are all greater than the estimate, one after the other, or all less, are looked at together, too, beside the
 * estimate before the first of them, as soon as they last an interval (as in a CUSUM chart: Page 1954). If chance does not
 * explain their sum, their average replaces the estimate. Example: 40 in an interval, and then four times 28 in half of one.
 * None of them says that the demand has changed, but 112 instead of 80 do: it becomes 56.
 *
 * Under windows and logs a count in which some callers wait all the time tells only how much is asked for at least: they
 * call again when they are served. Less than the estimate leaves it as it is. Example: five workers use their part of a minute in ten seconds, and wait
 * for the next one; while they do, they ask for as much as before, so that their part is there when its permits are back.
 *
 * Where an interval has room for few requests, counts of it say nothing. The estimate is then an average over the time of
 * `MEMORY` requests of this member, with weights that fall exponentially.
 *
 * Example: 10 a minute, so a request costs 6 s. Who asks every 8 s asks for 0.75 of the limit; the average is over 64 s,
 * and varies from 0.70 to 0.80. Who has not asked for the time of `FEW` requests, a minute, and for `GAPS` of its own
 * pauses, asks for nothing any more.
 *
 * Callers who all call at once, and then pause, are counted from burst to burst: see `bursts.ts`.
 *
 * Who asks at all asks for as large a part as one request needs: that of the policy of which it needs the largest part,
 * which need not be the one that limits how many come.
 *
 * Example: 3600 an hour and 100 a second. A request for 1 costs 1 s, for the hour, if little is left of that, or else 10 ms
 * (`counting.ts`); it needs 0.01, for the second.
 *
 * What will be given back is not asked for: see `refunds.ts`. What callers wait for is asked for in an interval at least;
 * they may ask for more when they have it: see `waiting.ts`.
 *
 * Times are ms; costs are ms for which the whole limit has to work.
 */
import { WHOLE } from "../stores/ledger.ts";
import { Bursts, type Count } from "./bursts.ts";
import { Waiting } from "./waiting.ts";

/** A count is too short to tell anything before this part of an interval. */
const LEAST = 0.075;
/** Demand that has just risen is counted for this part of an interval before a message states it. */
export const FIRST = 0.15;
/** Beyond so many standard deviations the demand has changed; within, the estimate follows by the other factor. */
const CHANCE = 3;
const CALM = 0.15;
/** Fewer requests in an interval are none, or an estimate would never be 0. */
const LITTLE = 0.05;
/** Counts are added up until they last for so many intervals, and more of them are not kept; a usual one lasts 0.9, or a third. */
const LONG = 0.85;
const MOST_PIECES = 8;
/** Demand that has not changed for so many intervals does not repeat itself. */
const CALM_INTERVALS = 4;
/** A count that is by this factor more than the estimate is not added to those before. */
const JUMP = 3;
/** Demand that has grown by this factor does not wait for the next interval. */
const RISING = 1.5;
/** More demand than this is no more urgent, in limits. */
const MOST = 16;
const MOST_OF_FEW = 2;
/**
 * So many requests in an interval, when the limit is used up, are few; who has not asked for their time asks for none, if
 * that is as long as so many of its own pauses.
 */
const FEW = 10;
const GAPS = 3;
/** Over so many requests of its own few are averaged, as if it asked for so much at least; fewer than `HARDLY_ANY` are none. */
const MEMORY = 8;
const LEAST_OWN = 0.2;
const HARDLY_ANY = 0.25;
/** Where demands are divided, pieces are rounded off. */
const ROUNDED_OFF = 3;

/** Counts that differ from the estimate in the same direction, added up; and the estimate before them. */
interface Trend extends Count {
  readonly from: number;
}
const NO_PIECES: readonly Count[] = [];
const NO_TREND: Trend = { asked: 0, elapsedMs: 0, from: 0 };

export class Demand {
  readonly #everyMs: number;
  /** Since others were told of it first. */
  #bursts: Bursts | undefined;
  #waiting: Waiting | undefined;
  /** In limits, as all that follows. */
  #estimate = 0;
  #sinceMs: number;
  #asked = 0;
  #requests = 0;
  /** Of a request, on average. */
  #cost = 0;
  /** Of the largest request since then, and of the largest one before. */
  #need = 0;
  #needBefore = 0;
  #needSinceMs: number;
  /** Whether requests cost something else since the estimate: it says nothing of the next ones. */
  #isOld = false;
  /** For how long no request has come, as far as that was measured, and how long none may where they are few. */
  #silentMs = 0;
  #patienceMs = 0;
  /** The last counts before this one, the newest first, since the demand last changed. */
  #pieces = NO_PIECES;
  #trend = NO_TREND;
  #changedMs = -Infinity;

  constructor(everyMs: number, now: number) {
    this.#everyMs = everyMs;
    this.#sinceMs = now;
    this.#needSinceMs = now;
  }

  /** The estimate, in `WHOLE`. */
  get value(): number {
    const demand = this.#areFew
      ? this.#estimate + this.waiting.cost / this.#memoryMs
      : this.waiting.stated(this.#estimate);
    const asked = Math.min(MOST, demand);
    if (asked === 0) return 0;
    return Math.round(Math.max(asked * WHOLE, this.#largest * WHOLE + ROUNDED_OFF));
  }

  /** Callers who wait; most keys never have any. */
  get waiting(): Waiting {
    this.#waiting ??= new Waiting(this.#everyMs);
    return this.#waiting;
  }

  get #largest(): number {
    return Math.max(this.#need, this.#needBefore);
  }

  /** Counts requests that cost so much together, and of which each needs such a part of the limit. */
  asked(cost: number, need: number, requests = 1): void {
    this.#asked += cost;
    this.#requests += requests;
    if (need > this.#need) this.#need = need;
    this.#bursts?.asked(cost);
  }

  /** There is a request now, which is counted already. */
  seen(now: number): void {
    this.#bursts?.seen(now);
  }

  /** Requests cost something else from now on. */
  reprice(): void {
    this.#isOld = true;
    this.#pieces = NO_PIECES;
  }

  /** Others are told of it from now on. */
  begin(now: number): void {
    this.#pieces = NO_PIECES;
    this.#trend = NO_TREND;
    if (this.#bursts?.isOver(now) ?? true) this.#bursts = new Bursts(this.#everyMs, now);
    // unless each request counts
    if (!this.#areFew) this.#restart(now);
  }

  /** Whether a burst may come, however little is asked for on average. */
  isBursty(now: number): boolean {
    return this.#bursts?.count(now) !== undefined;
  }

  get #areFew(): boolean {
    const cost = this.#requests > 0 ? this.#asked / this.#requests : this.#cost;
    return cost * FEW >= this.#everyMs;
  }

  get #memoryMs(): number {
    const own = Math.min(1, Math.max(LEAST_OWN, this.#estimate));
    return Math.max(this.#everyMs, (MEMORY * this.#cost) / own);
  }

  #restart(now: number): void {
    this.#sinceMs = now;
    this.#asked = 0;
    this.#requests = 0;
    this.waiting.restart(now);
  }

  /**
   * Estimates the demand, and counts from now on.
   *
   * @param part what may be used, of the limit
   * @param rests whether permits that were used come back later, and together
   * @returns whether the demand has changed by more than chance
   */
  measure(now: number, part: number, rests = false): boolean {
    const elapsed = now - this.#sinceMs;
    // a message that follows another one at once says the same
    if (elapsed < this.#everyMs * LEAST) return false;
    const cost = this.#requests > 0 ? this.#asked / this.#requests : this.#cost;
    // a small request does not make others forget the large ones
    this.#cost = this.#isOld ? cost : Math.max(cost, this.#cost + CALM * (cost - this.#cost));
    const before = this.#estimate;
    const latest = this.#latest(now);
    // counts of bursts have the same ones in them, and where requests are few the estimate is an average of many
    const isPlain = !this.#areFew && !this.isBursty(now);
    if (!isPlain || this.#isJump(latest)) this.#pieces = NO_PIECES;
    const count = this.#withPieces(latest);
    if (rests && this.#isBound(count, now)) {
      this.#pieces = NO_PIECES;
      this.#trend = NO_TREND;
      this.waiting.look(now, elapsed, before, part);
      this.#restart(now);
      return false;
    }
    const trend = isPlain ? this.#trendWith(latest) : NO_TREND;
    const isNew = this.#isOld || !this.#isChance(count, before);
    const isLong = trend.elapsedMs >= this.#everyMs;
    const isTrend = !isNew && isLong && !this.#isChance(trend, trend.from);
    const isChance = !isNew && !isTrend;
    if (this.#requests > 0) this.#isOld = false;
    const changed = newest(isNew ? count : trend);
    const most = this.#areFew ? MOST_OF_FEW : MOST;
    this.#estimate = isChance ? this.#averaged(count) : Math.min(most, changed);
    this.#trend = isChance ? trend : NO_TREND;
    this.#silentMs += elapsed;
    if (this.#requests > 0) {
      const gapsMs = (GAPS * this.#cost) / this.#estimate;
      // one pause may be longer, but what lies beyond its memory tells nothing
      const pausesMs = Math.min(GAPS * this.#silentMs, (MEMORY * this.#cost) / LEAST_OWN);
      this.#patienceMs = Math.max(FEW * this.#cost, gapsMs, pausesMs);
      this.#silentMs = 0;
    }
    if (this.#isOver(count)) this.#estimate = 0;
    this.#forgetNeed(now);
    const isCalm = now - this.#changedMs > CALM_INTERVALS * this.#everyMs;
    const isMixed = isNew && isCalm && latest.elapsedMs >= this.#everyMs * LONG;
    if (!isChance) this.#changedMs = now;
    const kept = isTrend || isMixed ? NO_PIECES : [latest, ...this.#pieces];
    this.#pieces = kept.slice(0, MOST_PIECES);
    this.waiting.look(now, elapsed, newest(count), part);
    this.#restart(now);
    const after = this.#estimate;
    return !isChance && Math.max(before, after) > Math.min(before, after) * RISING;
  }

  /** The largest request counts for as long as the estimate remembers it; who asks for nothing needs nothing. */
  #forgetNeed(now: number): void {
    if (this.waiting.cost > 0) return;
    if (this.#estimate === 0) this.#need = 0;
    const memoryMs = Math.max(MEMORY * this.#everyMs, this.#memoryMs);
    const isOld = this.#need > 0 && now - this.#needSinceMs >= memoryMs;
    if (!isOld && this.#estimate > 0) return;
    this.#needBefore = this.#need;
    this.#need = 0;
    this.#needSinceMs = now;
  }

  /** Whether some have waited all the time: then less may be asked for only because less could be had. */
  #isBound(count: Count, now: number): boolean {
    if (this.#isOld || newest(count) >= this.#estimate) return false;
    const fullMs = this.waiting.fullMs(now, now - this.#sinceMs);
    return fullMs >= Math.min(count.elapsedMs, this.#everyMs * LONG);
  }

  /** A count that is so much more than the estimate tells of itself, without those before. */
  #isJump(count: Count): boolean {
    return newest(count) > JUMP * this.#estimate && !this.#isChance(count, this.#estimate);
  }

  /** Returns what was asked for since the last message, or from burst to burst. */
  #latest(now: number): Count {
    const elapsedMs = now - this.#sinceMs;
    const waiting = this.#areFew ? 0 : (this.waiting.cost * elapsedMs) / this.#everyMs;
    return this.#bursts?.count(now) ?? { asked: Math.max(this.#asked, waiting), elapsedMs };
  }

  #withPieces(latest: Count): Count {
    let { asked, elapsedMs } = latest;
    for (const piece of this.#pieces) {
      if (elapsedMs >= this.#everyMs * LONG) break;
      asked += piece.asked;
      elapsedMs += piece.elapsedMs;
    }
    return { asked, elapsedMs };
  }

  #averaged(count: Count): number {
    if (this.#areFew) {
      const forgotten = 1 - Math.exp(-count.elapsedMs / this.#memoryMs);
      return this.#estimate + forgotten * (newest(count) - this.#estimate);
    }
    return this.#estimate + CALM * (newest(count) - this.#estimate);
  }

  #trendWith(latest: Count): Trend {
    const { asked, elapsedMs, from } = this.#trend;
    const isMore = newest(latest) > this.#estimate;
    const goesOn = elapsedMs > 0 && isMore === asked > from * elapsedMs;
    if (!goesOn) return { ...latest, from: this.#estimate };
    return { asked: asked + latest.asked, elapsedMs: elapsedMs + latest.elapsedMs, from };
  }

  /** Whether chance explains what is new. */
  #isChance(count: Count, estimate: number): boolean {
    const [requests = 0, expected = 0] = [newest(count), estimate].map(
      (demand) => (demand * count.elapsedMs) / this.#cost,
    );
    const deviations = 2 * Math.abs(Math.sqrt(requests + 3 / 8) - Math.sqrt(expected + 3 / 8));
    return deviations <= CHANCE;
  }

  #isOver({ asked, elapsedMs }: Count): boolean {
    const requestsIn = (ms: number) => (this.#estimate * ms) / this.#cost;
    if (this.#areFew) {
      const isSilent = asked === 0 && this.#silentMs >= this.#patienceMs;
      return isSilent || requestsIn(this.#memoryMs) < HARDLY_ANY;
    }
    return asked === 0 && requestsIn(elapsedMs) < LITTLE;
  }

  /** Whether much more is asked for than the estimate says. */
  isRising(now: number): boolean {
    const elapsed = now - this.#sinceMs;
    if (elapsed < this.#everyMs * FIRST) return false;
    const count = this.#latest(now);
    const demand = this.#areFew ? this.#averaged(count) : newest(count);
    return demand > this.#estimate * RISING;
  }

  /** Whether nothing was counted lately. */
  isOver(now: number): boolean {
    return now - this.#sinceMs > this.#everyMs;
  }
}

/** In limits. */
function newest({ asked, elapsedMs }: Count): number {
  return Math.min(MOST, asked / elapsedMs);
}
