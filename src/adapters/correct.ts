import { atLeastZero, checkNumber } from "../check.ts";
import { PermitsExceedCapacityError } from "../errors.ts";
import type { Limiter } from "../limiter/face.ts";
import type { Permits } from "../permits.ts";

/** An only number, under a name that no policy has. */
const ONLY = "";

/**
 * Corrects what was taken to what was used: more is charged to those who come next, less is given
 * back.
 *
 * @param actual what was used in all, 0 or more; policies that are not named stay as they are
 */
export async function correct(limiter: Limiter, taken: Permits, actual: Permits): Promise<void> {
  const names = Object.keys(typeof actual === "number" ? list(taken) : actual);
  const changes = names.map((name) => {
    const used = of(actual, name) ?? 0;
    return [name, used - (of(taken, name) ?? 0)] as const;
  });
  const more = changes.filter(([, change]) => change > 0);
  const less = changes.flatMap(([name, change]) => (change < 0 ? [[name, -change] as const] : []));
  if (more.length > 0) await charge(limiter, more);
  if (less.length > 0) await limiter.refund(toPermits(less));
}

type Amount = readonly [name: string, amount: number];

/** What was used was used, also if it is more than a policy can hold: then in portions. */
async function charge(limiter: Limiter, amounts: readonly Amount[]): Promise<void> {
  try {
    await limiter.charge(toPermits(amounts));
  } catch (error) {
    if (!(error instanceof PermitsExceedCapacityError)) throw error;
    const { policy, capacity } = error.facts;
    const portion = (name: string, amount: number) =>
      name === policy || name === ONLY ? Math.min(amount, capacity) : amount;
    const rest = amounts
      .map(([name, amount]): Amount => [name, amount - portion(name, amount)])
      .filter(([, amount]) => amount > 0);
    if (rest.length === 0) throw error;
    await charge(
      limiter,
      amounts.map(([name, amount]) => [name, portion(name, amount)]),
    );
    await charge(limiter, rest);
  }
}

function list(permits: Permits): Readonly<Record<string, number>> {
  return typeof permits === "number" ? { [ONLY]: permits } : permits;
}

function of(permits: Permits, name: string): number | undefined {
  return typeof permits === "number" ? permits : permits[name];
}

function toPermits(amounts: readonly Amount[]): Permits {
  const permits = Object.fromEntries(amounts);
  return permits[ONLY] ?? permits;
}

/** What can be known of permits where the policies are not: the limiter checks the rest. */
export function checkPermits(name: string, permits: unknown): void {
  if (typeof permits !== "object" || permits === null || Array.isArray(permits)) {
    checkNumber(name, permits, atLeastZero);
  } else {
    for (const [key, each] of Object.entries(permits))
      checkNumber(`${name}.${key}`, each, atLeastZero);
  }
}
