type End = (reason: unknown) => void;

/** The callbacks of one signal, and a function that removes its listener. */
interface Group {
  readonly ends: Set<End>;
  unlisten(): void;
}

const groups = new WeakMap<AbortSignal, Group>();

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
  const { ends, unlisten } = groups.get(signal) ?? listen(signal);
  ends.add(end);
  return () => {
    if (ends.delete(end) && ends.size === 0) unlisten();
  };
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

function listen(signal: AbortSignal): Group {
  const ends = new Set<End>();
  const abort = () => {
    for (const end of ends) end(signal.reason);
  };
  const unlisten = () => {
    groups.delete(signal);
    signal.removeEventListener("abort", abort);
  };
  const group = { ends, unlisten };
  groups.set(signal, group);
  signal.addEventListener("abort", abort);
  return group;
}
