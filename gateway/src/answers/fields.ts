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
    const { limit, remaining, resetS } = binding(shown, retryMs);
    return [
      ["RateLimit-Policy", shown.map(namelessPolicy).join(", ")],
      ["RateLimit", `limit=${limit}, remaining=${remaining}, reset=${resetS}`],
    ];
  },

  "draft-6": (shown, retryMs) => {
    const { limit, remaining, resetS } = binding(shown, retryMs);
    return [
      ["RateLimit-Policy", shown.map(namelessPolicy).join(", ")],
      ["RateLimit-Limit", `${limit}`],
      ["RateLimit-Remaining", `${remaining}`],
      ["RateLimit-Reset", `${resetS}`],
    ];
  },

  "x-ratelimit": (shown, retryMs) => {
    const { limit, remaining, resetS } = binding(shown, retryMs);
    return [
      ["X-RateLimit-Limit", `${limit}`],
      ["X-RateLimit-Remaining", `${remaining}`],
      ["X-RateLimit-Reset", `${Math.ceil(Date.now() / 1000) + resetS}`],
    ];
  },
};

const NONE: readonly Field[] = [];

/** Returns the fields of a response, in all requested dialects. */
export function fieldsOf(
  { outcomes, retryMs }: CheckResult,
  dialects: readonly Dialect[],
): readonly Field[] {
  const [dialect] = dialects;
  if (outcomes.length === 0 || dialect === undefined) return NONE;
  const shown = outcomes.every(isShown) ? outcomes : outcomes.filter(isShown);
  if (shown.length === 0) return NONE;
  if (dialects.length === 1) return DIALECTS[dialect](shown, retryMs);
  return dialects.flatMap((each) => DIALECTS[each](shown, retryMs));
}

/** A place in progress is no quota that a client could plan with: such a rule shows its refusals only. */
function isShown({ rule, allowed }: PolicyOutcome): boolean {
  return rule.mode !== "shadow" && (rule.quotaUnit === undefined || !allowed);
}

// -- one policy --

/** The largest integer that a structured header field can hold. */
const LARGEST = 999_999_999_999_999;

/** Converts permits to requests. */
export function requests(permits: number, { rule }: PolicyOutcome): number {
  return Math.min(LARGEST, Math.max(0, Math.floor(permits / rule.cost)));
}

/** Whole seconds, rounded up: a client that returns after this time is not early. */
export function seconds(ms: number): number {
  return Math.min(LARGEST, Math.max(0, Math.ceil(ms / 1000)));
}

/** The parts of the fields that are the same for most requests of a rule. */
interface Written {
  readonly limit: number;
  readonly windowMs: number;
  /** Its item in RateLimit-Policy. */
  readonly policy: string;
  /** RateLimit-Policy with this item only: most responses report one rule. */
  readonly policyField: Field;
  /** How its item in RateLimit begins. */
  readonly left: string;
  /** The last time in its item in RateLimit, and how it is written. */
  lastS: number;
  time: string;
}

const known = new WeakMap<object, Written>();

function writtenOf(outcome: PolicyOutcome): Written {
  const { limit } = outcome.decision;
  const windowMs = windowOf(outcome);
  const before = known.get(outcome.rule);
  if (before !== undefined && before.limit === limit && before.windowMs === windowMs) {
    return before;
  }
  const { quotaUnit } = outcome.rule;
  const name = quoted(outcome.rule.name);
  const unit = quotaUnit === undefined ? "" : `;qu=${quoted(quotaUnit)}`;
  const window = windowMs > 0 ? `;w=${seconds(windowMs)}` : "";
  const policy = `${name};q=${requests(limit, outcome)}${unit}${window}`;
  const policyField: Field = ["RateLimit-Policy", policy];
  const left = `${name};r=`;
  const now = { limit, windowMs, policy, policyField, left, lastS: 0, time: "" };
  known.set(outcome.rule, now);
  return now;
}

/** `t` is when more is available; for a refused request, when it would pass. */
function limitItem(outcome: PolicyOutcome, written: Written): string {
  const { allowed, decision } = outcome;
  const moreMs = allowed ? decision.resetMs : retryAfter(decision, outcome.rule.cost);
  const time = moreMs > 0 && moreMs < Infinity ? timeItem(written, seconds(moreMs)) : "";
  return joined(written.left + (requests(decision.remaining, outcome) + time));
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

/** The policy that refuses for the longest time, or else the one with the least left. */
function binding(shown: readonly PolicyOutcome[], retryMs: number) {
  const outcome = shown.reduce((binds, next) => (bindsMore(next, binds) ? next : binds));
  const { limit, remaining, resetMs } = outcome.decision;
  return {
    limit: requests(limit, outcome),
    remaining: requests(remaining, outcome),
    resetS: seconds(outcome.allowed ? resetMs : untilRetry(outcome, retryMs)),
  };
}

/** The same instant as in Retry-After, as these drafts require. */
function untilRetry({ decision, rule }: PolicyOutcome, retryMs: number): number {
  const backMs = Math.max(retryMs, retryAfter(decision, rule.cost));
  return backMs === Infinity ? decision.resetMs : backMs;
}

function bindsMore(one: PolicyOutcome, other: PolicyOutcome): boolean {
  if (one.allowed !== other.allowed) return !one.allowed;
  if (!one.allowed) return one.decision.waitMs > other.decision.waitMs;
  return requests(one.decision.remaining, one) < requests(other.decision.remaining, other);
}
