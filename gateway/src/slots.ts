/** Counts the requests in progress: each holds a slot until it leaves. */
import type { Clock } from "smooth-limiter";
import { chain, ignoreFailure, type MaybePromise } from "./ground/maybe-promise.ts";
import type { GatewayRequest } from "./request.ts";

/** What is needed of a `RedisConcurrencyLimiter`, or of a `ConcurrencyLimiter`. */
export interface SharedSlots {
  /** Returns a slot, or undefined if none is free. */
  tryAcquire(): MaybePromise<{ release(): MaybePromise<void> } | undefined>;
  /** Returns how many slots are held. */
  peek?(): MaybePromise<{ readonly active: number }>;
  /** Frees what it holds. */
  close?(): Promise<void>;
}

/** A slot that a request holds. */
export interface Slot {
  /** How many more were free when it was taken, as far as this process knows. */
  readonly remaining: number;
  /** Frees the slot. Does nothing if it was freed before. */
  readonly leave: () => void;
}

/** The actor that takes the slot, and the numbers in force: they may change from one request to the next. */
export interface SlotOptions {
  /** The actor's value, for the outcome. */
  readonly actor: string;
  readonly key: string;
  readonly limit: number;
  /** How long the slot is held at most, ms; Infinity: until it is left. */
  readonly maxAgeMs: number;
  /** That of the request, where it matters how it ends. */
  readonly onAnswered?: GatewayRequest["onAnswered"];
}

/** Counts the requests of each key that are in progress. */
export interface Slots {
  /** @returns undefined if no slot is free */
  take(options: SlotOptions): MaybePromise<Slot | undefined>;
  /** Returns how many slots are taken. */
  takenOf(key: string, limit: number): MaybePromise<number>;
  /** Ends all timers and connections. Later requests for a slot on Redis reject. */
  close(): Promise<void>;
}

/** Counts in this process. */
export class OwnSlots implements Slots {
  readonly #clock: Clock;
  readonly #taken = new Map<string, number>();
  /** In the order in which they were taken, so the oldest is the first. */
  readonly #slots = new Set<{ readonly key: string; readonly sinceMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  take({ key, limit, maxAgeMs }: SlotOptions): Slot | undefined {
    const nowMs = this.#clock.now();
    this.#expire(nowMs - maxAgeMs);
    const others = this.takenOf(key);
    if (others >= limit) return undefined;
    this.#taken.set(key, others + 1);
    const slot = { key, sinceMs: nowMs };
    this.#slots.add(slot);
    return { remaining: limit - others - 1, leave: () => this.#leave(slot) };
  }

  takenOf(key: string): number {
    return this.#taken.get(key) ?? 0;
  }

  async close(): Promise<void> {}

  /** Frees the slots that were taken at this time or earlier. */
  #expire(untilMs: number): void {
    for (const slot of this.#slots) {
      if (slot.sinceMs > untilMs) break;
      this.#leave(slot);
    }
  }

  #leave(slot: { readonly key: string; readonly sinceMs: number }): void {
    if (!this.#slots.delete(slot)) return;
    const left = this.takenOf(slot.key) - 1;
    if (left > 0) this.#taken.set(slot.key, left);
    else this.#taken.delete(slot.key);
  }
}

interface OpenLimiter {
  readonly limiter: SharedSlots;
  requests: number;
}

/** Counts by limiters that other processes share, one for each key. */
export class LeasedSlots implements Slots {
  readonly #create: (key: string, limit: number) => SharedSlots;
  readonly #clock: Clock;
  /** By limit and key: a limiter keeps the limit with which it was created. */
  readonly #open = new Map<string, OpenLimiter>();
  #isClosed = false;

  /** @param create creates the limiter of a key: it is closed when no request is in progress any more */
  constructor(create: (key: string, limit: number) => SharedSlots, clock: Clock) {
    this.#create = create;
    this.#clock = clock;
  }

  async take({ key, limit, maxAgeMs }: SlotOptions): Promise<Slot | undefined> {
    const { open, end } = this.#use(key, limit);
    try {
      const lease = await open.limiter.tryAcquire();
      if (lease !== undefined) {
        const remaining = Math.max(0, limit - open.requests);
        const release = () =>
          void chain(
            ignoreFailure(() => lease.release()),
            end,
          );
        return { remaining, leave: leaving(this.#clock, maxAgeMs, release) };
      }
    } catch (error) {
      end();
      throw error;
    }
    end();
    return undefined;
  }

  async takenOf(key: string, limit: number): Promise<number> {
    const { open, end } = this.#use(key, limit);
    try {
      return (await open.limiter.peek?.())?.active ?? open.requests - 1;
    } finally {
      end();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(Array.from(this.#open.values(), ({ limiter }) => limiter.close?.()));
  }

  /** @returns the limiter of a key, and a function that ends its use */
  #use(key: string, limit: number): { readonly open: OpenLimiter; readonly end: () => void } {
    const id = `${limit} ${key}`;
    const open = this.#open.get(id) ?? { limiter: this.#create(key, limit), requests: 0 };
    this.#open.set(id, open);
    open.requests += 1;
    if (this.#isClosed) void open.limiter.close?.();
    const end = () => {
      open.requests -= 1;
      if (open.requests > 0) return;
      this.#open.delete(id);
      void ignoreFailure(() => open.limiter.close?.());
    };
    return { open, end };
  }
}

/**
 * Returns a function that frees a slot, once. After `maxAgeMs` it is freed in any case.
 *
 * @param free receives whether the slot was held for all of that time
 */
export function leaving(
  clock: Clock,
  maxAgeMs: number,
  free: (isTooOld: boolean) => void,
): () => void {
  let isHeld = true;
  const end = (isTooOld: boolean) => {
    if (!isHeld) return;
    isHeld = false;
    timer?.cancel();
    free(isTooOld);
  };
  const untilMs = clock.now() + maxAgeMs;
  const timer = untilMs < Infinity ? clock.wakeAt(untilMs, () => end(true)) : undefined;
  timer?.unref?.();
  return () => end(false);
}
