import type { Clock } from "../../ground/clock.ts";
import { onAbort } from "../on-abort.ts";

/** Resolves after `ms`, or rejects with the signal's own reason. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = clock.wakeAt(clock.now() + ms, () => {
      unlisten();
      resolve();
    });
    const unlisten = onAbort(signal, (reason) => {
      timer.cancel();
      unlisten();
      reject(reason);
    });
  });
}
