/** Determines how many processes share a limit, for `whenUnavailable: "local"`. */
import type { ProcessCounter } from "../../stores/process-counter.ts";

/** A function that returns the present number, 1 or more; or `"auto"`: the store counts the processes. */
export type Instances = (() => number) | "auto";

/**
 * Returns the counter of the processes; undefined where no count is needed.
 *
 * @throws TypeError if a count is needed and the store does not support it
 */
export function counterOf(
  { instances, whenUnavailable }: { instances?: Instances; whenUnavailable: string },
  store: { processes?(key: string): ProcessCounter },
  key: string,
): ProcessCounter | undefined {
  if (instances !== "auto") return undefined;
  if (store.processes === undefined) {
    throw new TypeError(
      'instances "auto" needs a store that counts processes, which this one does not: ' +
        "give a number of 1 or more, or a function that returns one",
    );
  }
  return whenUnavailable === "local" ? store.processes(key) : undefined;
}

/** @param counter counts the processes, with `"auto"` */
export function instancesOf(
  instances: Instances | undefined,
  counter: ProcessCounter | undefined,
): () => number {
  return typeof instances === "function" ? instances : () => counter?.count ?? 1;
}
