import { type Clock, gcra, Limiter } from "smooth-limiter";

/** Returns a value, checked; throws an error with its name, what is allowed and what it got. */
export type Check<T = unknown> = (name: string, value: unknown) => T;

/** @param words what the number must be */
export function number(words: string, holds: (value: number) => boolean): Check<number> {
  return (name, value) => {
    if (typeof value === "number" && holds(value)) return value;
    const message = `${name} must be ${words}, got ${show(value)}`;
    throw typeof value === "number" ? new RangeError(message) : new TypeError(message);
  };
}

export const aboveZero = number(
  "a finite number above 0",
  (value) => value > 0 && value < Infinity,
);

export const aboveZeroOrInfinity = number(
  "a number above 0, Infinity included",
  (value) => value > 0,
);

export const atLeastZero = number(
  "a finite number, 0 or more",
  (value) => value >= 0 && value < Infinity,
);

export const atLeastOne = number(
  "a finite number, 1 or more",
  (value) => value >= 1 && value < Infinity,
);

export const wholeAtLeastOne = whole(1, Number.MAX_SAFE_INTEGER, "a whole number, 1 or more");

export const wholeAtLeastZero = whole(0, Number.MAX_VALUE, "a whole number, 0 or more");

export function whole(
  least: number,
  most: number,
  words = `a whole number from ${least} to ${most}`,
): Check<number> {
  return number(words, (value) => Number.isInteger(value) && value >= least && value <= most);
}

export function oneOf(...choices: readonly unknown[]): Check {
  return (name, value) => {
    if (choices.includes(value)) return value;
    throw new TypeError(`${name} must be one of ${choices.join(", ")}, got ${show(value)}`);
  };
}

/** Accepts a function, and what the other check accepts. */
export function functionOr(check: Check): Check {
  return (name, value) => (typeof value === "function" ? value : check(name, value));
}

/** For a value that is checked where it is used. */
export const anything: Check = (_, value) => value;

/** Options of other packages, and what does the same where there is an option of that name. */
const INSTEAD: ReadonlyMap<string, string> = new Map(
  Object.entries({
    keyGenerator: "key",
    windowMs: "limit: fixedWindow({ limit, windowMs })",
    max: "limit",
    handler: "answer",
    message: "answer",
    statusCode: "status",
    standardHeaders: "headers",
    legacyHeaders: "headers",
    skipSuccessfulRequests: 'count: "failures"',
    skipFailedRequests: 'count: "successes"',
  }),
);

/** The check of each option. */
export type Checks<Options> = { readonly [Name in keyof Required<Options>]: Check };

/**
 * Checks options, each as far as it is given. Rejects values that are not option objects, and unknown options: a
 * misspelt one would do nothing.
 */
export function checkOptions(
  name: string,
  options: unknown,
  checks: Readonly<Record<string, Check>>,
): void {
  for (const [key, value] of Object.entries(checkObject(name, options))) {
    if (Object.hasOwn(checks, key)) {
      if (value !== undefined) checks[key]?.(key, value);
      continue;
    }
    const known = Object.keys(checks);
    const instead = INSTEAD.get(key);
    const [option = ""] = instead?.split(":") ?? [];
    const hint = known.includes(option) ? `: use ${instead}` : "";
    throw new TypeError(`${name} has no "${key}"${hint}; expected one of ${known.join(", ")}`);
  }
}

/** Rejects arrays and promises too: they would pass as objects without members. */
export function checkObject(name: string, value: unknown): object {
  const isArrayOrPromise = Array.isArray(value) || value instanceof Promise;
  if (typeof value === "object" && value !== null && !isArrayOrPromise) return value;
  throw new TypeError(`${name} must be an object, got ${show(value)}`);
}

/** Rejects a process in which every object has a member that nobody has written into it. */
export function checkPrototype(): void {
  for (const name in {}) {
    throw new TypeError(
      `Object.prototype must have no members that a loop over an object finds, got ${show(name)}: other code of this process has added it. Remove it, or find the request that has polluted the prototype`,
    );
  }
}

export function checkText(name: string, value: unknown): string {
  if (typeof value === "string") return value;
  throw new TypeError(`${name} must be a string, got ${show(value)}`);
}

/** Checks the name of a limit, which is used in header fields. */
export function checkName(option: string, name: unknown): void {
  if (PRINTABLE.test(checkText(option, name))) return;
  throw new TypeError(`${option} must be printable ASCII, got ${show(name)}`);
}

/** What header fields accept as a name. */
export const PRINTABLE = /^[ -~]+$/;

export function checkFunction(name: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new TypeError(`${name} must be a function, got ${show(value)}`);
}

/** @param name of the option whose members are functions */
export function checkFunctions(name: string, functions: unknown): void {
  for (const [each, value] of Object.entries(checkObject(name, functions))) {
    checkFunction(`${name}.${each}`, value);
  }
}

/** Throws the error of a limiter on that clock, which says what the clock lacks. */
export function checkClock(_: string, clock: unknown): void {
  Limiter.create(gcra({ limit: 1, periodMs: 1 }), { clock: clock as Clock });
}

/** Formats a value for an error message: short, and different for 0, -0, "0" and null. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (Object.is(value, -0)) return "-0";
  if (Array.isArray(value)) return "an array";
  if (value instanceof Promise) return "a promise";
  if (value instanceof AbortSignal) return "an AbortSignal";
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "function") return "a function";
  return String(value);
}
