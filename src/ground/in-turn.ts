import type { MaybePromise } from "./maybe-promise.ts";
import type { Amount } from "./permits.ts";

/** What is changed by one task at a time. */
export interface Exclusive {
  /** The last of its tasks that has not ended; undefined: there is none. */
  underWay?: Promise<void> | undefined;
  /** What the last of its tasks settles, if that is a settlement that has not begun. */
  next?: { used: Amount } | undefined;
}

/** Runs the task at once, or when the tasks before it have ended, whether they have failed or not. */
export async function inTurn(of: Exclusive, task: () => MaybePromise<void>): Promise<void> {
  const answer = of.underWay === undefined ? task() : of.underWay.then(task, task);
  of.underWay = answer as Promise<void> | undefined;
  try {
    await answer;
  } finally {
    if (of.underWay === answer) of.underWay = undefined;
  }
}

/**
 * Settles in turn. Settlements that wait for their turn become one, so that many of them take two trips: what the last one
 * says of each policy counts.
 */
export function settleInTurn(
  of: Exclusive,
  used: Amount,
  settle: (used: Amount) => MaybePromise<void>,
): MaybePromise<void> {
  if (of.next !== undefined) {
    of.next.used = merged(of.next.used, used);
    return of.underWay;
  }
  const next = { used };
  of.next = next;
  return inTurn(of, () => {
    if (of.next === next) of.next = undefined;
    return settle(next.used);
  });
}

function merged(before: Amount, after: Amount): Amount {
  // both have one shape
  const earlier = before as readonly (number | undefined)[];
  return typeof after === "number" ? after : after.map((permits, i) => permits ?? earlier[i]);
}

/** Resolves when all have ended; rejects then, if one of them has. */
export async function allEnded(answers: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(answers);
  await Promise.all(answers);
}
