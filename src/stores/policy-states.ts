/**
 * The states of a limiter's policies at one instant, in the transition of one call: what a store keeps beside
 * the states themselves; and the states of other versions of the code, which declare other algorithms.
 *
 * Times are microseconds after `base`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { readPolicies } from "../algorithms/index.ts";
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import { SinglePolicyState, startOf } from "./state/one.ts";
import { JointPolicyState } from "./state/several.ts";
import type { PolicyQuota } from "./store.ts";

/** The smallest request: its first instant is the end of the promised permits. */
const TINY = 5e-324;

/** The fields of a state. Each is saved as a double; a list as its length and then its numbers. */
type Fields = Record<string, number | readonly number[]>;

/** The result of asking each policy alone. */
export interface Alone {
  /** The index of the policy with the longest wait. */
  readonly slowest: number;
  /** For each policy whether it would grant the request now. */
  readonly open: readonly boolean[];
}

/** The states under the policies that one version of the code declares. */
interface Version {
  readonly numbers: string;
  readonly policies: readonly Policy[];
  readonly parts: readonly SinglePolicyState[];
  readonly joint: JointPolicyState;
  /** For a version that is not the caller's: when nothing that it has granted has an effect any more. */
  ends: number;
}

export class PolicyStates {
  base: number;
  now: number;
  /** The instant before which no request is granted. */
  pausedUntil = 0;
  /** The policies with a limit that is kept in a key and is 0 now. */
  closed: ReadonlySet<number> = new Set();
  /** The caller's version. */
  #own: Version = {
    numbers: "",
    policies: [],
    parts: [],
    joint: new JointPolicyState([], []),
    ends: 0,
  };
  #others: readonly Version[] = [];

  constructor(base: number, now: number) {
    this.base = base;
    this.now = now;
  }

  /** Starts anew, without other versions. */
  start(numbers: string): void {
    this.#own = this.#started(numbers, this.now);
    this.#others = [];
  }

  #started(numbers: string, at: number): Version {
    return versionOf(numbers, (policy) => startOf(policy, at, this.base));
  }

  /**
   * @param numbers those of the last writer's version, then those of others
   * @param next the fields of the states, one after the other
   * @throws RangeError if a field is not valid
   */
  load([numbers = "", ...others]: readonly string[], next: () => number): void {
    const length = () => {
      const value = next();
      if (Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
      throw new RangeError(`a list of ${value} numbers`);
    };
    const stateOf = (policy: Policy) => {
      if (policy.numbers.some(Number.isNaN)) throw new RangeError("numbers that are none");
      const state = policy.algorithm.start(policy, 0) as Fields;
      for (const field of Object.keys(state)) {
        if (typeof state[field] === "number") {
          state[field] = next();
        } else {
          const list: number[] = [];
          for (let left = length(); left > 0; left--) list.push(next());
          state[field] = list;
        }
      }
      return state;
    };
    this.#own = versionOf(numbers, stateOf);
    this.#others = others.map((text) => {
      const ends = next();
      return { ...versionOf(text, stateOf), ends };
    });
  }

  /**
   * Goes on with the version of the code that declares these numbers. If the last writer was a version with
   * other algorithms, its state is kept for as long as it matters, and a version that is new starts with
   * what the last writer had used at its last write.
   *
   * @param written the instant of that: a refusal is not written, so a new version must not start at each
   *   of its calls
   */
  use(numbers: string, written: number): void {
    const { now } = this;
    const last = this.#own;
    if (last.numbers !== numbers && codesOf(last.numbers) !== codesOf(numbers)) {
      const known = this.#others.find((other) => codesOf(other.numbers) === codesOf(numbers));
      // what others take later does not keep a version: only what it has granted itself must be remembered
      last.ends = now + last.joint.lifetime(now);
      this.#others = [...this.#others.filter((other) => other !== known), last];
      this.#own = known ?? this.#started(numbers, written);
      if (known === undefined) charge(this.#own, written, last.joint.deficit(written));
    }
    this.#others = this.#others.filter(({ ends }) => ends > now);
    if (this.#own.numbers !== numbers) this.resize(numbers);
  }

  /** The numbers of other versions, as `load` gets them. */
  get others(): readonly string[] {
    return this.#others.map((other) => other.numbers);
  }

  /** The algorithms of each other version. */
  get otherAlgorithms(): readonly string[] {
    return this.#others.map(({ policies }) =>
      policies.map(({ algorithm }) => algorithm.name).join(" + "),
    );
  }

  /** Returns the fields of the states, in the order in which `load` reads them. */
  dump(): number[] {
    const dumped = fieldsOf(this.#own);
    for (const other of this.#others) dumped.push(other.ends, ...fieldsOf(other));
    return dumped;
  }

  shift(by: number): void {
    for (const version of [this.#own, ...this.#others]) {
      version.joint.shift(by);
      version.ends += by;
    }
    this.pausedUntil += by;
  }

  resize(numbers: string): void {
    const policies = policiesOf(numbers);
    this.#own.joint.resize(this.now, policies, this.base);
    this.#own = { ...this.#own, numbers, policies };
  }

  /** Returns a number of permits for each policy. */
  amounts(amount: Amount): readonly number[] {
    return this.#own.parts.map((_, i) => (typeof amount === "number" ? amount : (amount[i] ?? 0)));
  }

  /** Returns the first instant at or after `from` on which all policies agree; `Infinity`: never. */
  earliest(from: number, permits: readonly number[]): number {
    if (this.refusing(permits) >= 0) return Infinity;
    const at = this.#own.joint.earliest(from, permits);
    if (Number.isNaN(at)) throw new RangeError("an instant that is not a number");
    return at;
  }

  /**
   * Takes the permits.
   *
   * @returns the receipts; after them, if the caller has to wait, the instants up to which permits are
   *   then promised; an empty list if all of these are 0
   */
  take(at: number, permits: readonly number[]): readonly number[] {
    const waits = at > this.now;
    const { policies, parts } = this.#own;
    const algorithms = policies.map(({ algorithm }) => algorithm);
    const only = algorithms.length === 1 ? algorithms[0] : undefined;
    const receipts = parts.map((part, i) => {
      const asked = permits[i] ?? 0;
      if (asked === 0) return 0;
      return part.take(at, asked) + (algorithms[i]?.receiptIsTime ? this.base : 0);
    });
    if (waits && !only?.receiptIsTime) {
      for (const [i, part] of parts.entries()) {
        const says = !algorithms[i]?.receiptIsTime && (permits[i] ?? 0) > 0;
        receipts.push(says ? this.#promisedUntil(part) : 0);
      }
    }
    this.#chargeOthers(permits);
    // no later request overtakes one that was promised an instant
    if (waits && !only?.inOrder) this.pausedUntil = Math.max(this.pausedUntil, at);
    return receipts.some((receipt) => receipt !== 0) ? receipts.map(unsigned) : [];
  }

  /** Returns when the smallest next request could be granted; Unix time, microseconds. */
  #promisedUntil(part: SinglePolicyState): number {
    return Math.floor(part.earliest(this.now, TINY)) + this.base;
  }

  /**
   * Gives back permits of one grant that were not used. Later promises stay valid, so unless the grant
   * was the last one, only as many permits come back as the algorithm can keep.
   */
  giveBack(permits: readonly number[], receipts: readonly number[]): void {
    const { policies, parts } = this.#own;
    policies.forEach((policy, i) => {
      const { algorithm } = policy;
      const part = parts[i] as SinglePolicyState;
      const given = permits[i] ?? 0;
      const receipt = receipts[i] ?? 0;
      if (given === 0) return;
      if (algorithm.receiptIsTime) {
        this.#refund(i, given, receipt);
        return;
      }
      const until = this.#promisedUntil(part);
      const isLast = until <= this.now + this.base || until === receipts[parts.length + i];
      if (isLast) algorithm.giveBack(policy, part.state, this.now, given, receipt);
      else algorithm.keep?.(policy, part.state, given);
    });
  }

  /** @param receipts of the grant that they belong to; empty: that is not known */
  refund(permits: readonly number[], receipts: readonly number[] = []): void {
    permits.forEach((given, i) => {
      if (given > 0) this.#refund(i, given, receipts[i] ?? 0);
    });
  }

  /** An amount of stored permits, as a receipt, fits only the whole grant, and only if it was the last. */
  #refund(i: number, permits: number, receipt: number): void {
    const { policies, parts } = this.#own;
    const policy = policies[i] as Policy;
    const isKnown = policy.algorithm.receiptIsTime && receipt !== 0;
    const at = isKnown ? receipt - this.base : undefined;
    policy.algorithm.giveBack(policy, parts[i]?.state, this.now, permits, at);
  }

  /** Charges permits that were used outside of this state, in accordance with the policies. */
  settle(permits: readonly number[]): void {
    this.#own.joint.settle(this.now, permits);
    this.#chargeOthers(permits);
  }

  #chargeOthers(permits: readonly number[]): void {
    for (const other of this.#others) charge(other, this.now, permits);
  }

  /** Returns the first closed policy that is asked for permits; -1 if there is none. */
  refusing(permits: readonly number[]): number {
    return this.#own.parts.findIndex((_, i) => this.closed.has(i) && (permits[i] ?? 0) > 0);
  }

  /**
   * Returns the first policy that rejects the permits, which are not available now, instead of letting
   * them wait; -1 if there is none.
   */
  overflowing(permits: readonly number[]): number {
    return this.#own.joint.overflowing(this.now, permits);
  }

  alone(from: number, permits: readonly number[]): Alone {
    const instants = this.#own.joint.instants(from, permits);
    const open = instants.map((instant, i) => {
      return instant <= this.now && !(this.closed.has(i) && (permits[i] ?? 0) > 0);
    });
    return { slowest: instants.indexOf(Math.max(...instants)), open };
  }

  quotas(open: readonly boolean[]): PolicyQuota[] {
    const pausedMs = toMillis(this.pausedUntil - this.now);
    return this.#own.joint.quotas(this.now).map((own, i) => {
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
  deficit(): readonly number[] {
    return this.#own.joint.deficit(this.now);
  }

  /** Returns for how many microseconds the states must be kept. */
  lifetime(): number {
    const { now } = this;
    const ends = this.#others.map((other) => other.ends - now);
    return Math.max(this.pausedUntil - now, this.#own.joint.lifetime(now), ...ends);
  }
}

function versionOf(numbers: string, stateOf: (policy: Policy) => unknown): Version {
  const policies = policiesOf(numbers);
  if (policies.length !== numbers.split("\n").length) throw new RangeError("an unknown algorithm");
  const parts = policies.map((policy) => new SinglePolicyState(policy, stateOf(policy)));
  return { numbers, policies, parts, joint: new JointPolicyState([], parts), ends: 0 };
}

function fieldsOf({ parts }: Version): number[] {
  const fields: number[] = [];
  for (const { state } of parts) {
    for (const value of Object.values(state as Fields)) {
      if (typeof value === "number") fields.push(value);
      else for (const number of [value.length, ...value]) fields.push(number);
    }
  }
  return fields;
}

/**
 * Charges a version what another one takes, as far as it has that: it is left with no debt that is not its own.
 * Policies correspond by their order; those that the other one has not get what its last one gets.
 */
function charge({ parts }: Version, now: number, permits: readonly number[]): void {
  for (const [i, part] of parts.entries()) {
    const taken = Math.min(permits[i] ?? permits.at(-1) ?? 0, part.quota(now).remaining);
    if (taken > 0) part.take(now, taken);
  }
}

/** Returns the codes of the algorithms: the first character of each line. */
export function codesOf(numbers: string): string {
  return numbers.replace(/^(.).*$/gm, "$1");
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
