type End = (reason: unknown) => void;

const listening = new WeakMap<AbortSignal, Set<End>>();

/**
 * Calls `end` with the signal's reason when it is aborted, or now. All who wait for a signal share one
 * listener: a server has one signal for thousands, and Node warns of eleven listeners.
 *
 * @returns what ends the listening
 */
export function onAbort(signal: AbortSignal | undefined, end: End): () => void {
  if (signal?.aborted) end(signal.reason);
  if (signal === undefined || signal.aborted) return () => {};
  const ends = listening.get(signal) ?? listen(signal);
  ends.add(end);
  return () => void ends.delete(end);
}

/** What a promise comes to, or the signal's own reason as soon as that is aborted. */
export function untilAborted<T>(signal: AbortSignal | undefined, promise: Promise<T>): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const unlisten = onAbort(signal, reject);
    promise.then(resolve, reject).finally(unlisten);
  });
}

function listen(signal: AbortSignal): Set<End> {
  const ends = new Set<End>();
  listening.set(signal, ends);
  signal.addEventListener("abort", () => {
    for (const end of ends) end(signal.reason);
  });
  return ends;
}
