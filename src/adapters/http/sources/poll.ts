import { aboveZero, type Bound, checkNumber } from "../../../check.ts";

const period: Bound = {
  words: "a number of ms above 0, at most 1000000000",
  holds: (value) => aboveZero.holds(value) && value <= LONGEST_PERIOD_MS,
};

/** What a timer can sleep, with room for the jitter. */
const LONGEST_PERIOD_MS = 1e9;

export function checkPeriod(name: string, value: unknown): number {
  return checkNumber(name, value, period);
}

/**
 * Calls `look` every so often. Each pause is up to a tenth shorter or longer, so that a thousand
 * instances that were started together do not ask together. It keeps no process alive.
 *
 * @returns ends it
 */
export function poll(look: () => void, everyMs: number): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const sleep = () => {
    const ms = everyMs * (0.9 + 0.2 * Math.random());
    timer = setTimeout(() => {
      sleep();
      look();
    }, ms);
    timer.unref();
  };
  sleep();
  return () => clearTimeout(timer);
}

/**
 * An answer, or an error where none has come in time or nobody wants it any more: also of those who
 * do not look at their signal.
 *
 * @param signal aborted when nobody wants it any more
 * @param ask gets a signal that is aborted then, or when it is late
 */
export async function within<T>(
  ms: number,
  what: string,
  signal: AbortSignal,
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const asking = new AbortController();
  const late = new DOMException(`${what}: no answer within ${ms} ms`, "TimeoutError");
  const timer = setTimeout(() => asking.abort(late), ms);
  const stop = () => asking.abort(signal.reason);
  signal.addEventListener("abort", stop);
  const ended = new Promise<never>((_, reject) => {
    asking.signal.addEventListener("abort", () => reject(asking.signal.reason));
  });
  if (signal.aborted) stop();
  try {
    return await Promise.race([ask(asking.signal), ended]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}
