import { atLeastZero, checkNumber, checkOptions } from "../check.ts";
import { type Clock, checkClock, systemClock, toMicros, unixMicros } from "../clock.ts";
import { Breaker } from "../stores/breaker.ts";
import { type FramePlace, FrameStore } from "../stores/frame-store.ts";
import type {
  CombinedPart,
  CombinedReply,
  CombiningStore,
  Place,
  Store,
  StoreReply,
  StoreRequest,
} from "../stores/store.ts";
import type { Trip } from "../stores/trip.ts";

export interface MemoryStoreOptions {
  /**
   * The store's own clock: what its delays and its expiry go by, and the time of limiters without a
   * `clock` of their own. Default: the machine's.
   */
  readonly clock?: Clock | undefined;
}

/**
 * A store in this process for tests: limiters that are created on it under one name share one limit, as
 * if they were in several processes.
 *
 * @returns the store; its controls make it slow, silent, failing and forgetful
 * @example
 * const store = memoryStore();
 * const [here, there] = [1, 2].map(() => StoreRateLimiter.create(store, "mail", 1, { clock }));
 * await here.tryAcquire();  // true
 * await there.tryAcquire(); // false: it is one limit
 * store.hang();
 * await there.tryAcquire(); // a StoreUnavailableError, after timeoutMs
 */
export function memoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  checkOptions("options", options, ["clock"]);
  return new MemoryStore(options.clock);
}

/** What `memoryStore()` makes. */
export class MemoryStore implements Store, CombiningStore {
  readonly #clock: Clock;
  readonly #frames: FrameStore;
  readonly #breaker = new Breaker();
  #delayMs = 0;
  #error: Error | undefined;
  /** Set while it hangs: what the calls wait for. */
  #recovered: Promise<void> | undefined;
  #recover = () => {};

  /** The texts under the keys in which limits are kept (`limitKey`): set one as operators would. */
  readonly limits: Map<string, string>;

  constructor(clock?: Clock) {
    this.#clock = clock === undefined ? systemClock : checkClock(clock);
    this.#frames = new FrameStore(
      clock === undefined ? unixMicros : () => toMicros(clock.now() + (clock.epochMs ?? 0)),
    );
    this.limits = this.#frames.limits;
  }

  // -- controls --

  /** How long each call takes from now on, ms; 0 or more, default 0. */
  get delayMs(): number {
    return this.#delayMs;
  }

  set delayMs(ms: number) {
    this.#delayMs = checkNumber("delayMs", ms, atLeastZero);
  }

  /**
   * Answers no call from now on, as a server that is stopped or a network that drops everything. What
   * it is asked meanwhile it runs and answers, late, when it recovers.
   */
  hang(): void {
    this.#recovered ??= new Promise((resolve) => {
      this.#recover = resolve;
    });
  }

  /**
   * Fails every call from now on, those that hang included.
   *
   * @param error with which; default: that the connection was refused
   */
  fail(error: Error = new Error("connect ECONNREFUSED (memoryStore().fail())")): void {
    this.#error = error;
    this.#wake();
  }

  /** Answers again, without a delay. What it knew before it still knows: see `forget`. */
  recover(): void {
    this.#error = undefined;
    this.#delayMs = 0;
    this.#wake();
  }

  /** Loses the states of all limiters, as a server that restarts without its data. */
  forget(): void {
    this.#frames.clear();
  }

  #wake(): void {
    this.#recovered = undefined;
    this.#recover();
  }

  // -- the store --

  breakerOf(): Breaker {
    return this.#breaker;
  }

  async run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    trip?: Trip,
  ): Promise<StoreReply> {
    await this.#journey();
    return this.#frames.trip(key, declared, requests, now, [], trip);
  }

  place(key: string): Place {
    return this.#place(key, []);
  }

  async runTogether(verb: "take" | "peek", parts: readonly CombinedPart[]): Promise<CombinedReply> {
    await this.#journey();
    return this.#frames.combination(verb, parts);
  }

  withLimitKeys(limitKeys: readonly string[]): Store {
    return {
      breakerOf: () => this.#breaker,
      run: async (key, declared, requests, now, trip) => {
        await this.#journey();
        return this.#frames.trip(key, declared, requests, now, limitKeys, trip);
      },
      place: (key) => this.#place(key, limitKeys),
    };
  }

  #place(key: string, limitKeys: readonly string[]): FramePlace {
    return { store: this, slot: "", key, limitKeys };
  }

  async #journey(): Promise<void> {
    if (this.#delayMs > 0) await this.#sleep(this.#delayMs);
    while (this.#recovered !== undefined) await this.#recovered;
    if (this.#error !== undefined) throw this.#error;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.wakeAt(this.#clock.now() + ms, resolve);
    });
  }
}
