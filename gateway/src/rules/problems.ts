/** Finds fields of a rule that are valid each, but not together. */
import { Limiter, PermitsExceedCapacityError } from "smooth-limiter";
import { show } from "../ground/check.ts";
import {
  ALGORITHM_FIELDS,
  type AlgorithmField,
  type RuleAlgorithm,
  type RuleAlgorithms,
} from "./algorithms.ts";
import type { RateRule, RequestRule, Rule, RuleNumbers } from "./rule.ts";

export function problemsOf(rule: Rule, algorithms: RuleAlgorithms): readonly string[] {
  if (rule.quotaUnit === "content-bytes") return rateProblems(rule);
  if (rule.quotaUnit === "concurrent-requests") return [];
  const algorithm = algorithms[rule.algo] as RuleAlgorithm;
  const wrongs = [rule, ...rule.overrides].flatMap((each) => {
    const wrong = numbersProblem(each, rule, algorithm);
    if (wrong === undefined) return [];
    return "value" in each ? `override ${show(each.value)}: ${wrong}` : wrong;
  });
  return [...wrongs, ...fieldProblems(rule)];
}

/** Returns the fields that have no meaning without an actor. */
function rateProblems({ actor, overrides, exempt, whenActorMissing }: RateRule): string[] {
  if (actor !== undefined) return [];
  const given = {
    overrides: overrides.length > 0,
    exempt: exempt.length > 0,
    whenActorMissing: whenActorMissing !== undefined,
  };
  return Object.entries(given).flatMap(([field, isGiven]) =>
    isGiven ? `found ${field}, which needs an actor` : [],
  );
}

/** Returns which fields contradict one another. */
function fieldProblems({ limitKey, scope, rpu, block, mode }: RequestRule): string[] {
  const wrongs: string[] = [];
  if (limitKey !== undefined) {
    if (scope === "local") wrongs.push("found limitKey, which needs scope: global");
    if (rpu === 0) wrongs.push("found limitKey with rpu 0, allowed: rpu above 0");
  }
  if (block !== undefined && mode === "shadow") {
    wrongs.push("found block, which a rule with mode: shadow does not know");
  }
  return wrongs;
}

/** Returns why the algorithm cannot work with the numbers; undefined if it can. */
function numbersProblem(
  numbers: RuleNumbers,
  { algo, cost: usual, costs }: RequestRule,
  { fields = [], policy }: RuleAlgorithm,
): string | undefined {
  const isGiven = (field: AlgorithmField) =>
    field === "with" ? Object.keys(numbers.with).length > 0 : numbers[field] !== undefined;
  for (const field of ALGORITHM_FIELDS) {
    if (isGiven(field) && !fields.includes(field)) {
      return `found ${field}, which the algorithm ${show(algo)} does not know`;
    }
  }
  const wrong = algo === "window" ? calendarProblem(numbers) : undefined;
  if (wrong !== undefined) return wrong;
  if (numbers.unit === "ever" && algo !== "window") {
    return `found unit "ever", which needs algo: window, because nothing is refilled`;
  }
  if (numbers.rpu === 0) return undefined;
  const cost = Math.max(usual, ...Object.values(costs));
  try {
    // peeks at the cost, because a cost above the policy's capacity is an error
    Limiter.create(policy(numbers)).peek(cost);
    return undefined;
  } catch (error) {
    if (!(error instanceof PermitsExceedCapacityError)) {
      const { message } = error as Error;
      // a rule calls the capacity its burst
      return isGiven("burst") ? message.replace(/^capacity /, "burst ") : message;
    }
    const { capacity } = error.facts;
    return `found cost ${cost}, allowed: at most ${capacity}, which is all that passes at once`;
  }
}

/** Returns why the windows cannot follow a calendar as the numbers say. */
function calendarProblem({ unit, units, align, timeZone }: RuleNumbers): string | undefined {
  const isDated = unit === "day" || unit === "month";
  if (timeZone !== undefined && !isDated) {
    return `found timeZone with unit ${show(unit)}, allowed: day, month`;
  }
  if (timeZone !== undefined && align === "first") {
    return "found timeZone with align first, allowed: one of them";
  }
  const isOnCalendar = timeZone !== undefined || unit === "month" || unit === "ever";
  if (!isOnCalendar || align === "first" || units === 1) return undefined;
  return `found units ${units}, allowed: 1, because windows follow the calendar`;
}
