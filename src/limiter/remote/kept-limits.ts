/** Tracks the limits that operators keep in keys of the store. */
import { diagnostics, type Teller } from "../../ground/diagnostics.ts";
import { PermitsExceedCapacityError } from "../../ground/errors.ts";
import type { Amount } from "../../ground/permits.ts";
import type { LimitNote } from "../../stores/store.ts";

const NONE: readonly LimitNote[] = [];

export class KeptLimits {
  readonly #teller: Teller;
  readonly #names: readonly string[];
  #notes = NONE;

  /** @param names the names of the policies */
  constructor(teller: Teller, names: readonly string[]) {
    this.#teller = teller;
    this.#names = names;
  }

  /** Processes the notes of a reply. A value that is not a limit is published when it first appears. */
  noted(notes = NONE): void {
    if (notes === this.#notes) return;
    const before = this.#notes;
    this.#notes = notes;
    for (const { policy, ignored } of notes) {
      const known = before.some((one) => one.policy === policy && one.ignored === ignored);
      if (known || ignored === undefined || !diagnostics.limitIgnored.hasSubscribers) continue;
      const name = String(this.#names[policy]);
      diagnostics.limitIgnored.publish({ ...this.#teller, policy: name, value: ignored });
    }
  }

  /** Returns the index of a requested policy that has the limit 0 now; -1 if there is none. */
  closed(amount: Amount): number {
    const asked = (policy: number) => typeof amount === "number" || Boolean(amount[policy]);
    return this.#names.findIndex((_, policy) => this.closes(policy) && asked(policy));
  }

  /** Returns whether the limit of that policy is 0 now. */
  closes(index: number): boolean {
    return this.#notes.some(({ policy, ignored }) => policy === index && ignored === undefined);
  }

  /** Returns the error for a request that a limit of 0 rejects; undefined: no limit does. */
  refusal(amount: Amount): PermitsExceedCapacityError | undefined {
    const policy = this.closed(amount);
    if (policy < 0) return undefined;
    const permits = typeof amount === "number" ? amount : Number(amount[policy]);
    return new PermitsExceedCapacityError(String(this.#names[policy]), permits, 0);
  }
}
