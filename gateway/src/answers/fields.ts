/**
 * The header fields that report the state of the rules, in the dialects that clients know. Numbers
 * are whole and never too optimistic: remaining permits are rounded down, times are rounded up.
 */

import type { CheckResult, PolicyOutcome } from "./checker.ts";
import { retryAfter } from "./retry.ts";

/** A header field: name and value. */
export type Field = readonly [name: string, value: string];

/**
 * The format of the header fields. `"draft-11"` is the current IETF draft (the syntax has not
 * changed since draft 8), `"draft-7"` and `"draft-6"` are older drafts, `"x-ratelimit"` is what
 * many services send.
 */
export type Dialect = "draft-11" | "draft-7" | "draft-6" | "x-ratelimit";

type Writer = (shown: readonly PolicyOutcome[], retryMs: number) => readonly Field[];

export const DIALECTS: Readonly<Record<Dialect, Writer>> = {
  "draft-11": (shown) => {
    const [only] = shown as readonly [PolicyOutcome];
    if (shown.length === 1) {
      const written = writtenOf(only);
      return [written.policyField, ["RateLimit", limitItem(only, written)]];
    }
    let policies = "";
    let limits = "";
    for (const outcome of shown) {
      const written = writtenOf(outcome);
      const comma = policies === "" ? "" : ", ";
      policies += comma + written.policy;
      limits += comma + limitItem(outcome, written);
    }
    return [
      ["RateLimit-Policy", policies],
      ["RateLimit", limits],
    ];
  },

  "draft-7": (shown, retryMs) => {
    const outcome = binding(shown);
    const { limit } = writtenOf(outcome);
    const resetS = resetSeconds(outcome, retryMs);
    const reset = resetS < Infinity ? `, reset=${resetS}` : "";
    return [
      ["RateLimit-Policy", shown.map(namelessPolicy).join(", ")],
      ["RateLimit", `limit=${limit}, remaining=${remainingOf(outcome)}${reset}`],
    ];
  },

  "draft-6": (shown, retryMs) => {
    const outcome = binding(shown);
    const resetS = resetSeconds(outcome, retryMs);
    const fields: Field[] = [
      ["RateLimit-Policy", shown.map(namelessPolicy).join(", ")],
      ["RateLimit-Limit", writtenOf(outcome).limit],
      ["RateLimit-Remaining", `${remainingOf(outcome)}`],
    ];
    return resetS < Infinity ? [...fields, ["RateLimit-Reset", `${resetS}`]] : fields;
  },

  "x-ratelimit": (shown, retryMs) => {
    const outcome = binding(shown);
    const written = writtenOf(outcome);
    const remaining: Field = ["X-RateLimit-Remaining", `${remainingOf(outcome)}`];
    const resetS = resetSeconds(outcome, retryMs);
    if (resetS === Infinity) return [written.limitField, remaining];
    const unixS = Math.ceil(Date.now() / 1000) + resetS;
    return [written.limitField, remaining, resetFieldOf(written, unixS)];
  },
};

const NONE: readonly Field[] = [];

/**
 * How many rules a response reports. With names of 40 characters their items take 1 KB, with the longest names
 * 4 KB: proxies refuse a head of more than 4 or 8 KB.
 */
const MOST_REPORTED = 8;

/** Returns the fields of a response, in all requested dialects. */
export function fieldsOf(
  { outcomes, retryMs }: CheckResult,
  dialects: readonly Dialect[],
): readonly Field[] {
  const [dialect] = dialects;
  if (outcomes.length === 0 || dialect === undefined) return NONE;
  const shown = reported(outcomes.every(isShown) ? outcomes : outcomes.filter(isShown));
  if (shown.length === 0) return NONE;
  if (dialects.length === 1) return DIALECTS[dialect](shown, retryMs);
  return dialects.flatMap((each) => DIALECTS[each](shown, retryMs));
}

/** A client cannot plan with the free slots of a rule for connections, so only its refusals are reported. */
function isShown({ rule, allowed }: PolicyOutcome): boolean {
  if (rule.mode === "shadow" || rule.report === false) return false;
  return rule.quotaUnit === undefined || !allowed;
}

/** Returns the names of the rules that refuse a request, as far as they are reported. */
export function reportedViolations({ outcomes }: CheckResult): readonly string[] {
  const violated = outcomes.filter((outcome) => !outcome.allowed && isShown(outcome));
  return reported(violated).map(({ rule }) => rule.name);
}

/** Returns those that bind most, in their order, if there are too many. */
function reported(shown: readonly PolicyOutcome[]): readonly PolicyOutcome[] {
  if (shown.length <= MOST_REPORTED) return shown;
  const sorted = [...shown].sort((a, b) => Number(bindsMore(b, a)) - Number(bindsMore(a, b)));
  const kept = new Set(sorted.slice(0, MOST_REPORTED));
  return shown.filter((outcome) => kept.has(outcome));
}

// -- one policy --

/** The largest integer that a structured header field can hold. */
const LARGEST = 999_999_999_999_999;

/** Converts permits to requests. */
export function requests(permits: number, { rule }: PolicyOutcome): number {
  return Math.min(LARGEST, Math.max(0, Math.floor(permits / rule.cost)));
}

