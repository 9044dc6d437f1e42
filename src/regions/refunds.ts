/**
 * What callers keep of what they ask for. Who reserves as much as a call may use, and corrects the number afterwards, gives
 * the rest back; a region that counted all of it as demand would have a part that nobody needs.
 *
 * To subtract what comes back from what is asked for meanwhile would not do: it was asked for earlier, and the difference of
 * two counts varies more than each. So what is asked for and what comes back are added up, by policy, with weights that fall
 * by `MEMORY_MS`, and each request counts as if as much of it were kept as of the others.
 *
 * Example: a call to a model reserves 500 tokens, uses 100, and gives 400 back: 1 - 400 / 500, so the next one counts as 100.
 *
 * Where it is inexact: what is under way counts as if all of it were kept, so at first requests count in full. If they
 * become fewer, what comes back is of more of them: calls that last for 30 s count a tenth less then. And when estimates
 * become exact, it takes minutes until they count in full.
 */
import type { Amount } from "../ground/permits.ts";

const MEMORY_MS = 300_000;
/** Sums fade at most once in this time. */
const STEP_MS = 5000;
/** Something is kept of each request: it needs a part. */
const LEAST = 0.01;

export class Refunds {
  /** By policy. */
  readonly #asked: number[];
  readonly #refunded: number[];
  #fadedMs: number;

  /** @param asked what was asked for until now, by policy */
  constructor(asked: readonly number[], nowMs: number) {
    this.#asked = [...asked];
    this.#refunded = asked.map(() => 0);
    this.#fadedMs = nowMs;
  }

  /** Counts a request. */
  asked(amount: Amount, nowMs: number): void {
    this.#fade(nowMs);
    add(this.#asked, amount);
  }

  /** Counts what was given back; no more than was asked for comes back. */
  refunded(amount: Amount, nowMs: number): void {
    this.#fade(nowMs);
    add(this.#refunded, amount);
    for (const [i, asked] of this.#asked.entries()) {
      this.#refunded[i] = Math.min(this.#refunded[i] ?? 0, asked);
    }
  }

  /** Returns what will be kept of a request. */
  kept(amount: Amount): Amount {
    if (typeof amount === "number") return amount * this.#ratio(0);
    return amount.map((permits = 0, i) => permits * this.#ratio(i));
  }

  #ratio(i: number): number {
    const [asked = 0, refunded = 0] = [this.#asked[i], this.#refunded[i]];
    return refunded > 0 ? Math.max(LEAST, 1 - refunded / asked) : 1;
  }

  #fade(nowMs: number): void {
    const elapsedMs = nowMs - this.#fadedMs;
    if (elapsedMs < STEP_MS) return;
    this.#fadedMs = nowMs;
    const factor = Math.exp(-elapsedMs / MEMORY_MS);
    for (const sums of [this.#asked, this.#refunded])
      for (const [i, sum] of sums.entries()) sums[i] = sum * factor;
  }
}

function add(sums: number[], amount: Amount): void {
  const permits = typeof amount === "number" ? [amount] : amount;
  for (const [i, more = 0] of permits.entries()) sums[i] = (sums[i] ?? 0) + more;
}
