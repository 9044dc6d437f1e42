import type { Clock } from "../../clock.ts";

/** Resolves after so many ms, or rejects with the signal's own reason. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.wakeAt(clock.now() + ms, () => {
      signal?.removeEventListener("abort", abort);
      resolve();
    });
    signal?.addEventListener("abort", abort, { once: true });
  });
}
