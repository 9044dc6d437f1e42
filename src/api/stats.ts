/**
 * The counters of a limiter, and the messages that it publishes on the channels of `diagnostics`.
 */
import { toMillis } from "../ground/clock.ts";
import {
  type CancelledMessage,
  type Channel,
  cancellations,
  type DiagnosticsSource,
  type RefusedMessage,
  refusals,
  type WaitMessage,
  waits,
} from "../ground/diagnostics.ts";
import type { Amount, Permits } from "../ground/permits.ts";

/** The number of calls by result, since the limiter was created. */
export interface LimiterStats {
  /** Calls that got their permits: at once, after a wait, or as a reservation. */
  readonly granted: number;
  /** Calls that were refused, by their result or by an error. */
  readonly refused: number;
  /**
   * Waits that were ended by the caller, and reservations that were cancelled before their time.
   */
  readonly cancelled: number;
  /** Calls of `acquire` and `tryAcquire` that wait now. */
  readonly waiting: number;
}

/** An object with counters. */
export interface Counted {
  /** The current counters, as a plain object. */
  readonly stats: LimiterStats;
}

export class Counts implements LimiterStats {
  granted = 0;
  refused = 0;
  cancelled = 0;
  waiting = 0;
}

/** Details of a refusal. Called only if the refusal is published. */
export type Because = () => { readonly waitMs: number; readonly policy: string } | undefined;

/**
 * Counts and publishes for one limiter, or for one of its keys. Times are µs.
 *
 * A message about a change that is still under way is published in a microtask, because a
 * subscriber may call the limiter.
 */
export class CallStats {
  readonly counts: Counts;
  readonly #source: DiagnosticsSource;
  readonly #names: readonly string[];

  /**
   * @param names the policies' names, in the order of the amounts
   * @param counts shared by all keys of a limiter
   */
  constructor(source: DiagnosticsSource, names: readonly string[], counts = new Counts()) {
    this.#source = source;
    this.#names = names;
    this.counts = counts;
  }

  /** The counts of one key. It shares the counters. */
  of(key: string): CallStats {
    return new CallStats({ ...this.#source, key }, this.#names, this.counts);
  }

  /** Starts a wait. It must be matched by `released`, `expired` or `ended`. */
  enqueued(): void {
    this.counts.waiting += 1;
  }

  /** A waiter got its permits after `waited`. */
  released(amount: Amount, waited: number): void {
    this.counts.waiting -= 1;
    this.granted(amount, waited);
  }

  /** A call got its permits, for use after `wait`. */
  granted(amount: Amount, wait: number): void {
    this.counts.granted += 1;
    if (wait > 0 && waits.hasSubscribers) {
      this.#publishSoon(waits, amount, { waitMs: millis(wait) });
    }
  }

  /** A call was refused without a wait. */
  refused(amount: Amount, reason: RefusedMessage["reason"], because?: Because): void {
    this.counts.refused += 1;
    if (!refusals.hasSubscribers) return;
    const why = because?.();
    refusals.publish({
      ...{ ...this.#about(amount), reason, waitedMs: 0 },
      ...(why && { waitMs: why.waitMs, policy: why.policy }),
    });
  }

  /** A waiter was refused after it had waited. */
  expired(amount: Amount, waited: number, reason: RefusedMessage["reason"] = "too-long"): void {
    this.counts.waiting -= 1;
    this.counts.refused += 1;
    if (refusals.hasSubscribers) {
      this.#publishSoon(refusals, amount, { reason, waitedMs: millis(waited) });
    }
  }

  /** A waiter left, or failed with an error: that is counted elsewhere. */
  ended(): void {
    this.counts.waiting -= 1;
  }

  /** A caller gave up permits before their time. */
  cancelled(amount: Amount, waited: number, reason: unknown): void {
    this.counts.cancelled += 1;
    if (cancellations.hasSubscribers) {
      this.#publishSoon(cancellations, amount, { waitedMs: millis(waited), reason });
    }
  }

  #publishSoon<Message extends WaitMessage | RefusedMessage | CancelledMessage>(
    channel: Channel<Message>,
    amount: Amount,
    facts: Omit<Message, keyof DiagnosticsSource | "permits">,
  ): void {
    queueMicrotask(() => channel.publish({ ...this.#about(amount), ...facts } as Message));
  }

  #about(amount: Amount): DiagnosticsSource & { readonly permits: Permits } {
    return { ...this.#source, permits: permitsOf(amount, this.#names) };
  }
}

/** Converts to ms; 0 where the clock has gone back. */
function millis(micros: number): number {
  return toMillis(Math.max(0, micros));
}

/** The amount in the form in which a caller would request it. */
function permitsOf(amount: Amount, names: readonly string[]): Permits {
  if (typeof amount === "number") return amount;
  return Object.fromEntries(
    names.flatMap((name, i) => {
      const permits = amount[i];
      return permits === undefined ? [] : [[name, permits] as const];
    }),
  );
}
