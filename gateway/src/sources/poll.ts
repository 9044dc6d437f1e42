import { systemClock } from "smooth-limiter";
import { type Checks, number } from "../ground/check.ts";
import { within } from "../ground/within.ts";

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
export async function askInTime<T>(
  timeoutMs: number,
  what: string,
  signal: AbortSignal,
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const asking = new AbortController();
  let stop = () => {};
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
  });
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  try {
    const answer = Promise.race([ask(asking.signal), stopped]);
    return await within(answer, { timeoutMs, clock: systemClock }, `${what}: `);
  } catch (error) {
    asking.abort(error);
    throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
