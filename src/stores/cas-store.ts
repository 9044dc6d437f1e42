/**
 * Runs every algorithm on any backend that can compare and set: it reads the state, runs the requests on
 * it in this process, and writes the next state if the state is still the one that was read.
 *
 * After a lost race (another process wrote in between) the requests run again on the newer state, after a
 * random and growing pause, until the limiter's `timeoutMs` is over. Rejections and peeks write nothing.
 *
 * A write may take place although its reply is lost. The state is then read once more. If it contains the
 * number of this batch, the write took place and the computed answer is valid, so no permits are taken
 * twice. Otherwise the caller gets the backend's error.
 */
import { checkFunction, show } from "../ground/check.ts";
import { toMicros, unixMicros } from "../ground/clock.ts";
import { type BatchId, LostReplyError } from "./batch-id.ts";
import { Breaker } from "./breaker.ts";
import { Frame, type FrameOptions } from "./frame.ts";
import { decodeState, type Saved, StateError, TooLongError } from "./state-bytes.ts";
import type { Store, StoreReply, StoreRequest } from "./store.ts";

/** Pauses after a lost race are up to 1 ms, then twice that, and so on up to this. */
const LONGEST_PAUSE_MS = 64;
/** The largest accepted difference between the clocks of processes, microseconds. */
const TOLERANCE = 1_000_000;
/** The latest time, ms: the base of a state's instants has 32 bits, in units of 2^24 microseconds. */
const LAST_MS = 2 ** 56 / 1000;

/**
 * The operations that a limiter needs of a database or service: two on bytes by key. `docs/stores.md`
 * specifies what each must guarantee, and shows complete backends.
 */
export interface CasBackend {
  /** Returns the bytes under the key; undefined (or null) if there are none or they have expired. */
  get(key: string): Promise<Uint8Array | null | undefined>;
  /**
   * Replaces the bytes under the key in one atomic step, if they are still equal to `before`.
   *
   * @param before the object that `get` returned; undefined: the key must have no value
   * @param after the new bytes
   * @param lifeMs how long the bytes must be kept at least, ms from now; `Infinity`: until they are replaced
   * @returns true if the bytes were replaced; false if there were other bytes, which have not changed
   */
  compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean>;
  /**
   * Returns the time of the store's own clock: ms of Unix time, preferably with fractions. Absent: each
   * process uses the clock of its machine, and these clocks must agree.
   */
  now?(): Promise<number>;
  /**
   * Returns the results of `get` and `now` together, for a store that can answer both in one call: a limiter
   * then makes this call where it would make those two. Only with `now`.
   */
  getWithTime?(key: string): Promise<{
    readonly bytes: Uint8Array | null | undefined;
    readonly nowMs: number;
  }>;
  /**
   * Whether an error that the backend has thrown comes from a store that is available, so that a retry
   * does not help: missing rights, a table that does not exist. Absent: no error does.
   */
  isPermanent?(error: unknown): boolean;
}

/** The backend has broken its contract, other code has written to the key, or a state is too large. */
class ContractError extends TypeError {}

/** The backend threw instead of returning a promise. */
class ThrownError extends Error {}

/**
 * Creates a store for `StoreRateLimiter` and `StoreLimiter` over any backend that can compare and set.
 *
 * @param backend `get`, `compareAndSet`, and optionally `now` and `isPermanent`: see `CasBackend`
 * @returns the store, for any number of limiters; it does not call the backend before their first call
 * @throws TypeError that names the function that the backend lacks
 * @example
 * const store = casStore({
 *   get: (key) => table.read(key),
 *   compareAndSet: (key, before, after, lifeMs) => table.replace(key, before, after, lifeMs),
 * });
 * const limiter = StoreRateLimiter.create(store, "github", 5);
 */
export function casStore(backend: CasBackend): Store {
  const { get, compareAndSet, now, getWithTime, isPermanent } = Object(
    backend,
  ) as Partial<CasBackend>;
  checkFunction("backend.get", get);
  checkFunction("backend.compareAndSet", compareAndSet);
  if (now !== undefined || getWithTime !== undefined) checkFunction("backend.now", now);
  if (getWithTime !== undefined) checkFunction("backend.getWithTime", getWithTime);
  if (isPermanent !== undefined) checkFunction("backend.isPermanent", isPermanent);
  return new CasStore(backend, [], new Breaker());
}

class CasStore implements Store {
  readonly #backend: CasBackend;
  readonly #limitKeys: readonly string[];
  /** One for all keys: those of one backend become unavailable together. */
  readonly #breaker: Breaker;

  constructor(backend: CasBackend, limitKeys: readonly string[], breaker: Breaker) {
    this.#backend = backend;
    this.#limitKeys = limitKeys;
    this.#breaker = breaker;
  }

