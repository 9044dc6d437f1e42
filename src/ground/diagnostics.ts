/**
 * Events that limiters publish: named channels of Node's `diagnostics_channel`, where it exists, so
 * that programs can subscribe by name without importing this package.
 *
 * A publisher checks `hasSubscribers` first, so it creates no message without a subscriber. A
 * request that is granted at once is published on no channel, because that path has to be fast;
 * `stats` counts it.
 */
import { oncePerProcess } from "./copies.ts";
import { builtinModule } from "./node-process.ts";
import type { Permits } from "./permits.ts";

/** The limiter that published a message. */
export interface DiagnosticsSource {
  /** The limiter's `name`. */
  readonly limiter: string;
  /** The key, if the limiter has one state for each key. */
  readonly key?: string;
}

/** A caller had to wait for permits, and now has them. */
export interface WaitMessage extends DiagnosticsSource {
  /** How many permits the call asked for. */
  readonly permits: Permits;
  /**
   * How long it waited, ms. For a reservation: how long after `reserve()` it can be used; published
   * at once.
   */
  readonly waitMs: number;
}

/** A call was refused: it returned no permits, or rejected with an error. */
export interface RefusedMessage extends DiagnosticsSource {
  /** How many permits the call asked for. */
  readonly permits: Permits;
  /**
   * `"too-long"`: the wait would be, or was, longer than the caller accepts; `"queue-full"`: as
   * many callers wait as `maxWaiting` allows; `"too-many-keys"`: there is no room for a new key.
   */
  readonly reason: "too-long" | "queue-full" | "too-many-keys";
  /** How long the call waited before it was refused, ms; 0 if it was refused at once. */
  readonly waitedMs: number;
  /**
   * How much longer it would have had to wait, ms. `Infinity` where the policy accepts no more
   * waiters; absent where it is not known.
   */
  readonly waitMs?: number;
  /** For which policy it would have had to wait; absent where it is not known. */
  readonly policy?: string;
}

/** A waiter left: its signal was aborted, or its reservation was cancelled. */
export interface CancelledMessage extends DiagnosticsSource {
  /** How many permits the call asked for. */
  readonly permits: Permits;
  /** How long it waited, ms. */
  readonly waitedMs: number;
  /** The signal's reason; for `cancel()` a ReservationCancelledError. */
  readonly reason: unknown;
}

/** The limiter's store became unavailable: its previous request was answered, this one was not. */
export interface UnavailableMessage extends DiagnosticsSource {
  /**
   * The error of the client or the server, a TimeoutError, or an error that there is no connection.
   */
  readonly cause: unknown;
}

/** The store answers again. */
export interface RecoveredMessage extends UnavailableMessage {
  /** How long the outage lasted, ms, from the first failure to this reply. */
  readonly durationMs: number;
  /** How many permits were granted without the store during the outage. */
  readonly granted: number;
  /** How many calls were refused during the outage. */
  readonly refused: number;
  /** How many calls failed with a StoreUnavailableError during the outage. */
  readonly failed: number;
}

/** A key in which operators keep a limit holds no valid limit, so the declared limit applies. */
export interface LimitIgnoredMessage extends DiagnosticsSource {
  /** The policy to which the limit belongs. */
  readonly policy: string;
  /** What the key holds: its first 40 bytes. */
  readonly value: string;
}

/** Other code uses the limiter's name with other algorithms: an old version during a deploy, or a mistake. */
export interface OtherAlgorithmsMessage extends DiagnosticsSource {
  /** The algorithms of each other version: `"gcra"`, `"smooth + fixed-window"`. */
  readonly others: readonly string[];
}

/** The part of a limit that a region may use has changed. */
export interface FractionMessage extends DiagnosticsSource {
  /** The name of the region. */
  readonly region: string;
  /** The region's part of the limit from now on, from 0 to 1. */
  readonly fraction: number;
  /** How much of the limit the region's callers asked for lately; above 1: more than the limit. */
  readonly demand: number;
  /** When the part that is on lease ends unless it is renewed, ms from now; 0: there is none. */
  readonly leaseMs: number;
}

