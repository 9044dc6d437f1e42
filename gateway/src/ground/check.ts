import { type Clock, gcra, Limiter } from "smooth-limiter";

/** What a number must be: the words for the error message, and the test. */
export interface Bound {
  readonly words: string;
  holds(value: number): boolean;
}

export const aboveZero: Bound = {
  words: "a finite number above 0",
  holds: (value) => value > 0 && value < Infinity,
};

export const aboveZeroOrInfinity: Bound = {
  words: "a number above 0, Infinity included",
  holds: (value) => value > 0,
};

export const atLeastZero: Bound = {
  words: "a finite number, 0 or more",
  holds: (value) => value >= 0 && value < Infinity,
};

export const atLeastOne: Bound = {
  words: "a finite number, 1 or more",
  holds: (value) => value >= 1 && value < Infinity,
};

export const wholeAtLeastOne: Bound = {
  words: "a whole number, 1 or more",
  holds: (value) => value >= 1 && Number.isSafeInteger(value),
};

/**
 * Returns the number; throws an error with the argument's name, what is allowed and what it got.
 */
export function checkNumber(name: string, value: unknown, bound: Bound): number {
  if (typeof value !== "number") {
    throw new TypeError(`${name} must be ${bound.words}, got ${show(value)}`);
  }
  if (!bound.holds(value)) {
    throw new RangeError(`${name} must be ${bound.words}, got ${show(value)}`);
  }
  return value;
}

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

/** Rejects values that are not option objects, and unknown options: a misspelt one would do nothing. */
export function checkOptions(name: string, options: unknown, known: readonly string[]): void {
  for (const key of Object.keys(checkObject(name, options))) {
    if (!known.includes(key)) {
      const instead = INSTEAD.get(key);
      const [option = ""] = instead?.split(":") ?? [];
      const hint = known.includes(option) ? `: use ${instead}` : "";
      throw new TypeError(`${name} has no "${key}"${hint}; expected one of ${known.join(", ")}`);
    }
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
export function checkName(name: unknown): void {
  if (PRINTABLE.test(checkText("name", name))) return;
  throw new TypeError(`name must be printable ASCII, got ${show(name)}`);
}

/** What header fields accept as a name. */
export const PRINTABLE = /^[ -~]+$/;

export function checkFunction(name: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new TypeError(`${name} must be a function, got ${show(value)}`);
}

export function checkOneOf(name: string, value: unknown, choices: readonly unknown[]): void {
  if (choices.some((choice) => choice === value)) return;
  throw new TypeError(`${name} must be one of ${choices.join(", ")}, got ${show(value)}`);
}

/** Returns the clock; throws the error of a limiter on that clock, which says what the clock lacks. */
export function checkClock(clock: Clock): Clock {
  Limiter.create(gcra({ limit: 1, periodMs: 1 }), { clock });
  return clock;
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
