import { aboveZero, type Bound, checkNumber } from "./check.ts";

/**
 * How many permits a call requests: one number for every policy of the limiter, or a number for
 * each policy by name (a policy that is not named is not charged). Finite numbers above 0,
 * fractions allowed.
 *
 * `Name` is the union of the policies' names; a policy without a name is called "default".
 */
export type Permits<Name extends string = string> =
  | number
  | (string extends Name
      ? Readonly<Record<string, number>>
      : { readonly [Policy in Name]?: number });

/**
 * The options of `tryAcquire`, which accepts them in the place of permits: no policy may have these
 * names.
 */
export const TRY_OPTIONS: readonly string[] = ["timeoutMs", "signal"];

/**
 * Permits in the form that policies take: a single number for a single policy; otherwise a number
 * for each policy in their order, undefined where it is not charged.
 */
export type Amount = number | readonly (number | undefined)[];

/** Converts one number for all policies, or numbers by name, to the order of `names`. */
export function listPermits(
  permits: unknown,
  names: readonly string[],
  bound: Bound = aboveZero,
): (number | undefined)[] {
  if (typeof permits !== "object" || permits === null) {
    const same = checkNumber("permits", permits, bound);
    return names.map(() => same);
  }
  const asked = new Map(Object.entries(permits));
  for (const name of asked.keys()) {
    if (TRY_OPTIONS.includes(name)) {
      throw new TypeError(
        `permits must be a number or numbers by policy, got { ${name} }: options come second, as in acquire(1, { signal })`,
      );
    }
    if (!names.includes(name)) {
      throw new TypeError(
        `permits names no policy "${name}"; the policies are ${names.join(", ")}`,
      );
    }
  }
  if (asked.size === 0) {
    const choices = names.length > 0 ? `: ${names.join(", ")}` : "";
    throw new RangeError(`permits must name a policy${choices}`);
  }
  return names.map((name) =>
    asked.has(name) ? checkNumber(`permits.${name}`, asked.get(name), bound) : undefined,
  );
}

/** What `maxWaiting` counts: the permits; with several policies the largest of their numbers. */
export function sizeOf(amount: Amount): number {
  if (typeof amount === "number") return amount;
  return amount.reduce<number>((largest, permits = 0) => Math.max(largest, permits), 0);
}

/**
 * Combines two amounts of one shape policy by policy. `b` is undefined for a policy that only `a`
 * names.
 */
export function combine(
  a: Amount,
  b: Amount,
  how: (a: number, b: number | undefined) => number,
): Amount {
  if (typeof a === "number" || typeof b === "number") return how(Number(a), Number(b));
  return a.map((permits = 0, i) => how(permits, b[i]));
}

/** Whether two amounts of one shape are equal. */
export function sameAmount(a: Amount, b: Amount): boolean {
  if (typeof a === "number" || typeof b === "number") return a === b;
  return a.every((permits = 0, i) => permits === (b[i] ?? 0));
}
