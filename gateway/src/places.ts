/** Counts the requests in progress: each holds a place until it leaves. */
import type { Clock } from "smooth-limiter";
import { chain, type Maybe, settled } from "./ground/maybe.ts";
import type { GatewayRequest } from "./request.ts";

/** What is needed of a `RedisConcurrencyLimiter`, or of a `ConcurrencyLimiter`. */
export interface SharedPlaces {
  /** Returns a place, or undefined if none is free. */
  tryAcquire(): Maybe<{ release(): Maybe<void> } | undefined>;
  /** Returns how many places are held. */
  peek?(): Maybe<{ readonly active: number }>;
  /** Frees what it holds. */
  close?(): Promise<void>;
}

/** A place that a request holds. */
export interface Place {
  /** How many more were free when it was taken, as far as this process knows. */
  readonly remaining: number;
  /** Frees the place. Does nothing if it was freed before. */
  readonly leave: () => void;
}

/** The actor that takes the place, and the numbers in force: they may change from one request to the next. */
export interface PlaceOptions {
  readonly key: string;
  readonly limit: number;
  /** How long the place is held at most, ms; Infinity: until it is left. */
  readonly maxAgeMs: number;
  /** That of the request, where it matters how it ends. */
  readonly onAnswered?: GatewayRequest["onAnswered"];
}

/** Counts the requests of each key that are in progress. */
export interface Places {
  /** @returns undefined if no place is free */
  take(options: PlaceOptions): Maybe<Place | undefined>;
  /** Returns how many places are taken. */
  takenOf(key: string, limit: number): Maybe<number>;
  /** Ends all timers and connections. Later requests for a place on Redis reject. */
  close(): Promise<void>;
}

/** Counts in this process. */
export class OwnPlaces implements Places {
  readonly #clock: Clock;
  readonly #taken = new Map<string, number>();
  /** In the order in which they were taken, so the oldest is the first. */
  readonly #places = new Set<{ readonly key: string; readonly sinceMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  take({ key, limit, maxAgeMs }: PlaceOptions): Place | undefined {
    const nowMs = this.#clock.now();
    this.#expire(nowMs - maxAgeMs);
    const others = this.takenOf(key);
    if (others >= limit) return undefined;
    this.#taken.set(key, others + 1);
    const place = { key, sinceMs: nowMs };
    this.#places.add(place);
    return { remaining: limit - others - 1, leave: () => this.#leave(place) };
  }

  takenOf(key: string): number {
    return this.#taken.get(key) ?? 0;
  }

  async close(): Promise<void> {}

  /** Frees the places that were taken at this time or earlier. */
  #expire(untilMs: number): void {
    for (const place of this.#places) {
      if (place.sinceMs > untilMs) break;
      this.#leave(place);
    }
  }

  #leave(place: { readonly key: string; readonly sinceMs: number }): void {
    if (!this.#places.delete(place)) return;
    const left = this.takenOf(place.key) - 1;
    if (left > 0) this.#taken.set(place.key, left);
    else this.#taken.delete(place.key);
  }
}

interface OpenLimiter {
  readonly limiter: SharedPlaces;
  requests: number;
}

/** Counts by limiters that other processes share, one for each key. */
export class LeasedPlaces implements Places {
  readonly #create: (key: string, limit: number) => SharedPlaces;
  readonly #clock: Clock;
  /** By limit and key: a limiter keeps the limit with which it was created. */
  readonly #open = new Map<string, OpenLimiter>();
  #isClosed = false;

  /** @param create creates the limiter of a key: it is closed when no request is in progress any more */
  constructor(create: (key: string, limit: number) => SharedPlaces, clock: Clock) {
    this.#create = create;
    this.#clock = clock;
  }

  async take({ key, limit, maxAgeMs }: PlaceOptions): Promise<Place | undefined> {
    const { open, end } = this.#use(key, limit);
    try {
      const lease = await open.limiter.tryAcquire();
      if (lease !== undefined) {
        const remaining = Math.max(0, limit - open.requests);
        return { remaining, leave: this.#leaving(lease, maxAgeMs, end) };
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
      void settled(() => open.limiter.close?.());
    };
    return { open, end };
  }

  #leaving(lease: { release(): Maybe<void> }, maxAgeMs: number, end: () => void): () => void {
    let isHeld = true;
    const leave = () => {
      if (!isHeld) return;
      isHeld = false;
      timer?.cancel();
      void chain(
        settled(() => lease.release()),
        end,
      );
    };
    const untilMs = this.#clock.now() + maxAgeMs;
    const timer = untilMs < Infinity ? this.#clock.wakeAt(untilMs, leave) : undefined;
    timer?.unref?.();
    return leave;
  }
}