type Subscriber<Message> = (message: Message, name: string) => void;

/** A channel of `diagnostics_channel`, or a replacement where the platform has none. */
export interface Channel<Message> {
  /** `smooth-limiter:` and the name of the event. */
  readonly name: string;
  /** Whether there is a subscriber: without one no message is made. */
  readonly hasSubscribers: boolean;
  /**
   * Calls the subscriber with every message from now on. If it throws, the error is reported as an
   * uncaught exception; the limiter and other subscribers are not affected.
   */
  subscribe(subscriber: Subscriber<Message>): void;
  /** @returns whether it was subscribed */
  unsubscribe(subscriber: Subscriber<Message>): boolean;
  /** Calls all subscribers. Limiters do this. */
  publish(message: Message): void;
}

/** A channel for browsers, and for Node before 20.16. */
export class OwnChannel<Message> implements Channel<Message> {
  readonly name: string;
  #subscribers: readonly Subscriber<Message>[] = [];

  constructor(name: string) {
    this.name = name;
  }

  get hasSubscribers(): boolean {
    return this.#subscribers.length > 0;
  }

  subscribe(subscriber: Subscriber<Message>): void {
    this.#subscribers = [...this.#subscribers, subscriber];
  }

  unsubscribe(subscriber: Subscriber<Message>): boolean {
    const at = this.#subscribers.indexOf(subscriber);
    if (at >= 0) this.#subscribers = this.#subscribers.toSpliced(at, 1);
    return at >= 0;
  }

  publish(message: Message): void {
    for (const subscriber of this.#subscribers) {
      try {
        subscriber(message, this.name);
      } catch (error) {
        setTimeout(() => {
          throw error;
        });
      }
    }
  }
}

interface Channels {
  channel(name: string): Channel<unknown>;
}

const platform = /* @__PURE__ */ builtinModule<Channels>("node:diagnostics_channel");

function open<Message>(event: string): Channel<Message> {
  const name = `smooth-limiter:${event}`;
  const channel = platform?.channel(name) ?? oncePerProcess(name, () => new OwnChannel(name));
  return channel as Channel<Message>;
}

// the channels of every limiter; those below are left out of bundles without limiters on a store
export const waits = /* @__PURE__ */ open<WaitMessage>("wait");
export const refusals = /* @__PURE__ */ open<RefusedMessage>("refused");
export const cancellations = /* @__PURE__ */ open<CancelledMessage>("cancelled");

/**
 * The channels on which all limiters of this process publish their events.
 *
 * @example
 * diagnostics.refused.subscribe(({ limiter, reason }) => console.warn(limiter, reason));
 */
export const diagnostics = {
  /** `smooth-limiter:wait`: a caller had to wait, and now has its permits. */
  wait: waits,
  /** `smooth-limiter:refused`: a call was refused. */
  refused: refusals,
  /** `smooth-limiter:cancelled`: a waiter left before it had its permits. */
  cancelled: cancellations,
  /** `smooth-limiter:unavailable`: a limiter's store cannot be reached. */
  unavailable: /* @__PURE__ */ open<UnavailableMessage>("unavailable"),
  /** `smooth-limiter:recovered`: the store answers again. */
  recovered: /* @__PURE__ */ open<RecoveredMessage>("recovered"),
  /**
   * `smooth-limiter:limitIgnored`: a `limitKey` holds a negative number or no number. Published
   * once for each such value that a limiter reads.
   */
  limitIgnored: /* @__PURE__ */ open<LimitIgnoredMessage>("limitIgnored"),
  /** `smooth-limiter:otherAlgorithms`: other code uses the name with other algorithms. Once for each limiter. */
  otherAlgorithms: /* @__PURE__ */ open<OtherAlgorithmsMessage>("otherAlgorithms"),
  /** `smooth-limiter:fraction`: the part of a limit that a region may use has changed. */
  fraction: /* @__PURE__ */ open<FractionMessage>("fraction"),
} as const;
