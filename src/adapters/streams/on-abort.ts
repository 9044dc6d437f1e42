type End = (reason: unknown) => void;

const listening = new WeakMap<AbortSignal, Set<End>>();

/**
 * Calls `end` with the signal's reason when it is aborted, or now. All streams of a signal share one
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

function listen(signal: AbortSignal): Set<End> {
  const ends = new Set<End>();
  listening.set(signal, ends);
  signal.addEventListener("abort", () => {
    for (const end of ends) end(signal.reason);
  });
  return ends;
}
