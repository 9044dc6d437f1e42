import type { Clock } from "../../../src/ground/clock.ts";

/**
 * The outcome of a promise, and when it came by the clock, ms. `at` is undefined while it is
 * pending.
 */
export interface Watched<T> {
  at: number | undefined;
  value: T | undefined;
  error: unknown;
}

export function watch<T>(clock: Clock, promise: Promise<T>): Watched<T> {
  const watched: Watched<T> = { at: undefined, value: undefined, error: undefined };
  promise.then(
    (value) => Object.assign(watched, { at: clock.now(), value }),
    (error) => Object.assign(watched, { at: clock.now(), error }),
  );
  return watched;
}

/** When each promise was settled. */
export function instants(watched: readonly Watched<unknown>[]): (number | undefined)[] {
  return watched.map(({ at }) => at);
}

/** The error that it throws, at once or as a rejection. */
export async function failure(action: () => unknown): Promise<unknown> {
  try {
    await action();
  } catch (error) {
    return error;
  }
  throw new Error("it should have thrown");
}

/** Everything that is ready to run has run. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
