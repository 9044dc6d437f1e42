import PQueue from "p-queue";

interface Scope {
  runInAsyncScope<Result>(fn: () => Result): Result;
}

interface AsyncHooks {
  readonly AsyncResource: new (type: string, options: { triggerAsyncId: number }) => Scope;
}

/** Where there is no context to restore. */
class NoScope implements Scope {
  runInAsyncScope<Result>(fn: () => Result): Result {
    return fn();
  }
}

/** No import: a browser could not resolve it. */
const { process } = globalThis as {
  process?: { getBuiltinModule?: (name: string) => AsyncHooks | undefined };
};
const hooks = process?.getBuiltinModule?.("node:async_hooks");

/** Whether jobs are to restore a context: PQueue 10, an EventTarget, restores it itself. */
export const restoresScope = hooks !== undefined && !(PQueue.prototype instanceof EventTarget);

/** Remembers the async context in which it is made: Node's AsyncResource. */
export const AsyncScope = hooks?.AsyncResource ?? NoScope;

/** For each of them. A trigger that `async_hooks` may show would take 16 bytes a job. */
export const SCOPE = ["PacedQueueJob", { triggerAsyncId: 0 }] as const;
