/**
 * Takes from several limiters, or from none: a refused request changes nothing.
 *
 * Limiters that can be asked in one atomic step form a group: all that are in this process, and all
 * with their state on the same server (on Cluster: in the same slot). The order is:
 *
 * 1. Look at the local group. If it refuses, nothing is taken anywhere; the other groups are only
 *   looked at, so that the reported wait is the longest.
 * 2. If there is one other group, ask it and take from it in one step. If there are several, look
 *   at all first, and take only if all of them let the request pass.
 * 3. Take from the local group last, again in one step.
 *
 * So a refused request takes nothing, not even for the length of a round trip, with two exceptions.
 * In both, the steps of two requests interleave, and what was taken is refunded. A window that has ended meanwhile
 * does not get it back, but the next one, which so grants that much more:
 *
 * - Several remote groups: another request may take the last permits of one of them between the
 *   look and the take. For one round trip this request holds permits of the other groups.
 * - Local limiters beside remote ones: several requests may pass step 1 before one of them reaches
 *   step 3. Those that then find the local limiter used up have held remote permits for one round
 *   trip.
 */

import type { Decision } from "../api/limiter-api.ts";
import {
  type AtomicStep,
  type Check,
  localStep,
  longestAnswer,
  ScatteredError,
  type Subrequest,
} from "../api/participant.ts";
import { type StepOptions, until } from "../api/timeout.ts";
import { all, chain, type MaybePromise } from "../ground/maybe-promise.ts";
import { askInOrder } from "./fair.ts";

export interface Together {
  /**
   * All subrequests that are not optional let the request pass; after a take, all that pass were charged.
   */
  readonly passes: boolean;
  /** In the order of the subrequests; undefined for an optional subrequest that could not be asked. */
  readonly checks: readonly (Check | undefined)[];
}

interface Group {
  readonly steps: AtomicStep;
  readonly slot: string;
  readonly subrequests: Subrequest[];
  /** The index of each part in the whole request. */
  readonly at: number[];
}

/** The answer of one group; `error`: the group could not be asked. */
interface CheckAnswer {
  readonly group: Group;
  readonly checks: readonly (Check | undefined)[];
  readonly error?: unknown;
}

const NO_OPTIONS: StepOptions = {};

/** Takes from all limiters, or from none. */
export function takeTogether(
  subrequests: readonly Subrequest[],
  options = NO_OPTIONS,
): MaybePromise<Together> {
  return withGroups(subrequests, (groups) => takeGroups(subrequests, groups, options));
}

/** Returns what `takeTogether` would return, without taking anything. */
export function checkTogether(
  subrequests: readonly Subrequest[],
  options = NO_OPTIONS,
): MaybePromise<Together> {
  return withGroups(subrequests, (groups) =>
    chain(askAll("check", groups, options), (answers) => conclude(subrequests, answers)),
  );
}

/** Counts and publishes the refusal for each limiter that is a reason for it. */
export function reportRefusal(subrequests: readonly Subrequest[], { checks }: Together): void {
  subrequests.forEach(({ participant, permits, isOptional }, i) => {
    const check = checks[i];
    if (!isOptional && check?.passes === false) participant.refused(permits, check);
  });
}

/** Gives back what was taken, the last first. A failure costs permits and nothing else. */
export function undoAll(
  checks: readonly (Pick<Check, "taken"> | undefined)[],
): MaybePromise<unknown> {
  return all(checks.toReversed(), (check) => settled(() => check?.taken?.undo()));
}

/** Forms smaller groups and asks again if the participants turn out to be in several slots. */
function withGroups(
  subrequests: readonly Subrequest[],
  ask: (groups: readonly Group[]) => MaybePromise<Together>,
): MaybePromise<Together> {
  const together = ask(groupsOf(subrequests));
  if (!(together instanceof Promise)) return together;
  return together.catch((error: unknown) => {
    if (error instanceof ScatteredError) return ask(groupsOf(subrequests));
    throw error;
  });
}

function groupsOf(subrequests: readonly Subrequest[]): readonly Group[] {
  const groups: Group[] = [];
  subrequests.forEach((subrequest, i) => {
    const { steps, slot } = subrequest.participant;
    let group = groups.find((one) => one.steps === steps && one.slot === slot);
    if (group === undefined) {
      group = { steps, slot, subrequests: [], at: [] };
      groups.push(group);
    }
    group.subrequests.push(subrequest);
    group.at.push(i);
  });
  return groups;
}

