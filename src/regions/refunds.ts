/**
 * What callers keep of what they ask for. Who reserves as much as a call may use, and corrects the number afterwards, gives
 * the rest back; a region that counted all of it as demand would have a part that nobody needs.
 *
 * To subtract what comes back from what is asked for meanwhile would not do: it was asked for earlier, and the difference of
 * two counts varies more than each. So what is granted and what comes back are added up, by policy, and each request
 * counts as if as much of it were kept as of the others. The sums fade, some within half a minute and some within half an hour;
 * the ratio is that of the two by which more is kept.
 *
 * Example: a call to a model reserves 500 tokens, uses 100, and gives 400 back: 1 - 400 / 500, so the next one counts as 100.
 * If all calls fail for some minutes and give everything back, the last half minute says that nothing is kept; but the last half
 * hour still says about 100. When estimates become exact, the last half minute says so first.
 *
 * Where it is inexact: what is under way counts as if all of it were kept, so at first, and after a pause, requests count in
 * full; and if they become fewer, what comes back is of more of them: of calls that last for 90 s up to a twentieth more
 * seems to be given back. Who gives all back because the next step of a job was refused seems to need nothing.
 */
import type { Amount } from "../ground/permits.ts";

/** In such times the sums fade by a factor of e. */
const MEMORIES_MS = [30_000, 1_800_000];
/** Sums fade at most once in this time. */
const STEP_MS = 1000;
/** Something is kept of each request: it needs a part. */
const LEAST = 0.01;

/** By policy. */
export type Sums = number[];

export class Refunds {
  readonly #memories: readonly {
    readonly ms: number;
    readonly granted: Sums;
    readonly refunded: Sums;
  }[];
  #fadedMs: number;

  /** @param granted what was granted in `elapsedMs` until now */
  constructor(granted: Readonly<Sums>, elapsedMs: number, nowMs: number) {
    this.#memories = MEMORIES_MS.map((ms) => {
      const remembered = Math.min(1, ms / elapsedMs);
      return {
        ms,
        granted: granted.map((sum) => sum * remembered),
        refunded: granted.map(() => 0),
      };
    });
    this.#fadedMs = nowMs;
  }

  /** Counts what was granted, or charged. */
  granted(amount: Amount, nowMs: number): void {
    this.#fade(nowMs);
    for (const { granted } of this.#memories) add(granted, amount);
  }

  /** Counts what was given back; no more than was granted comes back. */
  refunded(amount: Amount, nowMs: number): void {
    this.#fade(nowMs);
    for (const { granted, refunded } of this.#memories) {
      add(refunded, amount);
      for (const [i, most] of granted.entries()) refunded[i] = Math.min(refunded[i] ?? 0, most);
    }
  }

  /** Returns what will be kept of a request. */
  kept(amount: Amount): Amount {
    if (typeof amount === "number") return amount * this.#ratio(0);
    return amount.map((permits = 0, i) => permits * this.#ratio(i));
  }

  #ratio(i: number): number {
    let most = LEAST;
    for (const { granted, refunded } of this.#memories) {
      const [all = 0, back = 0] = [granted[i], refunded[i]];
      const kept = back > 0 ? 1 - back / all : 1;
      // not if both are infinite
      if (kept > most) most = kept;
    }
    return most;
  }

  #fade(nowMs: number): void {
    const elapsedMs = nowMs - this.#fadedMs;
    if (elapsedMs < STEP_MS) return;
    this.#fadedMs = nowMs;
    for (const { ms, granted, refunded } of this.#memories) {
      const factor = Math.exp(-elapsedMs / ms);
      for (const sums of [granted, refunded])
        for (const [i, sum] of sums.entries()) sums[i] = sum * factor;
    }
  }
}

/** Adds an amount to sums by policy. */
export function add(sums: Sums, amount: Amount): void {
  // the usual case, without a list
  if (typeof amount === "number") sums[0] = (sums[0] ?? 0) + amount;
  else for (const [i, more = 0] of amount.entries()) sums[i] = (sums[i] ?? 0) + more;
}
