/**
 * The states of a limiter's policies at one instant, in the frame of one call. All policies agree on
 * an instant before permits are taken from any of them.
 *
 * Times are microseconds after `base`.
 */
import type { Algorithm, Policy } from "../algorithms/algorithm.ts";
import { readPolicies } from "../algorithms/index.ts";
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyQuota } from "./store.ts";

/** The smallest request: its first instant is the end of the promised permits. */
const TINY = 5e-324;

interface Part {
  readonly algorithm: Algorithm;
  policy: Policy;
  readonly state: unknown;
}

/** The fields of a state. Each is saved as a double; a list as its length and then its numbers. */
type Fields = Record<string, number | readonly number[]>;

/** The result of asking each policy alone. */
export interface Alone {
  /** The index of the policy with the longest wait. */
  readonly slowest: number;
  /** For each policy whether it would grant the request now. */
  readonly open: readonly boolean[];
}

export class PolicyStates {
  base: number;
  now: number;
  /** The instant before which no request is granted. */
  pausedUntil = 0;
  /** The policies with a limit that is kept in a key and is 0 now. */
  closed: ReadonlySet<number> = new Set();
  #parts: Part[] = [];

  constructor(base: number, now: number) {
    this.base = base;
    this.now = now;
  }

  start(numbers: string): void {
    this.#parts = policiesOf(numbers).map((policy) => {
      const { algorithm } = policy;
      const state = algorithm.start(policy, this.now);
      algorithm.align?.(policy, state, this.base);
      return { algorithm, policy, state };
    });
  }

  /**
   * @param next the fields of the states, one after the other
   * @throws RangeError if a field is not valid
   */
  load(numbers: string, next: () => number): void {
    const length = () => {
      const value = next();
      if (Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
      throw new RangeError(`a list of ${value} numbers`);
    };
    this.#parts = policiesOf(numbers).map((policy) => {
      const { algorithm } = policy;
      if (policy.numbers.some(Number.isNaN)) throw new RangeError("numbers that are none");
      const state = algorithm.start(policy, 0) as Fields;
      for (const [field, value] of Object.entries(state)) {
        if (typeof value === "number") {
          state[field] = next();
        } else {
          const list: number[] = [];
          for (let left = length(); left > 0; left--) list.push(next());
          state[field] = list;
        }
      }
      return { algorithm, policy, state };
    });
  }

  /** Returns the fields of the states, in the order in which `load` reads them. */
  dump(): number[] {
    const dumped: number[] = [];
    for (const { state } of this.#parts) {
      for (const value of Object.values(state as Fields)) {
        if (typeof value === "number") dumped.push(value);
        else for (const number of [value.length, ...value]) dumped.push(number);
      }
    }
    return dumped;
  }

  shift(by: number): void {
    for (const { algorithm, state } of this.#parts) algorithm.shift(state, by);
    this.pausedUntil += by;
  }

  resize(numbers: string): void {
    policiesOf(numbers).forEach((policy, i) => {
      const part = this.#parts[i] as Part;
      part.algorithm.resize(policy, part.state, this.now, part.policy);
      part.algorithm.align?.(policy, part.state, this.base);
      part.policy = policy;
    });
  }

  /** Returns a number of permits for each policy. */
  amounts(amount: Amount): readonly number[] {
    return this.#parts.map((_, i) => (typeof amount === "number" ? amount : (amount[i] ?? 0)));
  }

  /** Returns the first instant at or after `from` on which all policies agree; `Infinity`: never. */
  earliest(from: number, permits: readonly number[]): number {
    if (this.refusing(permits) >= 0) return Infinity;
    let at = from;
    for (;;) {
      let agreed = at;
      this.#parts.forEach(({ algorithm, policy, state }, i) => {
        const asked = permits[i] ?? 0;
        if (asked > 0) agreed = algorithm.earliest(policy, state, agreed, asked);
      });
      if (Number.isNaN(agreed)) throw new RangeError("an instant that is not a number");
      if (agreed === at) return at;
      at = agreed;
    }
  }

  /**
   * Takes the permits.
   *
   * @returns the receipts; after them, if the caller has to wait, the instants up to which permits are
   *   then promised; an empty list if all of these are 0
   */
  take(at: number, permits: readonly number[]): readonly number[] {
    const waits = at > this.now;
    const isAlone = this.#parts.length === 1;
    const [first] = this.#parts;
    const receipts = this.#parts.map(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      if (asked === 0) return 0;
      return algorithm.take(policy, state, at, asked) + (algorithm.receiptIsTime ? this.base : 0);
    });
    if (waits && !(isAlone && first?.algorithm.receiptIsTime)) {
      for (const [i, part] of this.#parts.entries()) {
        const says = !part.algorithm.receiptIsTime && (permits[i] ?? 0) > 0;
        receipts.push(says ? this.#promisedUntil(part) : 0);
      }
    }
    // no later request overtakes one that was promised an instant
    if (waits && !(isAlone && first?.algorithm.inOrder))
      this.pausedUntil = Math.max(this.pausedUntil, at);
    return receipts.some((receipt) => receipt !== 0) ? receipts.map(unsigned) : [];
  }

  /** Returns when the smallest next request could be granted; Unix time, microseconds. */
  #promisedUntil({ algorithm, policy, state }: Part): number {
    return Math.floor(algorithm.earliest(policy, state, this.now, TINY)) + this.base;
  }

  /**
   * Gives back permits of one grant that were not used. Later promises stay valid, so unless the grant
   * was the last one, only as many permits come back as the algorithm can keep.
   */
  giveBack(permits: readonly number[], receipts: readonly number[]): void {
    this.#parts.forEach((part, i) => {
      const { algorithm, policy, state } = part;
      const given = permits[i] ?? 0;
      const receipt = receipts[i] ?? 0;
      if (given === 0) return;
      if (algorithm.receiptIsTime) {
        const at = receipt === 0 ? undefined : receipt - this.base;
        algorithm.giveBack(policy, state, this.now, given, at);
        return;
      }
      const until = this.#promisedUntil(part);
      const isLast = until <= this.now + this.base || until === receipts[this.#parts.length + i];
      if (isLast) algorithm.giveBack(policy, state, this.now, given, receipt);
      else algorithm.keep?.(policy, state, given);
    });
  }

  refund(permits: readonly number[]): void {
    this.#parts.forEach(({ algorithm, policy, state }, i) => {
      const given = permits[i] ?? 0;
      if (given > 0) algorithm.giveBack(policy, state, this.now, given);
    });
  }

  /** Charges permits that were used outside of this state, in accordance with the policies. */
  settle(permits: readonly number[]): void {
    this.#parts.forEach(({ algorithm, policy, state }, i) => {
      const used = permits[i] ?? 0;
      if (used === 0) return;
      if (algorithm.settle) algorithm.settle(policy, state, this.now, used);
      else algorithm.take(policy, state, this.now, used);
    });
  }

  /** Returns the first closed policy that is asked for permits; -1 if there is none. */
  refusing(permits: readonly number[]): number {
    return this.#parts.findIndex((_, i) => this.closed.has(i) && (permits[i] ?? 0) > 0);
  }

  /**
   * Returns the first policy that rejects the permits, which are not available now, instead of letting
   * them wait; -1 if there is none.
   */
  overflowing(permits: readonly number[]): number {
    return this.#parts.findIndex(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      return asked > 0 && algorithm.overflows?.(policy, state, this.now, asked);
    });
  }

  alone(from: number, permits: readonly number[]): Alone {
    let slowest = 0;
    let latest = -Infinity;
    const open = this.#parts.map(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      const at = asked > 0 ? algorithm.earliest(policy, state, from, asked) : -Infinity;
      if (at > latest) {
        slowest = i;
        latest = at;
      }
      return at <= this.now && !(this.closed.has(i) && asked > 0);
    });
    return { slowest, open };
  }

  quotas(open: readonly boolean[]): PolicyQuota[] {
    const pausedMs = toMillis(this.pausedUntil - this.now);
    return this.#parts.map(({ algorithm, policy, state }, i) => {
      const own = algorithm.quota(policy, state, this.now);
      const isClosed = this.closed.has(i);
      const remaining = isClosed || pausedMs > 0 ? 0 : own.remaining;
      return {
        ...own,
        allowed: open[i] === true,
        limit: isClosed ? 0 : own.limit,
        remaining: unsigned(remaining),
        resetMs: unsigned(Math.max(own.resetMs, pausedMs)),
      };
    });
  }

  /** Returns for each policy how many permits it lacks to be full. */
  deficit(): number[] {
    return this.#parts.map(({ algorithm, policy, state }) =>
      algorithm.deficit(policy, state, this.now),
    );
  }

  /** Returns for how many microseconds the states must be kept. */
  lifetime(): number {
    const lives = this.#parts.map(({ algorithm, policy, state }) =>
      algorithm.lifetime(policy, state, this.now),
    );
    return Math.max(this.pausedUntil - this.now, ...lives);
  }
}

/** The policies of the numbers that were read last: it takes longer to read them than to use them. */
const known = new Map<string, readonly Policy[]>();
const MOST_KNOWN = 100;

function policiesOf(numbers: string): readonly Policy[] {
  let policies = known.get(numbers);
  if (policies === undefined) {
    policies = readPolicies(numbers);
    if (known.size === MOST_KNOWN) known.clear();
    known.set(numbers, policies);
  }
  return policies;
}

/** Replaces -0 by 0, because the Lua scripts return numbers as text in which 0 has no sign. */
function unsigned(number: number): number {
  return number === 0 ? 0 : number;
}
