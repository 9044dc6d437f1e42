import { atLeastZero, checkNumber, checkOptions } from "../ground/check.ts";
import { type Clock, checkClock, systemClock, toMicros, unixMicros } from "../ground/clock.ts";
import type { BatchId } from "../stores/batch-id.ts";
import { Breaker } from "../stores/breaker.ts";
import type {
  CombinedReply,
  CombinedSubrequest,
  CombiningStore,
  StateLocation,
  Store,
  StoreReply,
  StoreRequest,
} from "../stores/store.ts";
import { type MemoryLocation, TransitionStore } from "../stores/transition-store.ts";

/** The options of `memoryStore`. */
export interface MemoryStoreOptions {
  /**
   * The store's own clock, for its delays and expiry, and for limiters without a `clock` of their own.
   * Default: the machine's clock.
   */
  readonly clock?: Clock | undefined;
}

/**
 * Creates a store in this process for tests: limiters that are created on it under one name share one
 * limit, as if they were in several processes.
 *
 * @returns the store; its controls delay its replies, withhold them, let calls fail and clear its data
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

/** The store that `memoryStore()` returns. */
export class MemoryStore implements Store, CombiningStore {
  readonly #clock: Clock;
  readonly #store: TransitionStore;
  readonly #breaker = new Breaker();
  #delayMs = 0;
  #error: Error | undefined;
  /** Set while the store hangs: calls wait for this promise. */
  #recovered: Promise<void> | undefined;
  #recover = () => {};

  /** The texts under the keys in which limits are kept (`limitKey`): set one as an operator would. */
  readonly limits: Map<string, string>;

  constructor(clock?: Clock) {
    this.#clock = clock === undefined ? systemClock : checkClock(clock);
    this.#store = new TransitionStore(
      clock === undefined ? unixMicros : () => toMicros(clock.now() + (clock.epochMs ?? 0)),
    );
    this.limits = this.#store.limits;
  }

  // -- controls --

  /** The delay of each call from now on, ms; 0 or more, default 0. */
  get delayMs(): number {
    return this.#delayMs;
  }

  set delayMs(ms: number) {
    this.#delayMs = checkNumber("delayMs", ms, atLeastZero);
  }

  /**
   * Replies to no call from now on, like a server that is stopped or a network that drops all packets.
   * The store runs these calls and replies to them, late, when it recovers.
   */
  hang(): void {
    this.#recovered ??= new Promise((resolve) => {
      this.#recover = resolve;
    });
  }

  /**
   * Lets every call fail from now on, those that hang included.
   *
   * @param error the error of these calls; default: a refused connection
   */
  fail(error: Error = new Error("connect ECONNREFUSED (memoryStore().fail())")): void {
    this.#error = error;
    this.#wake();
  }

  /** Replies again, without a delay. All states are kept; to clear them, see `forget`. */
  recover(): void {
    this.#error = undefined;
    this.#delayMs = 0;
    this.#wake();
  }

  /** Clears the states of all limiters, like a server that restarts without its data. */
  forget(): void {
    this.#store.clear();
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
    batchId?: BatchId,
  ): Promise<StoreReply> {
    await this.#journey();
    return this.#store.runBatch(key, declared, requests, now, [], batchId);
  }

  async exchange(key: string, message: readonly string[]): Promise<string> {
    await this.#journey();
    return this.#store.exchange(key, message);
  }

  location(key: string): StateLocation {
    return this.#location(key, []);
  }

  async runTogether(
    verb: "take" | "peek",
    parts: readonly CombinedSubrequest[],
  ): Promise<CombinedReply> {
    await this.#journey();
    return this.#store.combination(verb, parts);
  }

  withLimitKeys(limitKeys: readonly string[]): Store {
    return {
      breakerOf: () => this.#breaker,
      run: async (key, declared, requests, now, batchId) => {
        await this.#journey();
        return this.#store.runBatch(key, declared, requests, now, limitKeys, batchId);
      },
      location: (key) => this.#location(key, limitKeys),
    };
  }

  #location(key: string, limitKeys: readonly string[]): MemoryLocation {
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
