import PQueue from "p-queue";
import type { AsyncContext } from "./job-heap.ts";

interface AsyncHooks {
  readonly AsyncResource: new (type: string) => AsyncContext;
}

/** No import: a browser could not resolve it. */
const { process } = globalThis as {
  process?: { getBuiltinModule?: (name: string) => AsyncHooks | undefined };
};
const hooks = process?.getBuiltinModule?.("node:async_hooks");
/** PQueue 10, an EventTarget, restores the context of a job itself. */
const isOurs = hooks !== undefined && !(PQueue.prototype instanceof EventTarget);

/** The caller's async context, for a job to run in; `undefined` where there is none to restore. */
export function asyncContext(): AsyncContext | undefined {
  return isOurs ? new hooks.AsyncResource("PacedQueueJob") : undefined;
}