  withLimitKeys(limitKeys: readonly string[]): Store {
    return new CasStore(this.#backend, limitKeys, this.#breaker);
  }

  breakerOf(): Breaker {
    return this.#breaker;
  }

  isPermanent(error: unknown): boolean {
    if (error instanceof ContractError) return true;
    try {
      const own = error instanceof ThrownError ? error.cause : error;
      return this.#backend.isPermanent?.(own) === true;
    } catch {
      return false;
    }
  }

  async run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    batchId?: BatchId,
    deadlineMs = Infinity,
  ): Promise<StoreReply> {
    const isStoreTime = now === undefined && this.#backend.now !== undefined;
    /** The reply that belongs to the last attempted write. */
    let reply: StoreReply | undefined;
    for (let races = 0; ; races++) {
      const [[saved, time], limits] = await Promise.all([this.#read(key, now), this.#limits()]);
      // the backend returned false but has written: its client sent the request twice
      if (reply !== undefined && holds(saved, batchId)) return reply;
      if (performance.now() >= deadlineMs) throw tooLate(key, races);
      // the caller's `now` is exact for the first state that was read; a later state may be newer
      const tolerance = now === undefined || races > 0 ? TOLERANCE : 0;
      const options = { declared, now: time, isStoreTime, tolerance, saved, limits };
      const ran = runFrame(key, options, requests, batchId);
      if (ran.next === undefined) return ran.reply;
      reply = ran.reply;
      if (await this.#write(key, saved, ran.next, batchId)) return reply;
      const pauseMs = Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** races);
      if (performance.now() + pauseMs >= deadlineMs) throw tooLate(key, races + 1);
      await pause(pauseMs);
    }
  }

  /** @returns whether the state was written; if the write fails, the state is read again to find out */
  async #write(
    key: string,
    before: Uint8Array | undefined,
    next: Saved,
    batchId: BatchId | undefined,
  ): Promise<boolean> {
    try {
      return await this.#compareAndSet(key, before, next);
    } catch (error) {
      const saved = await this.#get(key).catch(() => undefined);
      if (holds(saved, batchId)) return true;
      throw error;
    }
  }

  /** Reads the state, and the time unless the caller has stated it. */
  async #read(key: string, now: number | undefined): Promise<[Uint8Array | undefined, number]> {
    const backend = this.#backend;
    if (now !== undefined || backend.getWithTime === undefined) {
      return Promise.all([this.#get(key), now ?? this.#now(key)]);
    }
    const call = `getWithTime(${show(key)})`;
    const read: unknown = await promised(call, async () => backend.getWithTime?.(key));
    const { bytes, nowMs } = Object(read) as { bytes?: unknown; nowMs?: unknown };
    return [checkBytes(`the bytes of ${call}`, bytes), checkTime(`the nowMs of ${call}`, nowMs)];
  }

  async #get(key: string): Promise<Uint8Array | undefined> {
    const call = `get(${show(key)})`;
    return checkBytes(call, await promised(call, () => this.#backend.get(key)));
  }

  async #compareAndSet(key: string, before: Uint8Array | undefined, next: Saved): Promise<boolean> {
    const { bytes, lifeMs } = next;
    const call = `compareAndSet(${show(key)}, …)`;
    const isSet = await promised(call, () =>
      this.#backend.compareAndSet(key, before, bytes, lifeMs),
    );
    if (typeof isSet === "boolean") return isSet;
    throw new ContractError(`${call} of the backend must answer true or false, got ${show(isSet)}`);
  }

  /** Microseconds. */
  async #now(key: string): Promise<number> {
    const { now } = this.#backend;
    if (now === undefined) return unixMicros();
    const call = `now() for key ${show(key)}`;
    return checkTime(call, await promised(call, () => now.call(this.#backend)));
  }

  #limits(): Promise<(string | undefined)[]> {
    const texts = this.#limitKeys.map(async (key) => {
      const bytes = await this.#get(key);
      return bytes && new TextDecoder().decode(bytes);
    });
    return Promise.all(texts);
  }
}

function checkBytes(call: string, bytes: unknown): Uint8Array | undefined {
  if (bytes === undefined || bytes === null) return undefined;
  // not by `instanceof`: test runners give each file its own globals
  if (Object.prototype.toString.call(bytes) === "[object Uint8Array]") return bytes as Uint8Array;
  throw new ContractError(
    `${call} of the backend must answer a Uint8Array, or undefined where there is nothing, got ${show(bytes)}`,
  );
}

/** @returns microseconds */
function checkTime(call: string, ms: unknown): number {
  if (typeof ms === "number" && ms >= 0 && ms < LAST_MS) return toMicros(ms);
  throw new ContractError(
    `${call} of the backend must answer ms of Unix time, a number from 0 to ${LAST_MS}, got ${show(ms)}`,
  );
}

/** Calls the backend; an exception, or a result that is not a promise, becomes a rejection. */
async function promised<T>(call: string, run: () => Promise<T>): Promise<T> {
  let promise: unknown;
  try {
    promise = run();
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new ThrownError(`${call} of the backend threw: ${text}`, { cause });
  }
  if (typeof (Object(promise) as Partial<Promise<T>>).then === "function") {
    return promise as Promise<T>;
  }
  throw new ContractError(`${call} of the backend must return a promise, got ${show(promise)}`);
}

/** Whether this batch is the last of its caller that was written. */
function holds(saved: Uint8Array | undefined, batchId: BatchId | undefined): boolean {
  if (saved === undefined || batchId === undefined) return false;
  try {
    const { batchIds } = decodeState(saved);
    return batchIds.some(
      ({ caller, number }) => caller === batchId.caller && number === batchId.number,
    );
  } catch {
    return false;
  }
}

/** @returns the reply, and the next state if it has changed */
function runFrame(
  key: string,
  options: FrameOptions,
  requests: readonly StoreRequest[],
  batchId: BatchId | undefined,
): { reply: StoreReply; next: Saved | undefined } {
  try {
    const frame = new Frame(options);
    const reply = frame.run(requests, batchId);
    return { reply, next: frame.changed ? frame.save(batchId) : undefined };
  } catch (error) {
    if (error instanceof TooLongError) throw new ContractError(error.message, { cause: error });
    if (options.saved === undefined || error instanceof LostReplyError) throw error;
    const cause = error instanceof StateError ? error : new StateError(options.saved, error);
    throw new ContractError(
      `key ${show(key)} holds ${cause.message}; remove it, or choose another name or prefix`,
      { cause },
    );
  }
}

function tooLate(key: string, races: number): Error {
  return new Error(
    `key ${show(key)} could not be written in time: other writers came first (${races} times)`,
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
