import type { Clock } from "smooth-limiter";

/** How long others may take to answer. */
export interface Deadline {
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/**
 * Rejects with a TimeoutError if there is no answer in time.
 *
 * @param what stands before the message
 */
export async function within<T>(
  answer: PromiseLike<T>,
  { timeoutMs, clock }: Deadline,
  what = "",
): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    const timer = clock.wakeAt(clock.now() + timeoutMs, () =>
      reject(new DOMException(`${what}no answer within ${timeoutMs} ms`, "TimeoutError")),
    );
    cancel = () => timer.cancel();
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    cancel();
  }
}