function takeGroups(
  subrequests: readonly Subrequest[],
  groups: readonly Group[],
  options: StepOptions,
): MaybePromise<Together> {
  if (groups.length === 1) {
    return chain(askAll("take", groups, options), (answers) => conclude(subrequests, answers));
  }
  const here = groups.filter(({ steps }) => steps === localStep);
  const elsewhere = groups.filter(({ steps }) => steps !== localStep);
  return chain(askAll("check", here, options), (checks) => {
    if (!checks.every(isPassing)) {
      // a refusal is reported at once even while the store is unavailable
      const now = { ...options, timeoutMs: 0 };
      const checkAtAll = settled(() => askAll("check", elsewhere, now));
      return chain(checkAtAll, (others = []) =>
        conclude(subrequests, [...checks, ...(others as readonly CheckAnswer[])]),
      );
    }
    return chain(takeElsewhere(elsewhere, options), (taken) => {
      if (!taken.every(isPassing)) return conclude(subrequests, [...checks, ...taken]);
      return chain(askAll("take", here, options), (last) => {
        const answers = [...taken, ...last];
        if (last.every(isPassing)) return conclude(subrequests, answers);
        return chain(undoAnswers(taken, options), () => conclude(subrequests, answers));
      });
    });
  });
}

/** Takes from one group in a single step; looks at several groups first. */
function takeElsewhere(
  groups: readonly Group[],
  options: StepOptions,
): MaybePromise<readonly CheckAnswer[]> {
  if (groups.length === 1) return askAll("take", groups, options);
  return chain(askAll("check", groups, options), (checks) => {
    if (!checks.every(isPassing)) return checks;
    return chain(askAll("take", groups, options, true), (answers) => {
      if (answers.every(isPassing)) return answers;
      return chain(undoAnswers(answers, options), () => {
        const failed = answers.find(({ error }) => error !== undefined);
        if (failed !== undefined) throw failed.error;
        return answers;
      });
    });
  });
}

/** Gives back what was taken. A store that is away keeps no caller whose time is over. */
function undoAnswers(answers: readonly CheckAnswer[], options: StepOptions): MaybePromise<unknown> {
  const undone = undoAll(answers.flatMap(({ checks }) => checks));
  const participants = answers.flatMap(({ group }) =>
    group.subrequests.map(({ participant }) => participant),
  );
  return until(undone, options, undefined, () => longestAnswer(participants));
}

/**
 * @param keepsErrors whether an error is stored in its answer, so that other groups' answers are
 *   kept
 */
function askAll(
  verb: "check" | "take",
  groups: readonly Group[],
  options: StepOptions,
  keepsErrors = false,
): MaybePromise<readonly CheckAnswer[]> {
  return all(groups, (group) => ask(verb, group, options, keepsErrors));
}

function ask(
  verb: "check" | "take",
  group: Group,
  options: StepOptions,
  keepsErrors: boolean,
): MaybePromise<CheckAnswer> {
  const { steps, subrequests } = group;
  const failed = (error: unknown): CheckAnswer => {
    // optional subrequests refuse no request, even if they cannot be asked
    if (subrequests.every(({ isOptional }) => isOptional) && !(error instanceof ScatteredError)) {
      return { group, checks: subrequests.map(() => undefined) };
    }
    if (keepsErrors) return { group, checks: [], error };
    throw error;
  };
  try {
    const asked = askInOrder(verb, steps, subrequests, options);
    if (!(asked instanceof Promise)) return { group, checks: asked };
    return asked.then((checks) => ({ group, checks }), failed);
  } catch (error) {
    return failed(error);
  }
}

function isPassing({ group, checks }: CheckAnswer): boolean {
  return group.subrequests.every(({ isOptional }, i) => isOptional || checks[i]?.passes === true);
}

function conclude(subrequests: readonly Subrequest[], answers: readonly CheckAnswer[]): Together {
  const checks = subrequests.map((): Check | undefined => undefined);
  for (const { group, checks: own } of answers) {
    group.at.forEach((index, i) => {
      checks[index] = own[i];
    });
  }
  return { passes: answers.every(isPassing), checks };
}

/** Converts a failure to undefined. */
export function settled<T>(action: () => MaybePromise<T>): MaybePromise<T | undefined> {
  try {
    const done = action();
    return done instanceof Promise ? done.catch(() => undefined) : done;
  } catch {
    return undefined;
  }
}

/** Whether `one` has the longer wait; at equal waits, whether it has fewer permits left. */
export function binds(one: Decision, other: Decision): boolean {
  if (one.waitMs !== other.waitMs) return one.waitMs > other.waitMs;
  return share(one) < share(other);
}

function share({ remaining, limit }: Decision): number {
  return limit === Infinity ? Number(remaining > 0) : remaining / limit;
}
