/** How many processes share a limit, which `whenUnavailable: "local"` has to know. */
import type { ProcessCounter } from "../../stores/process-counter.ts";

/** A number of 1 or more, as it is now; or the processes are counted through the store. */
export type Instances = (() => number) | "auto";

/**
 * What counts the processes; undefined: they need not be counted.
 *
 * @throws TypeError where they have to be and the store cannot
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

/** @param counter what counts them, where that is asked for */
export function instancesOf(
  instances: Instances | undefined,
  counter: ProcessCounter | undefined,
): () => number {
  return typeof instances === "function" ? instances : () => counter?.count ?? 1;
}
