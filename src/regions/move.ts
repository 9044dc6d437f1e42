/**
 * The state of one region's part of a limit, and the move to another part.
 *
 * Promise: all parts together keep the bound of the whole limit, however often they are moved. Think of the limit as a
 * great many equal pieces, each with the same small part of the permits, and each keeping the algorithm's bound. A region
 * holds some of them. If a piece moves with its state, the bound holds whoever holds it. So a move needs no term
 * of its own in the bound; it only must not create permits:
 *
 * - A region that gets pieces gets them *used*, with no permit left: its own permits stay what they were, and only their
 *   rate and capacity grow. A piece of which no permit was used (`fresh`) comes with its permits.
 * - A region that gives pieces away gives fresh ones first, as many as it has beyond its reserve; the others take what was
 *   used with them.
 *   Of windows and logs they rest first, until they are fresh: see `resting.ts`. In a limit with windows `fresh` is about
 *   these alone: what comes back at a rate counts as used in every piece that moves.
 * - A debt (a request that was granted before it was paid for) stays, in permits: at a lower rate it lasts longer, at a
 *   higher one it ends sooner. Logs and sliding windows enter a debt in the future, where nothing can be given back:
 *   they are written anew; now, if a part that grows has room for all that was used.
 *
 * In numbers, with capacity C, a move from part p to part q, and d permits lacking to be full:
 *
 *   grow:    lacking = d + (q - p - fresh) C
 *   shrink:  fresh = what is left beyond the reserve, at most p - q;  lacking = C q - (what is left - C fresh)
 *
 * Example: 100 permits a second, burst 100, a reserve of 0.05, part 0.5 with 30 of 50 permits left. It shrinks to 0.2: of the
 * pieces that go 0.25 are fresh; 5 of its permits are left. Another region grows from 0.1 to 0.4 with 5 of 10 left: it
 * has 30 of 40.
 *
 * A piece has the same windows and steps in each region: those of the calendar, as far as the regions' clocks agree
 * (`onGrid`).
 *
 * With a warm-up stored permits are a debt in time, not a burst: they are scaled with the part, so a region that was
 * idle stays cold when it grows. C is 0 then.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { share } from "../algorithms/index.ts";
import { hasInstants, isDated } from "../algorithms/instants.ts";
import type { Amount } from "../ground/permits.ts";
import { UNKNOWN } from "../queue/supply.ts";
import { type PolicyState, startOf } from "../stores/state/one.ts";
import { capacityOf, type Rest, restOf, type Used, usedLast, usedUp } from "./resting.ts";

/** A move between two parts of the limit, at an instant of the queue. */
export interface Move {
  readonly from: number;
  readonly to: number;
  /** How much of what is gained is fresh. */
  readonly fresh: number;
  /** Keeps its own permits, however small the part becomes. */
  readonly base: number;
}

/** What a move sets free. What is neither fresh nor rests can be used by others at once, and comes used. */
export interface Freed {
  readonly fresh: number;
  /** What is of no use before it is fresh. */
  readonly resting: readonly Rest[];
}

/** Sums of permits are as exact as this. */
const ROUNDING = 1e-12;

/**
 * Moves a state to another part of the limit.
 *
 * @param whole the policies of the whole limit
 */
export function move(
  state: PolicyState,
  whole: readonly Policy[],
  { from, to, fresh, base }: Move,
  now: number,
  epoch: number,
): Freed {
  const capacities = whole.map(capacityOf);
  const lacking = state.deficit(now);
  const left = capacities.map((capacity, i) => capacity * from - (lacking[i] ?? 0));
  const released = Math.max(0, from - to);
  const rests = whole.some(hasInstants);
  const counts = countsOf(whole);
  const freed = Math.min(released, freshIn(state, whole, from, base, now));
  const gained = Math.max(0, to - from);
  const debts = debtsOf(state, now);
  const entries = lastEntries(state, partsOf(whole, from), now);
  const parts = partsOf(whole, to);
  const old = rests && released > 0 ? state.copy() : undefined;
  state.resize(now, parts, epoch);
  const after = state.deficit(now);
  const more: number[] = [];
  const less: number[] = [];
  for (const [i, capacity] of capacities.entries()) {
    const isCounted = (counts[i] ?? 0) > 0;
    const used = gained - (isCounted ? Math.min(fresh, gained) : 0);
    const entry = entries[i];
    if (capacity > 0 && entry !== undefined) {
      more.push(0);
      less.push(0);
      const part = parts[i] as Policy;
      const own = statesOf(state)[i] as object;
      const all = (lacking[i] ?? 0) + used * capacity;
      if (to > from && all <= capacity * to) {
        // there is room for it: it is used now
        enter(part, own, now, all, epoch);
        continue;
      }
      const { micros, windowMicros } = entry;
      // within a window requests that were granted come back too: only what is later is a debt alone
      const debt = Math.max(0, micros - windowMicros);
      const exact = now + (micros - debt) + debt * (from / to);
      // rounded down when it grows, and up when it shrinks: to and fro nothing is forgiven, and nothing added
      const at = to > from ? exact : -enter(part, {}, -exact, 1, -epoch) + windowMicros;
      const permits = entry.used + (used - released) * capacity;
      enter(part, own, at, permits, epoch);
      continue;
    }
    if (capacity === 0) {
      // without a capacity a debt is a time: it lasts longer at a lower rate
      const { algorithm } = parts[i] as Policy;
      algorithm.shift(statesOf(state)[i], (debts[i] ?? 0) * (from / to - 1));
      more.push(0);
      less.push(0);
      continue;
    }
    const kept = Math.min((left[i] ?? 0) - (isCounted ? freed : 0) * capacity, capacity * to);
    const target = to > from ? (lacking[i] ?? 0) + used * capacity : capacity * to - kept;
    const change = target - (after[i] ?? 0);
    // by a rounding less: what a full log or window has no room for would be entered in the future, as a debt
    more.push(Math.max(0, change - capacity * to * ROUNDING));
    less.push(Math.max(0, -change));
  }
  if (more.some((permits) => permits > 0)) state.settle(now, like(state, more));
  if (less.some((permits) => permits > 0)) state.giveBack(now, like(state, less));
  if (old === undefined) return { fresh: freed, resting: [] };
  const used = whole.flatMap((policy, i): Used | readonly Used[] => {
    const permits = Math.min(lacking[i] ?? 0, (released - freed) * (capacities[i] ?? 0));
    if (!hasInstants(policy) || permits === 0) return [];
    return isDated(policy)
      ? usedLast(policy, share(policy, from), statesOf(old)[i], permits, now)
      : usedUp(policy, permits, now, epoch);
  });
  return { fresh: freed, resting: restOf(used, released - freed) };
}

