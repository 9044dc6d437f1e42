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

/** The answer, or an error where none has come in time. */
export async function within<T>(ms: number, what: string, answer: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new DOMException(`${what}: no answer within ${ms} ms`, "TimeoutError");
    timer = setTimeout(() => reject(error), ms);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
