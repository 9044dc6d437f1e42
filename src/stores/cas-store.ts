/**
 * Runs every algorithm on any backend that can compare and set: it reads the state, runs the requests on
 * it in this process, and writes the next state if the state is still the one that was read.
 *
 * After a lost race (another process wrote in between) the requests run again on the newer state, after a
 * random and growing pause, until the limiter's `timeoutMs` is over. Rejections and peeks write nothing.
 *
 * If the backend has `compareAndSetWithin`, a key that only this process writes takes one call: the requests run
 * on the state that this process wrote last, at an estimate of the store's time. The store compares both with its
 * own. If they differ, nothing is written, and the requests run again on the state that is then read.
 *
 * A write may take place although its reply is lost. The state is then read once more. If it contains the
 * number of this batch, the write took place and the computed answer is valid, so no permits are taken
 * twice. Otherwise the caller gets the backend's error.
 */
import { show } from "../ground/check.ts";
import { unixMicros } from "../ground/clock.ts";
import { type BatchId, LostReplyError } from "./batch-id.ts";
import { Breaker } from "./breaker.ts";
import {
  ANY_TIME,
  type CasBackend,
  CheckedBackend,
  ContractError,
  type TimeRange,
} from "./cas-backend.ts";
import { LastWrites } from "./last-writes.ts";
import { exchange } from "./ledger.ts";
import { decodeState, type Saved, StateError, TooLongError } from "./state/bytes.ts";
import type { Store, StoreReply, StoreRequest } from "./store.ts";
import { StateTransition, type TransitionOptions } from "./transition.ts";

/** Pauses after a lost race are up to 1 ms, then twice that, and so on up to this. */
const LONGEST_PAUSE_MS = 64;
/** A message to a ledger is given up after so many lost races: the next one follows anyway. */
const MOST_RACES = 16;
/**
 * The largest accepted difference between the clocks of processes, and between the time of a decision and that of
 * its write without a read, microseconds.
 */
const TOLERANCE = 1_000_000;

/**
 * Creates a store for `StoreRateLimiter` and `StoreLimiter` over any backend that can compare and set.
 *
 * @param backend `get` and `compareAndSet`, and methods that it may have: see `CasBackend`
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
  return new CasStore(new CheckedBackend(backend), [], new Breaker());
}

class CasStore implements Store {
  readonly #backend: CheckedBackend;
  readonly #limitKeys: readonly string[];
  /** One for all keys: those of one backend become unavailable together. */
  readonly #breaker: Breaker;
  readonly #lastWrites = new LastWrites();

  constructor(backend: CheckedBackend, limitKeys: readonly string[], breaker: Breaker) {
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
    return this.#backend.isPermanent(error);
  }

  async run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    batchId?: BatchId,
    deadlineMs = Infinity,
  ): Promise<StoreReply> {
    const isStoreTime = now === undefined && this.#backend.hasClock;
    const runOn = (known: Known, tolerance: number) =>
      runTransition(key, { declared, isStoreTime, tolerance, ...known }, requests, batchId);
    // the caller's `now` is exact for the first state; a later state may be newer
    let tolerance = now === undefined ? TOLERANCE : 0;
    /** The reply that belongs to the last attempted write. */
    let reply: StoreReply | undefined;
    const guess = this.#guess(key, now);
    if (guess !== undefined) {
      const { next, reply: guessed } = runOn(guess, tolerance);
      if (next !== undefined) {
        const range = isStoreTime ? ([guess.now, guess.now + TOLERANCE] as const) : ANY_TIME;
        if (await this.#write(key, guess.saved, next, batchId, range)) return guessed;
        reply = guessed;
        tolerance = TOLERANCE;
        this.#backend.clock.forget();
      }
      // a rejection has to be computed on the state that is in the store
      this.#lastWrites.doubt(key);
    }
    for (let races = 0; ; races++) {
      const known = await this.#read(key, now);
      const { saved } = known;
      // the backend returned false but has written: its client sent the request twice
      if (reply !== undefined && holds(saved, batchId)) return reply;
      if (performance.now() >= deadlineMs) throw tooLate(key, races);
      const ran = runOn(known, tolerance);
      if (ran.next === undefined) return ran.reply;
      if (await this.#write(key, saved, ran.next, batchId)) return ran.reply;
      reply = ran.reply;
      tolerance = TOLERANCE;
      const pauseMs = Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** races);
      if (performance.now() + pauseMs >= deadlineMs) throw tooLate(key, races + 1);
      await pause(pauseMs);
    }
  }

  async exchange(key: string, message: readonly string[]): Promise<string> {
    for (let races = 0; races < MOST_RACES; races++) {
      const [before, now] = await this.#backend.read(key, undefined);
      const text = before && new TextDecoder().decode(before);
      const { reply, record, lifeMs } = exchange(text, message, Math.floor(now / 1000));
      if (record === undefined) return reply;
      const bytes = new TextEncoder().encode(record);
      if (await this.#backend.compareAndSet(key, before, { bytes, lifeMs }, undefined))
        return reply;
      await pause(Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** races));
    }
    throw tooLate(key, MOST_RACES);
  }

  /** Returns the state that is probably in the store, and the time that it probably is there. */
  #guess(key: string, now: number | undefined): Known | undefined {
    const { comparesTime, hasClock, clock } = this.#backend;
    if (!comparesTime || this.#limitKeys.length > 0) return undefined;
    const last = this.#lastWrites.guess(key);
    const time = now ?? (hasClock ? clock.now : unixMicros());
    if (last === undefined || time === undefined) return undefined;
    return { saved: last.bytes, decoded: last.state, now: time, limits: [] };
  }

  /**
   * Writes the state if it is still `before`. If the write fails, the state is read again to find out whether it
   * was written.
   *
   * @param range the times at which a write without a read is valid; undefined: the state was read
   */
  async #write(
    key: string,
    before: Uint8Array | undefined,
    next: Saved,
    batchId: BatchId | undefined,
    range?: TimeRange,
  ): Promise<boolean> {
    try {
      if (!(await this.#backend.compareAndSet(key, before, next, range))) return false;
    } catch (error) {
      const saved = await this.#backend.get(key).catch(() => undefined);
      if (!holds(saved, batchId)) throw error;
    }
    this.#lastWrites.wrote(key, before, next);
    return true;
  }

  /** Reads the state, the limits, and the time unless the caller has stated it. */
  async #read(key: string, now: number | undefined): Promise<Known> {
    const [[saved, time], limits] = await Promise.all([
      this.#backend.read(key, now),
      Promise.all(this.#limitKeys.map((limitKey) => this.#limit(limitKey))),
    ]);
    return { saved, now: time, limits };
  }

  async #limit(key: string): Promise<string | undefined> {
    const bytes = await this.#backend.get(key);
    return bytes && new TextDecoder().decode(bytes);
  }
}

/** The state of a key, the time, microseconds, and the limits kept elsewhere. */
type Known = Required<Pick<TransitionOptions, "now" | "limits">> &
  Pick<TransitionOptions, "saved" | "decoded">;

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
function runTransition(
  key: string,
  options: TransitionOptions,
  requests: readonly StoreRequest[],
  batchId: BatchId | undefined,
): { reply: StoreReply; next: Saved | undefined } {
  try {
    const transition = new StateTransition(options);
    const reply = transition.run(requests, batchId);
    return { reply, next: transition.changed ? transition.save(batchId) : undefined };
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
  const why =
    races === 0 ? "the store was too slow to read it" : `other writers came first (${races} times)`;
  return new Error(`key ${show(key)} could not be written in time: ${why}`);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
