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
  type Look,
  localSteps,
  type Part,
  ScatteredError,
  type Steps,
  type Terms,
} from "../api/participant.ts";
import { all, chain, type Maybe } from "../ground/maybe.ts";
import { askInOrder } from "./fair.ts";

export interface Together {
  /**
   * All parts that are not optional let the request pass; after a take, all that pass were charged.
   */
  readonly passes: boolean;
  /** In the order of the parts; undefined for an optional part that could not be asked. */
  readonly looks: readonly (Look | undefined)[];
}

interface Group {
  readonly steps: Steps;
  readonly slot: string;
  readonly parts: Part[];
  /** The index of each part in the whole request. */
  readonly at: number[];
}

/** The answer of one group; `error`: the group could not be asked. */
interface LookAnswer {
  readonly group: Group;
  readonly looks: readonly (Look | undefined)[];
  readonly error?: unknown;
}

const NO_TERMS: Terms = {};

/** Takes from all limiters, or from none. */
export function takeTogether(parts: readonly Part[], terms = NO_TERMS): Maybe<Together> {
  return withGroups(parts, (groups) => takeGroups(parts, groups, terms));
}

/** Returns what `takeTogether` would return, without taking anything. */
export function lookTogether(parts: readonly Part[], terms = NO_TERMS): Maybe<Together> {
  return withGroups(parts, (groups) =>
    chain(askAll("look", groups, terms), (answers) => conclude(parts, answers)),
  );
}

/** Counts and publishes the refusal for each limiter that is a reason for it. */
export function reportRefusal(parts: readonly Part[], { looks }: Together): void {
  parts.forEach(({ member, permits, isOptional }, i) => {
    const look = looks[i];
    if (!isOptional && look?.passes === false) member.refused(permits, look);
  });
}

/** Gives back what was taken, the last first. A failure costs permits and nothing else. */
export function undoAll(looks: readonly (Pick<Look, "taken"> | undefined)[]): Maybe<unknown> {
  const undone = looks.toReversed().map((look) => {
    const taken = look?.taken;
    return taken === undefined ? undefined : settled(() => taken.undo());
  });
  return all(undone);
}

/** Forms smaller groups and asks again if the members turn out to be in several slots. */
function withGroups(
  parts: readonly Part[],
  ask: (groups: readonly Group[]) => Maybe<Together>,
): Maybe<Together> {
  const together = ask(groupsOf(parts));
  if (!(together instanceof Promise)) return together;
  return together.catch((error: unknown) => {
    if (error instanceof ScatteredError) return ask(groupsOf(parts));
    throw error;
  });
}

function groupsOf(parts: readonly Part[]): readonly Group[] {
  const groups: Group[] = [];
  parts.forEach((part, i) => {
    const { steps, slot } = part.member;
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
  parts: readonly Part[],
  groups: readonly Group[],
  terms: Terms,
): Maybe<Together> {
  const [only] = groups;
  if (only !== undefined && groups.length === 1) {
    return chain(ask("take", only, terms), (answer) => conclude(parts, [answer]));
  }
  const here = groups.filter(({ steps }) => steps === localSteps);
  const elsewhere = groups.filter(({ steps }) => steps !== localSteps);
  return chain(askAll("look", here, terms), (looks) => {
    if (!looks.every(isPassing)) {
      // a refusal is reported even while the store is unavailable
      const lookAtAll = settled(() => askAll("look", elsewhere, terms));
      return chain(lookAtAll, (others = []) =>
        conclude(parts, [...looks, ...(others as readonly LookAnswer[])]),
      );
    }
    return chain(takeElsewhere(elsewhere, terms), (taken) => {
      if (!taken.every(isPassing)) return conclude(parts, [...looks, ...taken]);
      return chain(askAll("take", here, terms), (last) => {
        const answers = [...taken, ...last];
        if (last.every(isPassing)) return conclude(parts, answers);
        return chain(undoAll(taken.flatMap((answer) => answer.looks)), () =>
          conclude(parts, answers),
        );
      });
    });
  });
}

/** Takes from one group in a single step; looks at several groups first. */
function takeElsewhere(groups: readonly Group[], terms: Terms): Maybe<readonly LookAnswer[]> {
  if (groups.length === 1) return askAll("take", groups, terms);
  return chain(askAll("look", groups, terms), (looks) => {
    if (!looks.every(isPassing)) return looks;
    return chain(askAll("take", groups, terms, true), (answers) => {
      const failed = answers.find(({ error }) => error !== undefined);
      if (failed === undefined && answers.every(isPassing)) return answers;
      const taken = answers.flatMap((answer) => answer.looks);
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
  terms: Terms,
  keepsErrors = false,
): Maybe<readonly LookAnswer[]> {
  return all(groups.map((group) => ask(verb, group, terms, keepsErrors)));
}

function ask(
  verb: "look" | "take",
  group: Group,
  terms: Terms,
  keepsErrors = false,
): Maybe<LookAnswer> {
  const { steps, parts } = group;
  const failed = (error: unknown): LookAnswer => {
    // optional parts refuse no request, even if they cannot be asked
    if (parts.every(({ isOptional }) => isOptional) && !(error instanceof ScatteredError)) {
      return { group, looks: parts.map(() => undefined) };
    }
    if (keepsErrors) return { group, looks: [], error };
    throw error;
  };
  try {
    const asked = askInOrder(verb, steps, parts, terms);
    if (!(asked instanceof Promise)) return { group, looks: asked };
    return asked.then((looks) => ({ group, looks }), failed);
  } catch (error) {
    return failed(error);
  }
}

function isPassing({ group, looks }: LookAnswer): boolean {
  return group.parts.every(({ isOptional }, i) => isOptional || looks[i]?.passes === true);
}

function conclude(parts: readonly Part[], answers: readonly LookAnswer[]): Together {
  const looks = parts.map((): Look | undefined => undefined);
  for (const { group, looks: own } of answers) {
    group.at.forEach((place, i) => {
      looks[place] = own[i];
    });
  }
  return { passes: answers.every(isPassing), looks };
}

/** Converts a failure to undefined. */
function settled<T>(action: () => Maybe<T>): Maybe<T | undefined> {
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
