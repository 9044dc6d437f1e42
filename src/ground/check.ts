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

/**
 * Rejects values that are not option objects, and unknown options: a misspelt one would do nothing.
 */
export function checkOptions(name: string, options: unknown, known: readonly string[]): void {
  if (options instanceof AbortSignal && known.includes("signal")) {
    throw new TypeError(`${name} must be an object, got ${show(options)}: write { signal }`);
  }
  if (typeof options !== "object" || options === null || !isPlain(options)) {
    throw new TypeError(`${name} must be an object, got ${show(options)}`);
  }
  // `for…in` creates no array: this runs at every call that takes options
  for (const key in options) {
    if (!known.includes(key)) {
      throw new TypeError(`${name} has no "${key}"; expected one of ${known.join(", ")}`);
    }
  }
}

/** Does the same for the numbers of a policy; `name` is the function that takes them. */
export function checkNumbers(name: string, numbers: unknown, known: readonly string[]): void {
  if (typeof numbers !== "object" || numbers === null || Array.isArray(numbers)) {
    throw new TypeError(`${name} takes { ${known.join(", ")} }, got ${show(numbers)}`);
  }
  checkOptions(name, numbers, known);
}

/**
 * Arrays, signals and promises are not options, although they would pass as objects with none set.
 */
function isPlain(value: object): boolean {
  return !(Array.isArray(value) || value instanceof AbortSignal || value instanceof Promise);
}

/** Marks a constructor call that comes from `create`. Users do not have this symbol. */
export const CREATE = Symbol("create");

/** Rejects `new Limiter(…)`: a constructor does not take the same arguments as `create`. */
export function checkCreated(name: string, mark: unknown): void {
  if (mark === CREATE) return;
  throw new TypeError(`${name} has no public constructor: write ${name}.create(…) without new`);
}

export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value !== "boolean") {
    throw new TypeError(`${name} must be true or false, got ${show(value)}`);
  }
  return value;
}

export function checkText(name: string, value: unknown): string {
  if (typeof value === "string") return value;
  throw new TypeError(`${name} must be a string, got ${show(value)}`);
}

export function checkFunction(name: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new TypeError(`${name} must be a function, got ${show(value)}`);
}

export function checkOneOf(name: string, value: unknown, choices: readonly string[]): void {
  if (choices.some((choice) => choice === value)) return;
  throw new TypeError(`${name} must be one of ${choices.join(", ")}, got ${show(value)}`);
}

export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal;
  throw new TypeError(`signal must be an AbortSignal, got ${show(signal)}`);
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
