import { atLeastZero, checkNumber } from "../check.ts";
import { PermitsExceedCapacityError } from "../errors.ts";
import type { Limiter } from "../limiter/face.ts";
import type { Permits } from "../permits.ts";

/** An only number, under a name that no policy has. */
const ONLY = "";

type Answer = void | Promise<void>;

/**
 * Corrects what was taken to what was used: more is charged to later callers, less is given back.
 *
 * @param actual what was used in all, 0 or more; policies that are not named stay as they are
 * @returns a promise where the limiter answers with one, else it is done
 */
export function correct(limiter: Limiter, taken: Permits, actual: Permits): Answer {
  const names = Object.keys(typeof actual === "number" ? list(taken) : actual);
  const changes = names.map((name) => {
    const used = of(actual, name) ?? 0;
    return [name, used - (of(taken, name) ?? 0)] as const;
  });
  const more = changes.filter(([, change]) => change > 0);
  const less = changes.flatMap(([name, change]) => (change < 0 ? [[name, -change] as const] : []));
  const charged = more.length > 0 ? charge(limiter, more) : undefined;
  return after(charged, () => (less.length > 0 ? limiter.refund(toPermits(less)) : undefined));
}

/** At once, unless there is something to wait for. */
function after(first: Answer, next: () => Answer): Answer {
  return first instanceof Promise ? first.then(next) : next();
}

type Amount = readonly [name: string, amount: number];

/** What was used counts, even if it is more than a policy can hold: then in portions. */
function charge(limiter: Limiter, amounts: readonly Amount[]): Answer {
  const inPortions = (error: unknown) => chargePortions(limiter, amounts, error);
  try {
    const charged = limiter.charge(toPermits(amounts));
    return charged instanceof Promise ? charged.catch(inPortions) : charged;
  } catch (error) {
    return inPortions(error);
  }
}

function chargePortions(limiter: Limiter, amounts: readonly Amount[], error: unknown): Answer {
  if (!(error instanceof PermitsExceedCapacityError)) throw error;
  const { policy, capacity } = error.facts;
  const portion = (name: string, amount: number) =>
    name === policy || name === ONLY ? Math.min(amount, capacity) : amount;
  const rest = amounts
    .map(([name, amount]): Amount => [name, amount - portion(name, amount)])
    .filter(([, amount]) => amount > 0);
  if (rest.length === 0) throw error;
  const first = amounts.map(([name, amount]): Amount => [name, portion(name, amount)]);
  return after(charge(limiter, first), () => charge(limiter, rest));
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