function remainingOf(outcome: PolicyOutcome): number {
  return requests(outcome.decision.remaining, outcome);
}

/** Whole seconds, rounded up: a client that returns after this time is not early. */
export function seconds(ms: number): number {
  return Math.min(LARGEST, Math.max(0, Math.ceil(ms / 1000)));
}

/** The parts of the fields that are the same for most requests of a rule. */
interface Written {
  /** The numbers for which it is written. */
  readonly permits: number;
  readonly windowMs: number;
  /** How many requests pass at once. */
  readonly limit: string;
  readonly limitField: Field;
  /** Its item in RateLimit-Policy. */
  readonly policy: string;
  /** RateLimit-Policy with this item only: most responses report one rule. */
  readonly policyField: Field;
  /** How its item in RateLimit begins. */
  readonly left: string;
  /** The last time in its item in RateLimit, and how it is written. */
  lastS: number;
  time: string;
  /** The last instant in X-RateLimit-Reset, Unix time, and the field. */
  lastResetS: number;
  resetField: Field;
}

const NO_FIELD: Field = ["", ""];

const known = new WeakMap<object, Written>();

function writtenOf(outcome: PolicyOutcome): Written {
  const { limit: permits } = outcome.decision;
  const windowMs = windowOf(outcome);
  const before = known.get(outcome.rule);
  if (before !== undefined && before.permits === permits && before.windowMs === windowMs) {
    return before;
  }
  const { quotaUnit } = outcome.rule;
  const name = quoted(outcome.rule.name);
  const unit = quotaUnit === undefined ? "" : `;qu=${quoted(quotaUnit)}`;
  const window = windowMs > 0 ? `;w=${seconds(windowMs)}` : "";
  const limit = `${requests(permits, outcome)}`;
  const policy = `${name};q=${limit}${unit}${window}`;
  const now: Written = {
    permits,
    windowMs,
    limit,
    limitField: ["X-RateLimit-Limit", limit],
    policy,
    policyField: ["RateLimit-Policy", policy],
    left: `${name};r=`,
    lastS: 0,
    time: "",
    lastResetS: 0,
    resetField: NO_FIELD,
  };
  known.set(outcome.rule, now);
  return now;
}

/** `t` is when more is available; for a refused request, when it would pass. */
function limitItem(outcome: PolicyOutcome, written: Written): string {
  const { allowed, decision } = outcome;
  const moreMs = allowed ? decision.resetMs : retryAfter(decision, outcome.rule.cost);
  const time = moreMs > 0 && moreMs < Infinity ? timeItem(written, seconds(moreMs)) : "";
  return joined(written.left + (remainingOf(outcome) + time));
}

/**
 * V8 joins the parts of a long text when a character is read. Node reads header values with a regular
 * expression, which takes several times as long on a text that is not joined yet.
 */
function joined(text: string): string {
  return text.charCodeAt(0) >= 0 ? text : "";
}

function timeItem(written: Written, wholeS: number): string {
  if (written.lastS !== wholeS) {
    written.lastS = wholeS;
    written.time = `;t=${wholeS}`;
  }
  return written.time;
}

function resetFieldOf(written: Written, unixS: number): Field {
  if (written.lastResetS !== unixS) {
    written.lastResetS = unixS;
    written.resetField = ["X-RateLimit-Reset", `${unixS}`];
  }
  return written.resetField;
}

function namelessPolicy(outcome: PolicyOutcome): string {
  const windowMs = windowOf(outcome);
  const quota = `${requests(outcome.decision.limit, outcome)}`;
  return windowMs > 0 ? `${quota};w=${seconds(windowMs)}` : quota;
}

function windowOf({ decision }: PolicyOutcome): number {
  return decision.policies[decision.policy]?.windowMs ?? 0;
}

/** A string of a structured field. Rule names are printable ASCII. */
function quoted(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const PLAIN = /^[^"\\]*$/;

// -- for dialects that report one policy only: the binding one --

/** Returns the policy that refuses for the longest time, or else the one with the least left. */
function binding(shown: readonly PolicyOutcome[]): PolicyOutcome {
  return shown.reduce((binds, next) => (bindsMore(next, binds) ? next : binds));
}

/** `Infinity`: a limit of 0, or a quota that never refills. Then there is no field: 0 would invite a retry. */
function resetSeconds(outcome: PolicyOutcome, retryMs: number): number {
  const ms = outcome.allowed ? outcome.decision.resetMs : untilRetry(outcome, retryMs);
  return ms < Infinity ? seconds(ms) : Infinity;
}

/** The same instant as in Retry-After, as these drafts require. */
function untilRetry({ decision, rule }: PolicyOutcome, retryMs: number): number {
  const backMs = Math.max(retryMs, retryAfter(decision, rule.cost));
  return backMs === Infinity ? decision.resetMs : backMs;
}

function bindsMore(one: PolicyOutcome, other: PolicyOutcome): boolean {
  if (one.allowed !== other.allowed) return !one.allowed;
  if (!one.allowed) return one.decision.waitMs > other.decision.waitMs;
  return remainingOf(one) < remainingOf(other);
}
