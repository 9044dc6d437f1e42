/**
 * How much of a server's quota is left, as far as can be known here.
 *
 * A response tells what remained when it was written. What was sent after its request is not in
 * that number, or may not be, so it is taken off: left = remaining - sent since. That is exact where
 * the server counts a request as it comes and nobody else sends; others are heard of with the next
 * response.
 *
 * Responses overtake each other. One whose request was sent after the last one was heard was surely
 * written later, and replaces what was known. Of the others that cannot be said: they can only lower
 * it. And one whose request was sent in a window that has ended since is not heeded.
 *
 * A quota that comes back all at once is `limit` again when its window ends: that much may be sent
 * until a response tells better, so that a limiter that is much too fast does not overrun every
 * window at its beginning. The next window is taken to begin with the first request after that, for
 * so it ends last. A quota that comes back gradually grows on the way.
 *
 * A worked example: limit 10, window 1 s. Requests A, B, C leave at 0, 1, 2 ms; A's response says 9
 * remain: two were sent since, so 7 are left. Somebody else uses 4; the response to D, which is sent
 * at 20 ms, says 2: 2 are left. After two more the third is held until 1 s have passed, and then 10
 * are left again.
 */
import type { ServerQuota } from "./rate-limit-fields.ts";

/** Servers tell resets in whole seconds: two that are nearer to each other may be one. */
const ROUNDED_MS = 1000;
/** The share of a window after which a guess is looked at again. */
const LOOK_AGAIN = 1 / 10;

export class Budget {
  #left = Infinity;
  /** When `#left` was that much, ms. */
  #at = 0;
  #limit: number | undefined;
  #perMs = 0;
  /** When the last window ended. */
  #began = -Infinity;
  /** When all can be used again; `Infinity` while that is not known. */
  #until = -Infinity;
  #windowMs = 0;
  /** When the response came of which all this is known. */
  #heardAt = -Infinity;

  /** What is left now, `Infinity` if that is not known. */
  left(now: number): number {
    this.#roll(now);
    const grown = this.#left + (now - this.#at) * this.#perMs;
    return this.#perMs > 0 ? Math.min(this.#limit ?? Infinity, grown) : this.#left;
  }

  /** In how many ms so much can be used, 0 if it can be now; of nothing: when anything can be. */
  holdMs(cost: number, now: number): number {
    const left = this.left(now);
    if (left > 0 && left >= cost) return 0;
    // it never can: the server is to say so
    if (this.#limit !== undefined && cost > this.#limit) return 0;
    // what is only guessed is looked at again soon: a response that is under way tells better
    const longest = this.#guessed ? this.#windowMs * LOOK_AGAIN : Infinity;
    const untilReset = Math.min(this.#until - now, longest);
    return this.#perMs > 0 ? Math.min(untilReset, (cost - left) / this.#perMs) : untilReset;
  }

  /** So much is sent. */
  take(cost: number, now: number): void {
    this.#roll(now);
    this.#left -= cost;
    // a window that begins on the hour, and not with a request, ends before that
    if (this.#guessed && this.#limit !== undefined) {
      this.#until = Math.min(this.#until, now + this.#windowMs);
    }
  }

  /**
   * @param quota what a response says
   * @param since what was sent after its request
   * @param sentAt when its request was sent, ms
   */
  hear(quota: ServerQuota, since: number, sentAt: number, now: number): void {
    const { remaining, limit, resetMs, windowMs, gradual } = quota;
    if (resetMs === undefined) return;
    this.#roll(now);
    if (!gradual && sentAt < this.#began) return;

    const guessed = this.#guessed;
    const newer = guessed || sentAt >= this.#heardAt;
    const perMs = gradual && resetMs > 0 ? Math.max(0, (limit ?? 0) - remaining) / resetMs : 0;
    // it may have been written as early as the request was sent
    const left = remaining - since + perMs * (now - sentAt);
    this.#left = newer ? left : Math.min(left, this.left(now));
    this.#at = now;
    this.#perMs = perMs;
    this.#limit = limit;
    if (newer) this.#heardAt = now;

    const until = now + resetMs;
    const another = guessed || (newer && until > this.#until + ROUNDED_MS);
    this.#until = another ? until : Math.min(until, this.#until);
    this.#windowMs = windowMs ?? Math.max(resetMs, this.#windowMs);
  }

  /** Whether nothing was heard of the window yet that is on now. */
  get #guessed(): boolean {
    return this.#heardAt < this.#began;
  }

  /** The window has ended; the next one begins with the first request that is sent. */
  #roll(now: number): void {
    if (now < this.#until) return;
    this.#left = this.#limit ?? Infinity;
    this.#at = now;
    this.#perMs = 0;
    this.#began = this.#until;
    this.#until = Infinity;
  }
}
