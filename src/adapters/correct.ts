import { atLeastZero, type Bound, checkNumber } from "../check.ts";
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
  if (more.length > 0) await limiter.charge(toPermits(more));
  if (less.length > 0) await limiter.refund(toPermits(less));
}

function list(permits: Permits): Readonly<Record<string, number>> {
  return typeof permits === "number" ? { [ONLY]: permits } : permits;
}

function of(permits: Permits, name: string): number | undefined {
  return typeof permits === "number" ? permits : permits[name];
}

function toPermits(amounts: readonly (readonly [name: string, amount: number])[]): Permits {
  const permits = Object.fromEntries(amounts);
  return permits[ONLY] ?? permits;
}

/** What can be known of permits where the policies are not: the limiter checks the rest. */
export function checkPermits(name: string, permits: unknown, bound: Bound = atLeastZero): void {
  if (typeof permits !== "object" || permits === null) checkNumber(name, permits, bound);
  else
    for (const [key, each] of Object.entries(permits)) checkNumber(`${name}.${key}`, each, bound);
}