/** Returns the capacities of which a piece can be fresh, by policy; 0: it cannot. */
function countsOf(whole: readonly Policy[]): readonly number[] {
  // beside windows, what comes back at a rate always comes used: it is back before they are
  const rests = whole.some(hasInstants);
  return whole.map((policy) => (!rests || hasInstants(policy) ? capacityOf(policy) : 0));
}

/** Returns how much of a part is fresh, beyond the reserve. */
export function freshIn(
  state: PolicyState,
  whole: readonly Policy[],
  part: number,
  base: number,
  now: number,
): number {
  const lacking = state.deficit(now);
  return countsOf(whole).reduce((fresh, capacity, i) => {
    const left = capacity * part - (lacking[i] ?? 0);
    return capacity > 0 ? Math.min(fresh, Math.max(0, left / capacity - base)) : fresh;
  }, Infinity);
}

/** Returns for how many ms the whole limit has to work for what a part was charged, or lent, beyond what it had. */
export function owedMs(
  state: PolicyState,
  whole: readonly Policy[],
  rates: readonly number[],
  part: number,
  now: number,
): number {
  const lacking = state.deficit(now);
  const debts = debtsOf(state, now);
  const owed = whole.map((policy, i) => {
    const capacity = capacityOf(policy);
    if (capacity === 0) return ((debts[i] ?? 0) / 1000) * part;
    const permits = (lacking[i] ?? 0) - capacity * part;
    return permits > capacity * part * ROUNDING ? permits / (rates[i] ?? 1) : 0;
  });
  return Math.max(...owed);
}

/** Returns for how many µs each policy grants nothing, however little is asked for. */
function debtsOf(state: PolicyState, now: number): readonly number[] {
  const least = statesOf(state).map(() => Number.MIN_VALUE);
  const micros = state.instants(now, like(state, least)).map((at) => Math.max(0, at - now));
  return micros.map((debt) => (debt < UNKNOWN ? debt : 0));
}

/** Returns the state of each policy. */
function statesOf(state: PolicyState): readonly unknown[] {
  return typeof state.amount(1) === "number" ? [state.state] : (state.state as readonly unknown[]);
}

/** Returns after how many µs the state of each policy is over. */
export function lifetimesOf(
  state: PolicyState,
  policies: readonly Policy[],
  now: number,
): readonly number[] {
  return statesOf(state).map((own, i) => {
    const policy = policies[i] as Policy;
    return policy.algorithm.lifetime(policy, own, now);
  });
}

/** The last entry of a state that has entered a debt in the future: no permit is granted before it. */
interface LastEntry {
  /** In how many µs it is, and how many permits are used then. */
  readonly micros: number;
  readonly used: number;
  readonly windowMicros: number;
}

/** Returns the last entry of each policy that has entered a debt in the future. */
function lastEntries(
  state: PolicyState,
  parts: readonly Policy[],
  now: number,
): readonly (LastEntry | undefined)[] {
  return statesOf(state).map((own, i) => {
    const part = parts[i] as Policy;
    const { algorithm } = part;
    const { limit, windowMs } = algorithm.quota(part, own, now);
    const lacking = algorithm.deficit(part, own, now);
    if (lacking <= limit) return undefined;
    const empty = algorithm.copy(own);
    algorithm.giveBack(part, empty, now, lacking);
    const micros = algorithm.earliest(part, empty, now, Number.MIN_VALUE) - now;
    if (micros <= 0) return undefined;
    const windowMicros = Math.round(windowMs * 1000);
    // the deficit counts the windows until then as full
    const used = lacking - Math.ceil(micros / windowMicros) * limit;
    return { micros, used, windowMicros };
  });
}

/** Writes a state anew in which so many permits are used at that instant. @returns when they come back */
function enter(part: Policy, own: object, at: number, permits: number, epoch: number): number {
  const { limit } = part.algorithm.quota(part, startOf(part, at, epoch), at);
  Object.assign(own, startOf(part, at, epoch));
  return part.algorithm.take(part, own, at, Math.min(limit, Math.max(limit * ROUNDING, permits)));
}

function like(state: PolicyState, permits: readonly number[]): Amount {
  return typeof state.amount(1) === "number" ? (permits[0] ?? 0) : permits;
}

export function partsOf(whole: readonly Policy[], part: number): readonly Policy[] {
  return whole.map((policy) => share(policy, part));
}
