import { oncePerProcess } from "./copies.ts";

const renumberings = /* @__PURE__ */ oncePerProcess("renumberings", () => ({ count: 0 }));

/** Records that a limiter of this process got other numbers (`setRate`, `update`). */
export function noteRenumbering(): void {
  renumberings.count += 1;
}

/**
 * Returns how often limiters of this process got other numbers. A holder of prefetched permits
 * compares two counts to find out cheaply whether its limiter may have another pace.
 */
export function timesRenumbered(): number {
  return renumberings.count;
}
