/**
 * What limiters tell while they work: named channels, those of Node's `diagnostics_channel` where
 * there is one, so that others can listen by name without knowing this package.
 *
 * Whoever publishes asks `hasSubscribers` first and makes no message for nobody. What is let in at
 * once is told on no channel at all: that is the path that has to be fast, and `stats` counts it.
 */
import type { Permits } from "./permits.ts";

/** Who tells. */
export interface Teller {
  /** The limiter's `name`. */
  readonly limiter: string;
  /** Of a limiter for each key: which one. */
  readonly key?: string;
}

/** Somebody had to wait for permits, and has them. */
export interface WaitMessage extends Teller {
  readonly permits: Permits;
  /**
   * How long it waited, ms. Of a reservation: how long after `reserve()` it can be used, told at
   * once.
   */
  readonly waitMs: number;
}

/** Somebody was sent away, by an answer that is no or by an error. */
export interface RefusedMessage extends Teller {
  readonly permits: Permits;
  /**
   * `"too-long"`: the wait would be, or was, longer than the caller accepts; `"queue-full"`: as many
   * wait as may; `"too-many-keys"`: there is no room for a new key.
   */
  readonly reason: "too-long" | "queue-full" | "too-many-keys";
  /** How long it waited in vain, ms; 0 for who was refused at once. */
  readonly waitedMs: number;
  /**
   * How long it would have had to wait from now on, ms, and for which policy; `Infinity` where
   * the policy lets no more wait, absent where that is not known.
   */
  readonly waitMs?: number;
  readonly policy?: string;
}

/** Somebody who waited gave up: its signal was aborted, or its reservation cancelled. */
export interface CancelledMessage extends Teller {
  readonly permits: Permits;
  /** How long it waited, ms. */
  readonly waitedMs: number;
  /** The signal's reason; of `cancel()` a ReservationCancelledError. */
  readonly reason: unknown;
}

/** The limiter's store could not be asked, though it could the last time. */
export interface UnavailableMessage extends Teller {
  /** The client's or the server's own error, a TimeoutError, or that the client has no connection. */
  readonly cause: unknown;
}

/** The store has answered again. */
export interface RecoveredMessage extends UnavailableMessage {
  /** How long it was away, ms, from the first failure to this answer. */
  readonly durationMs: number;
  /** How many permits were granted meanwhile without it. */
  readonly granted: number;
  /** How many calls were refused meanwhile, and how many ended in a StoreUnavailableError. */
  readonly refused: number;
  readonly failed: number;
}

/** A key in which operators keep a limit holds no limit: the declared one is in force. */
export interface LimitIgnoredMessage extends Teller {
  /** Whose limit it is. */
  readonly policy: string;
  /** What the key holds: its first 40 bytes. */
  readonly value: string;
}

type Subscriber<Message> = (message: Message, name: string) => void;

/** A channel of `diagnostics_channel`, or where there is none one that does the same. */
export interface Channel<Message> {
  readonly name: string;
  readonly hasSubscribers: boolean;
  /**
   * From now on the subscriber is called with every message. What it throws is reported as an
   * uncaught exception and disturbs nobody.
   */
  subscribe(subscriber: Subscriber<Message>): void;
  /** @returns whether it was subscribed */
  unsubscribe(subscriber: Subscriber<Message>): boolean;
  publish(message: Message): void;
}

/** For browsers, and for Node before 20.16. */
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

/** No import: a browser could not resolve it. */
function platformChannels(): Channels | undefined {
  const { process } = globalThis as {
    process?: { getBuiltinModule?: (name: string) => Channels | undefined };
  };
  return process?.getBuiltinModule?.("node:diagnostics_channel");
}

const platform = platformChannels();

function open<Message>(event: string): Channel<Message> {
  const name = `smooth-limiter:${event}`;
  return (platform?.channel(name) ?? new OwnChannel(name)) as Channel<Message>;
}

/**
 * The channels on which all limiters of this process tell what happens.
 *
 * @example
 * diagnostics.refused.subscribe(({ limiter, reason }) => console.warn(limiter, reason));
 */
export const diagnostics = {
  /** `smooth-limiter:wait`: somebody had to wait, and need not any more. */
  wait: open<WaitMessage>("wait"),
  /** `smooth-limiter:refused`: somebody was sent away. */
  refused: open<RefusedMessage>("refused"),
  /** `smooth-limiter:cancelled`: somebody who waited gave up. */
  cancelled: open<CancelledMessage>("cancelled"),
  /** `smooth-limiter:unavailable`: a limiter's store is away. */
  unavailable: open<UnavailableMessage>("unavailable"),
  /** `smooth-limiter:recovered`: it is back. */
  recovered: open<RecoveredMessage>("recovered"),
  /**
   * `smooth-limiter:limitIgnored`: a `limitKey` holds a negative number or none at all; once for
   * each value that a limiter meets.
   */
  limitIgnored: open<LimitIgnoredMessage>("limitIgnored"),
} as const;
