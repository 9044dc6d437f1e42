import type { MaybePromise } from "./maybe-promise.ts";

/** What is changed by one task at a time. */
export interface Exclusive {
  /** The last of its tasks that has not ended; undefined: there is none. */
  underWay: Promise<void> | undefined;
}

/** Runs the task at once, or when the tasks before it have ended, whether they have failed or not. */
export async function inTurn(of: Exclusive, task: () => MaybePromise<void>): Promise<void> {
  const answer = of.underWay === undefined ? task() : of.underWay.then(task, task);
  if (answer === undefined) return;
  of.underWay = answer;
  await answer.finally(() => {
    if (of.underWay === answer) of.underWay = undefined;
  });
}

/** Resolves when all have ended; rejects then, if one of them has. */
export async function allEnded(answers: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(answers);
  await Promise.all(answers);
}
