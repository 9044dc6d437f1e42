/**
 * How much a fair limiter on a store reserves ahead.
 *
 * The store serves all processes first in, first out. A process that reserved for all its callers at once
 * would keep every other process waiting for all of them, and could not let a new share go before them. So
 * only a window of calls is with the store at a time; all others wait in this process, in fair order.
 *
 * **The size.** A call is sent while fewer than two are with the store, or while for each of its policies
 *
 *     the permits of the calls with the store, with this one  ≤  pace × H       H = max(20 ms, 3 round trips)
 *
 * where the pace is limit / windowMs. By Little's law permits of `pace × delay` must be with the store for none
 * to be lost while a request is under way. A request waits for the batch before it and then travels, which
 * takes two round trips at most; the third one is for replies that are late. 20 ms hide the jitter of timers.
 * At least two calls: one sleeps until its instant while the next one is reserved.
 *
 * **Why not adaptive.** The queue of the store gives each process as many permits as it has waiting there, so
 * processes share the limit equally only if their windows are equal. This one depends on nothing but the
 * policies and the round trip. A window that grows until the queue is long, as a transport protocol does it,
 * would go to the process that started first.
 *
 * How long a new caller waits for other processes because of it: docs/fair.md, "Several processes".
 */
import type { Amount } from "../../ground/permits.ts";
import type { PolicyState } from "../../stores/state/one.ts";

/** H, microseconds. */
const LEAST_AHEAD = 20_000;
const MOST_AHEAD = 2_000_000;
const FEWEST_CALLS = 2;

export class StoreWindow {
  #policyState: PolicyState | undefined;
  /** Permits per microsecond, and the permits with the store, of each policy. */
  #paces: readonly number[] = [];
  readonly #ahead: number[] = [];
  #horizon = LEAST_AHEAD;
  /** When the last batch with a reply was sent, and how long that took, microseconds. */
  #sentAt = Number.NaN;
  #roundTrip = 0;
  #calls = 0;
  #permits = 0;

  /** How many calls are with the store. */
  get calls(): number {
    return this.#calls;
  }

  /** How many permits they ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** @param policyState a new state under the policies in force */
  hasRoom(amount: Amount, policyState: PolicyState): boolean {
    if (this.#calls < FEWEST_CALLS) return true;
    if (this.#policyState !== policyState) {
      this.#policyState = policyState;
      const quotas = policyState.quotas(0);
      this.#paces = quotas.map(({ limit, windowMs }) => limit / windowMs / 1000);
    }
    return this.#paces.every((pace, i) => {
      const permits = typeof amount === "number" ? amount : amount[i];
      return permits === undefined || Number(this.#ahead[i]) + permits <= pace * this.#horizon;
    });
  }

  add(amount: Amount, size: number): void {
    this.#count(amount, 1);
    this.#permits += size;
    this.#calls += 1;
  }

  remove(amount: Amount, size: number): void {
    this.#count(amount, -1);
    this.#permits -= size;
    this.#calls -= 1;
  }

  /** The store has replied at `now` to a batch that was sent at `sentAt`. A reply at most doubles H. */
  replied(sentAt: number, now: number): void {
    if (sentAt === this.#sentAt) return;
    // one slow reply makes the window no longer: the client may have connected
    const roundTrip = Math.min(this.#roundTrip, now - sentAt);
    this.#sentAt = sentAt;
    this.#roundTrip = now - sentAt;
    const horizon = Math.min(MOST_AHEAD, Math.max(LEAST_AHEAD, 3 * roundTrip));
    this.#horizon = Math.min(2 * this.#horizon, horizon);
  }

  #count(amount: Amount, by: 1 | -1): void {
    const permits = typeof amount === "number" ? [amount] : amount;
    permits.forEach((each = 0, i) => {
      this.#ahead[i] = (this.#ahead[i] ?? 0) + by * each;
    });
  }
}
