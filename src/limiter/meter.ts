/** What a limiter counts, and what it tells on the channels of `diagnostics`. */
import { toMillis } from "../clock.ts";
import {
  type CancelledMessage,
  type Channel,
  diagnostics,
  type RefusedMessage,
  type Teller,
  type WaitMessage,
} from "../diagnostics.ts";
import type { Amount, Permits } from "../permits.ts";

/** How many calls came to what, since the limiter was made. */
export interface LimiterStats {
  /** Calls that got what they asked for: at once, after a wait, or as a reservation. */
  readonly granted: number;
  /** Calls that were sent away, by an answer that is no or by an error that says so. */
  readonly refused: number;
  /** Waits that were given up, and reservations that were cancelled before their time. */
  readonly cancelled: number;
  /** Calls of `acquire` and `tryAcquire` that wait now. */
  readonly waiting: number;
}

/** What shows its counters. */
export interface Counted {
  /** The counters, as they are now: a plain object. */
  readonly stats: LimiterStats;
}

export class Counts implements LimiterStats {
  granted = 0;
  refused = 0;
  cancelled = 0;
  waiting = 0;
}

/** Why somebody was refused, beyond the reason: asked for only if anybody listens. */
export type Because = () => { readonly waitMs: number; readonly policy: string };

/**
 * Counts and tells for one limiter, or for one of its keys. Times are microseconds.
 *
 * Whoever tells from the midst of a change of state does so in a microtask: a listener may call the
 * limiter.
 */
export class Meter {
  readonly counts: Counts;
  readonly #teller: Teller;
  readonly #names: readonly string[];

  /**
   * @param names of the policies, in the order of the amounts
   * @param counts shared by the keys of a limiter
   */
  constructor(teller: Teller, names: readonly string[], counts = new Counts()) {
    this.#teller = teller;
    this.#names = names;
    this.counts = counts;
  }

  /** For one of the keys. */
  of(key: string): Meter {
    return new Meter({ ...this.#teller, key }, this.#names, this.counts);
  }

  /** It waits from now on, and has to be heard of again. */
  seat(): void {
    this.counts.waiting += 1;
  }

  /** One who waited has its permits. */
  released(amount: Amount, waited: number): void {
    this.counts.waiting -= 1;
    this.granted(amount, waited);
  }

  /** Its permits are its own, or will be after that long. */
  granted(amount: Amount, wait: number): void {
    this.counts.granted += 1;
    if (wait > 0 && diagnostics.wait.hasSubscribers) {
      this.#tellSoon(diagnostics.wait, amount, { waitMs: millis(wait) });
    }
  }

  /** It need not wait to hear that it is refused. */
  refused(amount: Amount, reason: RefusedMessage["reason"], because?: Because): void {
    this.counts.refused += 1;
    if (!diagnostics.refused.hasSubscribers) return;
    const message = { ...this.#about(amount), reason, waitedMs: 0 };
    if (because === undefined) {
      diagnostics.refused.publish(message);
    } else {
      const { waitMs, policy } = because();
      diagnostics.refused.publish({ ...message, waitMs, policy });
    }
  }

  /** One who waited did so in vain. */
  expired(amount: Amount, waited: number, reason: RefusedMessage["reason"] = "too-long"): void {
    this.counts.waiting -= 1;
    this.counts.refused += 1;
    if (diagnostics.refused.hasSubscribers) {
      this.#tellSoon(diagnostics.refused, amount, { reason, waitedMs: millis(waited) });
    }
  }

  /** One who waited does not want to any more. */
  left(amount: Amount, waited: number, reason: unknown): void {
    this.ended();
    this.cancelled(amount, waited, reason);
  }

  /** One who waited has failed. */
  ended(): void {
    this.counts.waiting -= 1;
  }

  /** What would have come in time is not wanted. */
  cancelled(amount: Amount, waited: number, reason: unknown): void {
    this.counts.cancelled += 1;
    if (diagnostics.cancelled.hasSubscribers) {
      this.#tellSoon(diagnostics.cancelled, amount, { waitedMs: millis(waited), reason });
    }
  }

  #tellSoon<Message extends WaitMessage | RefusedMessage | CancelledMessage>(
    channel: Channel<Message>,
    amount: Amount,
    facts: Omit<Message, keyof Teller | "permits">,
  ): void {
    queueMicrotask(() => channel.publish({ ...this.#about(amount), ...facts } as Message));
  }

  #about(amount: Amount): Teller & { readonly permits: Permits } {
    return { ...this.#teller, permits: permitsOf(amount, this.#names) };
  }
}

/** Not below 0, though the clock may have gone back. */
function millis(micros: number): number {
  return toMillis(Math.max(0, micros));
}

/** The amount as a caller would ask for it. */
function permitsOf(amount: Amount, names: readonly string[]): Permits {
  if (typeof amount === "number") return amount;
  return Object.fromEntries(
    names.flatMap((name, i) => {
      const permits = amount[i];
      return permits === undefined ? [] : [[name, permits] as const];
    }),
  );
}
