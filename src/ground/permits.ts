import { aboveZero, type Bound, checkNumber, checkOptions, isRecord } from "./check.ts";

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
  if (!isRecord(permits)) {
    const same = checkNumber("permits", permits, bound);
    return names.map(() => same);
  }
  checkOptions("permits by policy", permits, names);
  const asked = permits as Readonly<Record<string, unknown>>;
  if (!names.some((name) => Object.hasOwn(asked, name))) {
    const choices = names.length > 0 ? `: ${names.join(", ")}` : "";
    throw new RangeError(`permits must name a policy${choices}`);
  }
  return names.map((name) =>
    Object.hasOwn(asked, name) ? checkNumber(`permits.${name}`, asked[name], bound) : undefined,
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
