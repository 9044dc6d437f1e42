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

export const atLeastZeroOrInfinity: Bound = {
  words: "a number, 0 or more, Infinity included",
  holds: (value) => value >= 0,
};

export const atLeastOne: Bound = {
  words: "a finite number, 1 or more",
  holds: (value) => value >= 1 && value < Infinity,
};

export const wholeAtLeastOne: Bound = {
  words: "a whole number, 1 or more",
  holds: (value) => value >= 1 && Number.isSafeInteger(value),
};

export const anyNumber: Bound = {
  words: "a number; what is below 0 counts as 0",
  holds: (value) => !Number.isNaN(value),
};

/** Throws the error for a bad argument: its name, what is allowed, and what it got. */
export function failCheck(
  name: string,
  words: string,
  value: unknown,
  Kind: ErrorConstructor = TypeError,
): never {
  throw new Kind(`${name} must be ${words}, got ${show(value)}`);
}

/** Returns the number, or throws. */
export function checkNumber(name: string, value: unknown, { words, holds }: Bound): number {
  if (typeof value !== "number") failCheck(name, words, value);
  if (!holds(value)) failCheck(name, words, value, RangeError);
  return value;
}

/** Options that other packages or other verbs have, and what to write here. */
const INSTEAD: Readonly<Record<string, string>> = {
  timeoutMs: "tryAcquire(1, { timeoutMs })",
  signal: "acquire(1, { signal })",
  windowMs: "fixedWindow",
  keyGenerator: "for(key)",
};

/**
 * Rejects values that are not option objects, and unknown options: a misspelt one would do nothing.
 */
export function checkOptions(name: string, options: unknown, known: readonly string[]): void {
  // arrays, signals and promises would pass as objects with no option set
  const isSignal = options instanceof AbortSignal;
  if (isSignal || !isRecord(options) || options instanceof Promise) {
    const example = isSignal && known.includes("signal") ? " such as { signal }" : "";
    failCheck(name, `an object${example}`, options);
  }
  // `for…in` creates no array: this runs at every call that takes options
  for (const key in options) {
    if (!known.includes(key)) {
      const hint = Object.hasOwn(INSTEAD, key) ? `: use ${INSTEAD[key]}` : "";
      throw new TypeError(`${name} has no "${key}"${hint}; expected one of ${known.join(", ")}`);
    }
  }
}

/** Does the same for the numbers of a policy; `name` is the function that takes them. */
export function checkNumbers(name: string, numbers: unknown, known: readonly string[]): void {
  if (!isRecord(numbers)) {
    throw new TypeError(`${name} takes { ${known.join(", ")} }, got ${show(numbers)}`);
  }
  checkOptions(name, numbers, known);
}

/** Whether the value is an object and not an array. */
export function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Marks a constructor call that comes from `create`. Users do not have this symbol. */
export const CREATE = Symbol("create");

/** Rejects `new Limiter(…)`: a constructor does not take the same arguments as `create`. */
export function checkCreated(name: string, mark: unknown): void {
  if (mark === CREATE) return;
  throw new TypeError(`${name} has no public constructor: write ${name}.create(…) without new`);
}

export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  failCheck(name, "true or false", value);
}

export function checkText(name: string, value: unknown): string {
  if (typeof value === "string") return value;
  failCheck(name, "a string", value);
}

export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== "function") failCheck(name, "a function", value);
}

export function checkOneOf(name: string, value: unknown, choices: readonly string[]): void {
  if (!choices.some((choice) => choice === value)) {
    failCheck(name, `one of ${choices.join(", ")}`, value);
  }
}

export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal;
  failCheck("signal", "an AbortSignal", signal);
}

/** Formats a value for an error message: short, and different for 0, -0, "0" and null. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (Object.is(value, -0)) return "-0";
  if (Array.isArray(value)) return "an array";
  if (value instanceof Promise) return "a promise";
  if (value instanceof AbortSignal) return "an AbortSignal";
  if (value instanceof AbortController) return "an AbortController, not its signal";
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "function") return "a function";
  return String(value);
}
