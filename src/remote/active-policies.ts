/** The limits by the store's last reply: the numbers in force, and limits that operators keep in keys. */
import type { Algorithm, Policy } from "../algorithms/algorithm.ts";
import { readPoliciesOf, writePolicies } from "../algorithms/index.ts";
import { decision } from "../api/decision.ts";
import type { Decision } from "../api/limiter-api.ts";
import { show } from "../ground/check.ts";
import { diagnostics } from "../ground/diagnostics.ts";
import { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { PolicyState } from "../stores/state/one.ts";
import { openPolicyState } from "../stores/state/several.ts";
import type { LimitNote, StoreReply } from "../stores/store.ts";

const NONE: readonly LimitNote[] = [];

export class ActivePolicies {
  /** The policies' numbers, in the store's notation. */
  numbers: string;
  readonly #limiter: string;
  readonly #names: readonly string[];
  readonly #algorithms: readonly Algorithm[];
  #notes = NONE;
  /** Those of `numbers`, once they have been read. */
  #policies: readonly Policy[] | undefined;
  #policyState: PolicyState | undefined;

  constructor(limiter: string, { names, list }: PolicyList) {
    this.#limiter = limiter;
    this.#names = names;
    this.#algorithms = list.map(({ algorithm }) => algorithm);
    this.numbers = writePolicies(list);
  }

  /**
   * Processes a reply. A value that is not a limit is published when it first appears.
   *
   * @throws TypeError if the numbers cannot be read: a later use of them would have no caller to report it to
   */
  replied({ inForce, notes = NONE }: Pick<StoreReply, "inForce" | "notes">): void {
    if (inForce !== this.numbers) {
      this.#policies = this.#read(inForce);
      this.numbers = inForce;
      this.#policyState = undefined;
    }
    if (notes === this.#notes) return;
    const before = this.#notes;
    this.#notes = notes;
    for (const { policy, ignored } of notes) {
      const known = before.some((one) => one.policy === policy && one.ignored === ignored);
      if (known || ignored === undefined || !diagnostics.limitIgnored.hasSubscribers) continue;
      const name = String(this.#names[policy]);
      diagnostics.limitIgnored.publish({ limiter: this.#limiter, policy: name, value: ignored });
    }
  }

  /** The same array as long as the numbers stay the same. */
  get policies(): readonly Policy[] {
    this.#policies ??= this.#read(this.numbers);
    return this.#policies;
  }

  #read(text: string): readonly Policy[] {
    const policies = readPoliciesOf(this.#algorithms, text);
    const isWhole = policies.length === this.#algorithms.length;
    if (isWhole && !policies.some(({ numbers }) => numbers.some(Number.isNaN))) return policies;
    throw new TypeError(`the store answered ${show(text)} as the numbers in force`);
  }

  /** A new state under the policies in force; read-only. */
  get policyState(): PolicyState {
    this.#policyState ??= openPolicyState({ names: this.#names, list: this.policies }, 0, 0);
    return this.#policyState;
  }

  /** Returns the index of a requested policy that has the limit 0 now; -1 if there is none. */
  closed(amount: Amount): number {
    const asked = (policy: number) => typeof amount === "number" || Boolean(amount[policy]);
    return this.#names.findIndex((_, policy) => this.closes(policy) && asked(policy));
  }

  /** Returns the rejection of a request that asks a policy with the limit 0; undefined: there is none. */
  rejection(amount: Amount): Decision | undefined {
    const closed = this.closed(amount);
    if (closed < 0) return undefined;
    const quotas = this.policyState.quotas(0).map((quota, i) => {
      const isClosed = this.closes(i);
      return { ...quota, allowed: !isClosed, ...(isClosed && { limit: 0, remaining: 0 }) };
    });
    return decision(this.#names, quotas, amount, Infinity, closed);
  }

  /** Returns whether the limit of that policy is 0 now. */
  closes(index: number): boolean {
    return this.#notes.some(({ policy, ignored }) => policy === index && ignored === undefined);
  }

  /** Returns whether the full policies never let the request through, however long it waits. */
  isImpossible(amount: Amount): boolean {
    return this.policyState.earliest(0, amount) === Infinity;
  }

  /** Returns the error for a request that can never be let through, or that a limit of 0 rejects. */
  excess(amount: Amount): PermitsExceedCapacityError {
    const policy = this.closed(amount);
    if (policy < 0) return this.policyState.excess(0, amount);
    const permits = typeof amount === "number" ? amount : Number(amount[policy]);
    return new PermitsExceedCapacityError(String(this.#names[policy]), permits, 0);
  }
}
