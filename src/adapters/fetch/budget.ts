/**
 * How much of a server's quota is left, as far as this client can know.
 *
 * A response reports what remained when it was written. Requests sent after its own request may not
 * be included, so they are subtracted: left = remaining - sent since. That is exact if the server
 * counts a request on arrival and has no other client; the use of other clients shows in the next
 * response.
 *
 * Responses overtake each other. A response to a request that was sent after the last update was surely
 * written later, and replaces the known state. Any other response can only lower it. A response to
 * a request that was sent in a window that has ended since is ignored.
 *
 * A quota that refills all at once is `limit` again when its window ends. That much may be sent
 * until a response reports better, so that a limiter that is much too fast does not overrun every
 * window at its start. The next window is assumed to begin with the first request after that,
 * because this is the latest possible end. A quota that refills gradually grows continuously.
 *
 * A worked example: limit 10, window 1 s. Requests A, B, C are sent at 0, 1, 2 ms; A's response
 * says 9 remain: two were sent since, so 7 are left. Another client uses 4; the response to D,
 * which is sent at 20 ms, says 2: 2 are left. After two more the third is held until 1 s have
 * passed, and then 10 are left again.
 */
import type { ServerQuota } from "./rate-limit-fields.ts";

/** Servers report resets in whole seconds: two that differ by less may be the same one. */
const ROUNDED_MS = 1000;
/** The share of a window after which an assumption is checked again. */
const LOOK_AGAIN = 1 / 10;

export class Budget {
  #left = Infinity;
  /** When `#left` had its value, ms. */
  #at = 0;
  #limit: number | undefined;
  #perMs = 0;
  /** When the last window ended, ms. */
  #began = -Infinity;
  /** When the whole quota is available again, ms; `Infinity` while that is not known. */
  #until = -Infinity;
  #windowMs = 0;
  /** When the last response came that replaced the known state, ms. */
  #updatedAt = -Infinity;

  /** What is left now; `Infinity` if that is not known. */
  left(now: number): number {
    this.#roll(now);
    const grown = this.#left + (now - this.#at) * this.#perMs;
    return this.#perMs > 0 ? Math.min(this.#limit ?? Infinity, grown) : this.#left;
  }

  /**
   * How many ms until `cost` can be used, 0 if it can be now; for 0: until anything can be used.
   */
  holdMs(cost: number, now: number): number {
    const left = this.left(now);
    if (left > 0 && left >= cost) return 0;
    // it can never pass: let the server refuse it
    if (this.#limit !== undefined && cost > this.#limit) return 0;
    // an assumption is checked again soon, because a pending response may correct it
    const longest = this.#guessed ? this.#windowMs * LOOK_AGAIN : Infinity;
    const untilReset = Math.min(this.#until - now, longest);
    return this.#perMs > 0 ? Math.min(untilReset, (cost - left) / this.#perMs) : untilReset;
  }

  /** Subtracts a request that is being sent. */
  take(cost: number, now: number): void {
    this.#roll(now);
    this.#left -= cost;
    // a window that does not begin with a request (but on the hour, say) ends earlier
    if (this.#guessed && this.#limit !== undefined) {
      this.#until = Math.min(this.#until, now + this.#windowMs);
    }
  }

  /**
   * Adopts a quota from a response.
   *
   * @param quota what the response reports
   * @param since what was sent after its request
   * @param sentAt when its request was sent, ms
   */
  update(quota: ServerQuota, since: number, sentAt: number, now: number): void {
    const { remaining, limit, resetMs, windowMs, gradual } = quota;
    if (resetMs === undefined) return;
    this.#roll(now);
    if (!gradual && sentAt < this.#began) return;

    const guessed = this.#guessed;
    const newer = guessed || sentAt >= this.#updatedAt;
    const missing = gradual && resetMs > 0 ? Math.max(0, (limit ?? 0) - remaining) : 0;
    // finite, because it is multiplied by times that may be 0
    const perMs = missing > 0 ? Math.min(Number.MAX_VALUE, missing / resetMs) : 0;
    // the response may have been written as early as the request was sent
    const left = remaining - since + perMs * (now - sentAt);
    this.#left = newer ? left : Math.min(left, this.left(now));
    this.#at = now;
    this.#perMs = perMs;
    this.#limit = limit;
    if (newer) this.#updatedAt = now;

    const until = now + resetMs;
    const another = guessed || (newer && until > this.#until + ROUNDED_MS);
    this.#until = another ? until : Math.min(until, this.#until);
    this.#windowMs = windowMs ?? Math.max(resetMs, this.#windowMs);
  }

  /** Whether no response has reported on the current window yet. */
  get #guessed(): boolean {
    return this.#updatedAt < this.#began;
  }

  /** Starts the next window when the last one has ended; its first request starts its time. */
  #roll(now: number): void {
    if (now < this.#until) return;
    this.#left = this.#limit ?? Infinity;
    this.#at = now;
    this.#perMs = 0;
    this.#began = this.#until;
    this.#until = Infinity;
  }
}
