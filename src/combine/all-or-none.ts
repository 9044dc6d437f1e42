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
 * In both, the steps of two requests interleave, and what was taken is given back exactly, by its
 * receipt:
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
  ScatteredError,
  type StepOptions,
  type Subrequest,
} from "../api/participant.ts";
import { all, chain, type MaybePromise } from "../ground/maybe-promise.ts";
import { askInOrder } from "./fair.ts";

export interface Together {
  /**
   * All parts that are not optional let the request pass; after a take, all that pass were charged.
   */
  readonly passes: boolean;
  /** In the order of the parts; undefined for an optional part that could not be asked. */
  readonly checks: readonly (Check | undefined)[];
}

interface Group {
  readonly steps: AtomicStep;
  readonly slot: string;
  readonly parts: Subrequest[];
  /** The index of each part in the whole request. */
  readonly at: number[];
}

/** The answer of one group; `error`: the group could not be asked. */
interface CheckAnswer {
  readonly group: Group;
  readonly checks: readonly (Check | undefined)[];
  readonly error?: unknown;
}

const NO_TERMS: StepOptions = {};

/** Takes from all limiters, or from none. */
export function takeTogether(
  parts: readonly Subrequest[],
  terms = NO_TERMS,
): MaybePromise<Together> {
  return withGroups(parts, (groups) => takeGroups(parts, groups, terms));
}

/** Returns what `takeTogether` would return, without taking anything. */
export function lookTogether(
  parts: readonly Subrequest[],
  terms = NO_TERMS,
): MaybePromise<Together> {
  return withGroups(parts, (groups) =>
    chain(askAll("look", groups, terms), (answers) => conclude(parts, answers)),
  );
}

/** Counts and publishes the refusal for each limiter that is a reason for it. */
export function reportRefusal(parts: readonly Subrequest[], { checks }: Together): void {
  parts.forEach(({ participant, permits, isOptional }, i) => {
    const look = checks[i];
    if (!isOptional && look?.passes === false) participant.refused(permits, look);
  });
}

/** Gives back what was taken, the last first. A failure costs permits and nothing else. */
export function undoAll(
  checks: readonly (Pick<Check, "taken"> | undefined)[],
): MaybePromise<unknown> {
  const undone = checks.toReversed().map((look) => {
    const taken = look?.taken;
    return taken === undefined ? undefined : settled(() => taken.undo());
  });
  return all(undone);
}

/** Forms smaller groups and asks again if the participants turn out to be in several slots. */
function withGroups(
  parts: readonly Subrequest[],
  ask: (groups: readonly Group[]) => MaybePromise<Together>,
): MaybePromise<Together> {
  const together = ask(groupsOf(parts));
  if (!(together instanceof Promise)) return together;
  return together.catch((error: unknown) => {
    if (error instanceof ScatteredError) return ask(groupsOf(parts));
    throw error;
  });
}

function groupsOf(parts: readonly Subrequest[]): readonly Group[] {
  const groups: Group[] = [];
  parts.forEach((part, i) => {
    const { steps, slot } = part.participant;
    let group = groups.find((one) => one.steps === steps && one.slot === slot);
    if (group === undefined) {
      group = { steps, slot, parts: [], at: [] };
      groups.push(group);
    }
    group.parts.push(part);
    group.at.push(i);
  });
  return groups;
}

function takeGroups(
  parts: readonly Subrequest[],
  groups: readonly Group[],
  terms: StepOptions,
): MaybePromise<Together> {
  const [only] = groups;
  if (only !== undefined && groups.length === 1) {
    return chain(ask("take", only, terms), (answer) => conclude(parts, [answer]));
  }
  const here = groups.filter(({ steps }) => steps === localStep);
  const elsewhere = groups.filter(({ steps }) => steps !== localStep);
  return chain(askAll("look", here, terms), (checks) => {
    if (!checks.every(isPassing)) {
      // a refusal is reported even while the store is unavailable
      const lookAtAll = settled(() => askAll("look", elsewhere, terms));
      return chain(lookAtAll, (others = []) =>
        conclude(parts, [...checks, ...(others as readonly CheckAnswer[])]),
      );
    }
    return chain(takeElsewhere(elsewhere, terms), (taken) => {
      if (!taken.every(isPassing)) return conclude(parts, [...checks, ...taken]);
      return chain(askAll("take", here, terms), (last) => {
        const answers = [...taken, ...last];
        if (last.every(isPassing)) return conclude(parts, answers);
        return chain(undoAll(taken.flatMap((answer) => answer.checks)), () =>
          conclude(parts, answers),
        );
      });
    });
  });
}

/** Takes from one group in a single step; looks at several groups first. */
function takeElsewhere(
  groups: readonly Group[],
  terms: StepOptions,
): MaybePromise<readonly CheckAnswer[]> {
  if (groups.length === 1) return askAll("take", groups, terms);
  return chain(askAll("look", groups, terms), (checks) => {
    if (!checks.every(isPassing)) return checks;
    return chain(askAll("take", groups, terms, true), (answers) => {
      const failed = answers.find(({ error }) => error !== undefined);
      if (failed === undefined && answers.every(isPassing)) return answers;
      const taken = answers.flatMap((answer) => answer.checks);
      return chain(undoAll(taken), () => {
        if (failed !== undefined) throw failed.error;
        return answers;
      });
    });
  });
}

/**
 * @param keepsErrors whether an error is stored in its answer, so that other groups' answers are
 *   kept
 */
function askAll(
  verb: "look" | "take",
  groups: readonly Group[],
  terms: StepOptions,
  keepsErrors = false,
): MaybePromise<readonly CheckAnswer[]> {
  return all(groups.map((group) => ask(verb, group, terms, keepsErrors)));
}

function ask(
  verb: "look" | "take",
  group: Group,
  terms: StepOptions,
  keepsErrors = false,
): MaybePromise<CheckAnswer> {
  const { steps, parts } = group;
  const failed = (error: unknown): CheckAnswer => {
    // optional parts refuse no request, even if they cannot be asked
    if (parts.every(({ isOptional }) => isOptional) && !(error instanceof ScatteredError)) {
      return { group, checks: parts.map(() => undefined) };
    }
    if (keepsErrors) return { group, checks: [], error };
    throw error;
  };
  try {
    const asked = askInOrder(verb, steps, parts, terms);
    if (!(asked instanceof Promise)) return { group, checks: asked };
    return asked.then((checks) => ({ group, checks }), failed);
  } catch (error) {
    return failed(error);
  }
}

function isPassing({ group, checks }: CheckAnswer): boolean {
  return group.parts.every(({ isOptional }, i) => isOptional || checks[i]?.passes === true);
}

function conclude(parts: readonly Subrequest[], answers: readonly CheckAnswer[]): Together {
  const checks = parts.map((): Check | undefined => undefined);
  for (const { group, checks: own } of answers) {
    group.at.forEach((index, i) => {
      checks[index] = own[i];
    });
  }
  return { passes: answers.every(isPassing), checks };
}

/** Converts a failure to undefined. */
function settled<T>(action: () => MaybePromise<T>): MaybePromise<T | undefined> {
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
