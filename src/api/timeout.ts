import { AbortGroups } from "../ground/abort-groups.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { LimiterError } from "../ground/errors.ts";
import { nextMacrotask } from "../ground/macrotask-gate.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";

/** The caller's time was over before the store was available again, or before its place was ready. */
export class WaitTimeoutError extends LimiterError {
  static readonly code = "WAIT_TIMEOUT";

  constructor() {
    super(WaitTimeoutError.code, "the time was over before the store was available", {});
  }
}

/** When a caller stops waiting for an answer. */
export interface StepOptions {
  readonly signal?: AbortSignal | undefined;
  /** ms; absent: never. */
  readonly timeoutMs?: number | undefined;
}

const signals = /* @__PURE__ */ new AbortGroups<(reason: unknown) => void>((stop, reason) =>
  stop(reason),
);

/**
 * Returns the answer, unless the signal or the time-out ends the wait before.
 *
 * @param undo gives back an answer that comes later
 * @param answerMs how long the answer may take although the time is over, ms: the time-out is for the wait for
 *   a store that is away, not for a request that is under way
 * @throws WaitTimeoutError, or the signal's own reason
 */
export function until<T>(
  answer: MaybePromise<T>,
  options: StepOptions,
  undo?: (late: T) => unknown,
  answerMs?: () => number,
): MaybePromise<T> {
  const { signal, timeoutMs = Infinity } = options;
  if (!(answer instanceof Promise) || (signal === undefined && timeoutMs === Infinity)) {
    return answer;
  }
  return firstOf([answer], options, undo, answerMs);
}

/** The same for the first of several answers; the others come too late. */
export function firstOf<T>(
  answers: readonly Promise<T>[],
  { signal, timeoutMs = Infinity }: StepOptions,
  undo: (late: T) => unknown = () => {},
  answerMs = () => 0,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const sinceMs = performance.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const end = () => {
      isOver = true;
      clearTimeout(timer);
      if (signal !== undefined) signals.delete(signal, stop);
    };
    const stop = (reason: unknown) => {
      end();
      reject(reason);
    };
    const expire = () => {
      if (isOver) return;
      const leftMs = sinceMs + answerMs() - performance.now();
      if (leftMs > 0) expireIn(leftMs);
      else stop(new WaitTimeoutError());
    };
    const expireIn = (ms: number) => {
      // answers in this process may be due in this tick: see MacrotaskGate
      if (ms <= LONGEST_TIMEOUT_MS)
        timer = setTimeout(() => nextMacrotask(expire), Math.max(0, ms));
    };
    for (const answer of answers) {
      const arrived = (value: T) => {
        if (isOver) return undo(value);
        end();
        return resolve(value);
      };
      answer.then(arrived).catch(stop);
    }
    if (signal?.aborted) {
      stop(signal.reason);
      return;
    }
    if (signal !== undefined) signals.add(signal, stop);
    expireIn(timeoutMs);
  });
}

/** Converts WaitTimeoutError to undefined. */
export function inTime<T>(answer: MaybePromise<T>): MaybePromise<T | undefined> {
  if (!(answer instanceof Promise)) return answer;
  return answer.catch((error: unknown) => {
    if (error instanceof WaitTimeoutError) return undefined;
    throw error;
  });
}
