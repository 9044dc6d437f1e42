import { AbortGroups } from "../ground/abort-groups.ts";

type End = (reason: unknown) => void;

const ends = /* @__PURE__ */ new AbortGroups<End>((end, reason) => end(reason));

/**
 * Calls `end` with the signal's reason when it is aborted, or at once if it is. All callbacks of a
 * signal share one listener: a server has one signal for thousands of calls, and Node warns of
 * eleven listeners. Removing the last callback removes the listener, because Node keeps a signal
 * with a time-out alive while it has a listener.
 *
 * @returns a function that removes the callback
 */
export function onAbort(signal: AbortSignal | undefined, end: End): () => void {
  if (signal?.aborted) end(signal.reason);
  if (signal === undefined || signal.aborted) return () => {};
  ends.add(signal, end);
  return () => ends.delete(signal, end);
}

/**
 * Settles as the promise does, or rejects with the signal's own reason as soon as that is aborted.
 */
export function untilAborted<T>(signal: AbortSignal | undefined, promise: Promise<T>): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const unlisten = onAbort(signal, reject);
    promise.then(resolve, reject).finally(unlisten);
  });
}
