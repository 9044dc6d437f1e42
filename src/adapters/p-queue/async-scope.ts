import PQueue from "p-queue";
import { builtinModule } from "../../ground/node-process.ts";

interface Scope {
  runInAsyncScope<Result>(fn: () => Result): Result;
}

interface AsyncHooks {
  readonly AsyncResource: new (type: string, triggerAsyncId: number) => Scope;
}

/** Used where the platform has no async context to restore. */
class NoScope implements Scope {
  runInAsyncScope<Result>(fn: () => Result): Result {
    return fn();
  }
}

const hooks = builtinModule<AsyncHooks>("node:async_hooks");

/** Whether jobs have to restore their async context: PQueue 10, an EventTarget, does so itself. */
export const restoresScope = hooks !== undefined && !(PQueue.prototype instanceof EventTarget);

/** Keeps the async context in which it is created: Node's AsyncResource. */
export const AsyncScope: AsyncHooks["AsyncResource"] = hooks?.AsyncResource ?? NoScope;

/** The type of each `AsyncScope`. */
export const SCOPE = "PacedQueueJob";
/** Its trigger id: a real one would take 16 bytes for each job. */
export const NO_TRIGGER = 0;
