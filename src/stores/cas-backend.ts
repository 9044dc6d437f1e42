/** The contract of a backend for `casStore`, and the calls of a backend with checks of what it returns. */
import { checkFunction, show } from "../ground/check.ts";
import { toMicros, unixMicros } from "../ground/clock.ts";
import { readable } from "../ground/errors.ts";
import { StoreClock } from "./last-writes.ts";
import type { Saved } from "./state/bytes.ts";

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
   * Like `compareAndSet`, but only if the store's time is in a range. With this method a limiter need not
   * read a state that it wrote last itself. Only for a store that compares the bytes of `before`.
   *
   * @param before the object that was `after` in an earlier call
   * @param fromMs the earliest time, ms of Unix time as from `now`; `-Infinity`: any
   * @param untilMs the latest time; `Infinity`: any
   * @returns true if the bytes were replaced; false: other bytes, or another time
   */
  compareAndSetWithin?(
    key: string,
    before: Uint8Array,
    after: Uint8Array,
    lifeMs: number,
    fromMs: number,
    untilMs: number,
  ): Promise<boolean>;
  /**
   * Returns the time of the store's own clock: ms of Unix time, preferably with fractions. Absent: each
   * process uses the clock of its machine, and these clocks must agree.
   */
  now?(): Promise<number>;
  /**
   * Returns the results of `get` and `now` together, for a store that can do both in one call. A limiter then
   * calls it instead of the two. Only with `now`.
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
export class ContractError extends TypeError {}

/** The backend threw instead of returning a promise. */
class ThrownError extends Error {}

/** The times at which a write is valid: from and until, microseconds of Unix time. */
export type TimeRange = readonly [number, number];

export const ANY_TIME: TimeRange = [-Infinity, Infinity];

export class CheckedBackend {
  /** The store's clock as the last calls have shown it; not read if `hasClock` is false. */
  readonly clock = new StoreClock();
  readonly #backend: CasBackend;

  /** @throws TypeError that names the function that the backend lacks */
  constructor(backend: CasBackend) {
    const { get, compareAndSet, ...optional } = methodsOf(backend);
    checkFunction("backend.get", get);
    checkFunction("backend.compareAndSet", compareAndSet);
    if (optional.getWithTime !== undefined) checkFunction("backend.now", optional.now);
    for (const [name, method] of Object.entries(optional)) {
      if (method !== undefined) checkFunction(`backend.${name}`, method);
    }
    this.#backend = backend;
  }

  get hasClock(): boolean {
    return this.#backend.now !== undefined;
  }

  get comparesTime(): boolean {
    return this.#backend.compareAndSetWithin !== undefined;
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

  async get(key: string): Promise<Uint8Array | undefined> {
    const call = () => `get(${show(key)})`;
    return checkBytes(call, await promised(call, () => this.#backend.get(key)));
  }

  /** Reads the state, and the time, microseconds, unless the caller has stated it. */
  async read(key: string, now: number | undefined): Promise<[Uint8Array | undefined, number]> {
    const backend = this.#backend;
    if (now !== undefined || backend.getWithTime === undefined) {
      return Promise.all([this.get(key), now ?? this.#now(key)]);
    }
    const call = () => `getWithTime(${show(key)})`;
    const read: unknown = await promised(call, () => backend.getWithTime?.(key));
    const { bytes, nowMs } = Object(read) as { bytes?: unknown; nowMs?: unknown };
    return [
      checkBytes(() => `the bytes of ${call()}`, bytes),
      this.#checkTime(() => `the nowMs of ${call()}`, nowMs),
    ];
  }

  /** @param range for a write without a read: the times at which it is valid */
  async compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    { bytes, lifeMs }: Pick<Saved, "bytes" | "lifeMs">,
    range: TimeRange | undefined,
  ): Promise<boolean> {
    const backend = this.#backend;
    const name = range === undefined ? "compareAndSet" : "compareAndSetWithin";
    const call = () => `${name}(${show(key)}, …)`;
    const isSet: unknown = await promised(call, () => {
      if (before === undefined || range === undefined) {
        return backend.compareAndSet(key, before, bytes, lifeMs);
      }
      const [from, until] = range;
      return backend.compareAndSetWithin?.(key, before, bytes, lifeMs, from / 1000, until / 1000);
    });
    if (typeof isSet === "boolean") return isSet;
    const got = show(isSet);
    throw new ContractError(`${call()} of the backend must answer true or false, got ${got}`);
  }

  /** Microseconds. */
  async #now(key: string): Promise<number> {
    const { now } = this.#backend;
    if (now === undefined) return unixMicros();
    const call = () => `now() for key ${show(key)}`;
    return this.#checkTime(call, await promised(call, () => now.call(this.#backend)));
  }

  /** @returns microseconds */
  #checkTime(call: () => string, ms: unknown): number {
    if (typeof ms === "number" && ms >= 0 && ms < LAST_MS) {
      const micros = toMicros(ms);
      this.clock.read(micros);
      return micros;
    }
    throw new ContractError(
      `${call()} of the backend must answer ms of Unix time, a number from 0 to ${LAST_MS}, got ${show(ms)}`,
    );
  }
}

/** The methods of a backend; they may be those of its class. */
function methodsOf(backend: CasBackend): { [Name in keyof CasBackend]: unknown } {
  const { get, compareAndSet, compareAndSetWithin, now, getWithTime, isPermanent } = Object(
    backend,
  ) as CasBackend;
  return { get, compareAndSet, compareAndSetWithin, now, getWithTime, isPermanent };
}

function checkBytes(call: () => string, bytes: unknown): Uint8Array | undefined {
  if (bytes === undefined || bytes === null) return undefined;
  // not by `instanceof`: test runners give each file its own globals
  if (Object.prototype.toString.call(bytes) === "[object Uint8Array]") return bytes as Uint8Array;
  throw new ContractError(
    `${call()} of the backend must answer a Uint8Array, or undefined where there is nothing, got ${show(bytes)}`,
  );
}

/** Calls the backend; an exception, or a result that is not a promise, becomes a rejection. */
async function promised<T>(call: () => string, run: () => Promise<T> | undefined): Promise<T> {
  let promise: unknown;
  try {
    promise = run();
  } catch (cause) {
    throw new ThrownError(`${call()} of the backend threw: ${readable(cause).message}`, { cause });
  }
  try {
    const isPromise = typeof (Object(promise) as Partial<Promise<T>>).then === "function";
    if (isPromise) return await (promise as Promise<T>);
  } catch (reason) {
    throw readable(reason);
  }
  throw new ContractError(`${call()} of the backend must return a promise, got ${show(promise)}`);
}
