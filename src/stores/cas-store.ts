/**
 * Every algorithm on anything that can compare and set: read the state, run the requests on it in
 * this process, write the next state if the state is still the one that was read.
 *
 * A lost race (another process wrote in between) is run again on the newer state, after a random and
 * growing pause, until the limiter's `timeoutMs` is over. Refusals and peeks write nothing.
 *
 * A write may take place although its reply is lost. The state is then read once more: where it holds
 * the number of this trip the write took place, and the answer that was computed for it holds, so no
 * permits are taken twice. Where it does not, the caller gets the backend's error.
 */
import { checkFunction, show } from "../check.ts";
import { toMicros, unixMicros } from "../clock.ts";
import { Breaker } from "./breaker.ts";
import { Frame, type FrameOptions } from "./frame.ts";
import { decodeState, type Saved, StateError } from "./state-bytes.ts";
import type { Store, StoreReply, StoreRequest } from "./store.ts";
import { LostReplyError, type Trip } from "./trip.ts";

/** Pauses after a lost race are up to 1 ms, then twice that, and so on up to this. */
const LONGEST_PAUSE_MS = 64;
/** How far the clocks of processes may be apart, microseconds. */
const TOLERANCE = 1_000_000;
/** Instants of a state are counted from a base of 32 bits, in units of 2^24 microseconds. */
const LAST_MS = 2 ** 56 / 1000;

/**
 * What a limiter needs of a database or service: two operations on bytes by key. `docs/stores.md`
 * says what each must guarantee, and shows complete backends.
 */
export interface CasBackend {
  /** The bytes under the key; undefined (or null) where there are none, or where they have expired. */
  get(key: string): Promise<Uint8Array | null | undefined>;
  /**
   * Replaces the bytes under the key in one atomic step, if they still are those of before.
   *
   * @param before what `get` gave, the very same object; undefined: there must be nothing
   * @param after what is to be there from now on
   * @param lifeMs for how long it is to be kept, ms from now, at least; `Infinity`: until it is replaced
   * @returns true: replaced; false: there was something else, and nothing has changed
   */
  compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean>;
  /**
   * The time of the store's own clock: ms of Unix time, fractions are welcome. Absent: each process
   * goes by the clock of its machine, and these must agree.
   */
  now?(): Promise<number>;
  /**
   * Whether an error that the backend has thrown comes from a store that is there, so that waiting
   * and trying again do not help: missing rights, a table that does not exist. Absent: none does.
   */
  isPermanent?(error: unknown): boolean;
}

/** The backend has broken its contract, or something else has written to the key. */
class ContractError extends TypeError {}

/** The backend threw instead of returning a promise. */
class ThrownError extends Error {}

/**
 * A store for `StoreRateLimiter` and `StoreLimiter`, over anything that can compare and set.
 *
 * @param backend `get`, `compareAndSet`, and perhaps `now` and `isPermanent`: see `CasBackend`
 * @returns the store, for any number of limiters; the backend is not asked before their first call
 * @throws TypeError that names what the backend lacks
 * @example
 * const store = casStore({
 *   get: (key) => table.read(key),
 *   compareAndSet: (key, before, after, lifeMs) => table.replace(key, before, after, lifeMs),
 * });
 * const limiter = StoreRateLimiter.create(store, "github", 5);
 */
export function casStore(backend: CasBackend): Store {
  const { get, compareAndSet, now, isPermanent } = Object(backend) as Partial<CasBackend>;
  checkFunction("backend.get", get);
  checkFunction("backend.compareAndSet", compareAndSet);
  if (now !== undefined) checkFunction("backend.now", now);
  if (isPermanent !== undefined) checkFunction("backend.isPermanent", isPermanent);
  return new CasStore(backend, [], new Breaker());
}

class CasStore implements Store {
  readonly #backend: CasBackend;
  readonly #limitKeys: readonly string[];
  /** All keys of a backend go away together. */
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
    trip?: Trip,
    deadlineMs = Infinity,
  ): Promise<StoreReply> {
    const isStoreTime = now === undefined && this.#backend.now !== undefined;
    /** That of the last write that was tried. */
    let reply: StoreReply | undefined;
    for (let races = 0; ; races++) {
      const [saved, limits, time] = await Promise.all([
        this.#get(key),
        this.#limits(),
        now ?? this.#now(key),
      ]);
      // the backend has said no and has written nevertheless: its client sent the request twice
      if (reply !== undefined && holds(saved, trip)) return reply;
      if (performance.now() >= deadlineMs) throw tooLate(key, races);
      // what a caller says of the time holds for the first state that it meets
      const tolerance = now === undefined || races > 0 ? TOLERANCE : 0;
      const options = { declared, now: time, isStoreTime, tolerance, saved, limits };
      const ran = runFrame(key, options, requests, trip);
      if (ran.next === undefined) return ran.reply;
      reply = ran.reply;
      if (await this.#write(key, saved, ran.next, trip)) return reply;
      const pauseMs = Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** races);
      if (performance.now() + pauseMs >= deadlineMs) throw tooLate(key, races + 1);
      await pause(pauseMs);
    }
  }

  /** @returns whether it was written, found out by another look where the backend does not say */
  async #write(
    key: string,
    before: Uint8Array | undefined,
    next: Saved,
    trip: Trip | undefined,
  ): Promise<boolean> {
    try {
      return await this.#compareAndSet(key, before, next);
    } catch (error) {
      const saved = await this.#get(key).catch(() => undefined);
      if (holds(saved, trip)) return true;
      throw error;
    }
  }

  async #get(key: string): Promise<Uint8Array | undefined> {
    const call = `get(${show(key)})`;
    const bytes = await promised(call, () => this.#backend.get(key));
    if (bytes === undefined || bytes === null) return undefined;
    // not by `instanceof`: test runners give each file its own globals
    if (Object.prototype.toString.call(bytes) === "[object Uint8Array]") return bytes;
    throw new ContractError(
      `${call} of the backend must answer a Uint8Array, or undefined where there is nothing, got ${show(bytes)}`,
    );
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
    const ms = await promised(call, () => now.call(this.#backend));
    if (typeof ms === "number" && ms >= 0 && ms < LAST_MS) return toMicros(ms);
    throw new ContractError(
      `${call} of the backend must answer ms of Unix time, a number from 0 to ${LAST_MS}, got ${show(ms)}`,
    );
  }

  #limits(): Promise<(string | undefined)[]> {
    const texts = this.#limitKeys.map(async (key) => {
      const bytes = await this.#get(key);
      return bytes && new TextDecoder().decode(bytes);
    });
    return Promise.all(texts);
  }
}

/** What a call of the backend comes to, whatever it does: an exception is a rejection. */
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

/** Whether this very trip was the last of its caller that was written. */
function holds(saved: Uint8Array | undefined, trip: Trip | undefined): boolean {
  if (saved === undefined || trip === undefined) return false;
  try {
    const { trips } = decodeState(saved);
    return trips.some(({ caller, number }) => caller === trip.caller && number === trip.number);
  } catch {
    return false;
  }
}

/** @returns the reply, and the next state unless it is the same */
function runFrame(
  key: string,
  options: FrameOptions,
  requests: readonly StoreRequest[],
  trip: Trip | undefined,
): { reply: StoreReply; next: Saved | undefined } {
  try {
    const frame = new Frame(options);
    if (frame.hasRun(trip)) throw new LostReplyError();
    const reply = frame.run(requests);
    return { reply, next: frame.changed ? frame.save(trip) : undefined };
  } catch (error) {
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
