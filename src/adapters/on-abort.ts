type End = (reason: unknown) => void;

/** Who waits for a signal, and what ends the listening. */
interface Group {
  readonly ends: Set<End>;
  unlisten(): void;
}

const groups = new WeakMap<AbortSignal, Group>();

/**
 * Calls `end` with the signal's reason when it is aborted, or now. All who wait for a signal share one
 * listener: a server has one signal for thousands, and Node warns of eleven listeners. The last one
 * takes it away: Node keeps a signal with a time-out alive while somebody listens.
 *
 * @returns what ends the listening
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

/** What a promise comes to, or the signal's own reason as soon as that is aborted. */
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
