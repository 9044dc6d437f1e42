/** What the tables of a report say, as text and as HTML. */
import { duration, number, rounded, some } from "../words.ts";
import type { ActorReport, Replayed, RuleReport } from "./report.ts";

export const RULE_COLUMNS = [
  "requests",
  "passed",
  "waited",
  "refused",
  "elsewhere",
  "a second: mean, peak",
  "wait: mean, longest",
  "worst",
  "of one",
  "limit",
];

export function ruleCells(rule: RuleReport): readonly string[] {
  const { requests, passed, waited, refused, refusedElsewhere } = rule;
  const { perSecond, wait, mostInWindow, mostOfOneActor } = rule;
  return [
    ...[requests, passed, waited, refused, refusedElsewhere].map(number),
    `${rounded(perSecond.mean)}, ${number(perSecond.peak)}`,
    waited > 0 ? `${duration(wait.meanMs)}, ${duration(wait.longestMs)}` : "",
    ...[mostInWindow, mostOfOneActor].map(number),
    limitOf(rule),
  ];
}

export const ACTOR_COLUMNS = ["requests", "passed", "waited", "refused", "worst"];

export function actorCells(actor: ActorReport): readonly string[] {
  const { requests, passed, waited, refused, mostInWindow } = actor;
  return [requests, passed, waited, refused, mostInWindow].map(number);
}

/** The place of the refused requests in both tables. */
export const REFUSED = 3;

export function limitOf({ rpu, periodMs }: RuleReport): string {
  return `${rpu} in ${duration(periodMs)}`;
}

/** What is known of lines that were not played as they stand in the log. */
export function notesOf({ lines, unread, late }: Replayed): readonly string[] {
  return [
    ...(unread > 0 ? [`${number(unread)} of ${number(lines)} lines were not requests`] : []),
    ...(late > 0 ? [`${some(late, "line")} out of order by more than --hold: played late`] : []),
  ];
}
