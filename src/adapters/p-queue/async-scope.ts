import PQueue from "p-queue";

interface Scope {
  runInAsyncScope<Result>(fn: () => Result): Result;
}

interface AsyncHooks {
  readonly AsyncResource: new (type: string, options: { triggerAsyncId: number }) => Scope;
}

/** Used where the platform has no async context to restore. */
class NoScope implements Scope {
  runInAsyncScope<Result>(fn: () => Result): Result {
    return fn();
  }
}

/** Read from `process` rather than imported: a browser could not resolve the import. */
const { process } = globalThis as {
  process?: { getBuiltinModule?: (name: string) => AsyncHooks | undefined };
};
const hooks = process?.getBuiltinModule?.("node:async_hooks");

/** Whether jobs have to restore their async context: PQueue 10, an EventTarget, does so itself. */
export const restoresScope = hooks !== undefined && !(PQueue.prototype instanceof EventTarget);

/** Keeps the async context in which it is created: Node's AsyncResource. */
export const AsyncScope = hooks?.AsyncResource ?? NoScope;

/** The arguments of each `AsyncScope`. A real trigger id would take 16 bytes for each job. */
export const SCOPE = ["PacedQueueJob", { triggerAsyncId: 0 }] as const;
