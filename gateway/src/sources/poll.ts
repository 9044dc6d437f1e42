import { type Checks, number } from "../ground/check.ts";

/** The longest time that a timer can sleep, with room for the jitter. */
const LONGEST_PERIOD_MS = 1e9;

export const period = number(
  `a number of ms above 0, at most ${LONGEST_PERIOD_MS}`,
  (value) => value > 0 && value <= LONGEST_PERIOD_MS,
);

/** How a remote source is asked. */
export interface PollOptions {
  /** How often to ask, ms, give or take a tenth; above 0, at most 1e9. Default 30 000. */
  readonly everyMs?: number | undefined;
  /** How long a reply may take, to its last byte, ms; above 0, at most 1e9. Default 5000. */
  readonly timeoutMs?: number | undefined;
}

export const POLL_OPTIONS: Checks<PollOptions> = { everyMs: period, timeoutMs: period };

export const EVERY_MS = 30_000;
export const TIMEOUT_MS = 5000;

/**
 * Calls `look` repeatedly. Each pause is up to a tenth shorter or longer, so that instances that
 * were started together do not ask at the same time. Does not keep the process alive.
 *
 * @returns a function that ends it
 */
export function poll(look: () => void, everyMs: number): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const sleep = () => {
    const ms = everyMs * (0.9 + 0.2 * Math.random());
    timer = setTimeout(() => {
      sleep();
      look();
    }, ms);
    // a number in browsers and some edge runtimes
    (timer as { unref?(): void }).unref?.();
  };
  sleep();
  return () => clearTimeout(timer);
}

/**
 * Settles as `ask` does, or rejects when the result is late or the signal is aborted, even if `ask`
 * ignores its own signal.
 *
 * @param signal aborted when the result is not needed any more
 * @param ask receives a signal that is aborted then, or when the result is late
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
