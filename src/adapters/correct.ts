import type { Limiter } from "../api/limiter-api.ts";
import { atLeastZero, checkNumber } from "../ground/check.ts";
import { LimiterError, PermitsExceedCapacityError } from "../ground/errors.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import { emitWarning } from "../ground/node-process.ts";
import type { Permits } from "../ground/permits.ts";

/** The key of a single number; no policy has this name. */
const ONLY = "";

type Correction = MaybePromise<void>;

/**
 * Corrects the permits that were taken to those that were used: later callers pay for more, and
 * less is given back.
 *
 * @param actual what was used in all, 0 or more; policies that are not named stay as they are
 * @returns a promise if the limiter returns one
 */
export function correct(limiter: Limiter, taken: Permits, actual: Permits): Correction {
  const names = Object.keys(typeof actual === "number" ? list(taken) : actual);
  const changes = names.map((name) => {
    const used = of(actual, name) ?? 0;
    return [name, used - (of(taken, name) ?? 0)] as const;
  });
  const more = changes.filter(([, change]) => change > 0);
  const less = changes.flatMap(([name, change]) => (change < 0 ? [[name, -change] as const] : []));
  const charged = more.length > 0 ? charge(limiter, more) : undefined;
  return chain(charged, () => (less.length > 0 ? limiter.refund(toPermits(less)) : undefined));
}

const warned = new WeakSet<Limiter>();

/** Warns once for each limiter. Outages are left out, because the limiter itself publishes them. */
export function warnUnsettled(what: string, limiter: Limiter, error: unknown): void {
  if (error instanceof LimiterError || warned.has(limiter)) return;
  warned.add(limiter);
  emitWarning(`${what}, the estimate stands: ${error}`);
}

type Amount = readonly [name: string, amount: number];

/** Charges everything, in portions where it is more than a policy can hold. */
function charge(limiter: Limiter, amounts: readonly Amount[]): Correction {
  const inPortions = (error: unknown) => chargePortions(limiter, amounts, error);
  try {
    const charged = limiter.charge(toPermits(amounts));
    return charged instanceof Promise ? charged.catch(inPortions) : charged;
  } catch (error) {
    return inPortions(error);
  }
}

function chargePortions(limiter: Limiter, amounts: readonly Amount[], error: unknown): Correction {
  if (!(error instanceof PermitsExceedCapacityError)) throw error;
  const { policy, capacity } = error.facts;
  const portion = (name: string, amount: number) =>
    name === policy || name === ONLY ? Math.min(amount, capacity) : amount;
  const rest = amounts
    .map(([name, amount]): Amount => [name, amount - portion(name, amount)])
    .filter(([, amount]) => amount > 0);
  if (rest.length === 0) throw error;
  const first = amounts.map(([name, amount]): Amount => [name, portion(name, amount)]);
  return chain(charge(limiter, first), () => charge(limiter, rest));
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

/** Checks permits without knowing the policies; the limiter checks the rest. */
export function checkPermits(name: string, permits: unknown): void {
  if (typeof permits !== "object" || permits === null || Array.isArray(permits)) {
    checkNumber(name, permits, atLeastZero);
  } else {
    for (const [key, each] of Object.entries(permits))
      checkNumber(`${name}.${key}`, each, atLeastZero);
  }
}
