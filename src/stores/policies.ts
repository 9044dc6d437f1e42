/** The policies of a limiter: one, or several by name. */
import type { Policy } from "../algorithms/algorithm.ts";
import { failCheck, isRecord } from "../ground/check.ts";
import { TRY_OPTIONS } from "../ground/permits.ts";
import { noteRenumbering } from "../ground/revision.ts";
import { ONLY_NAMES } from "./state/one.ts";

/** One policy, or several by name. */
export type Policies = Policy | Readonly<Record<string, Policy>>;

/** The names of the policies; a policy without a name is called "default". */
export type NamesOf<P extends Policies> = P extends Policy ? "default" : keyof P & string;

/** Policies and their names, in the same order. */
export interface PolicyList {
  readonly names: readonly string[];
  readonly list: readonly Policy[];
}

/** Checks the policies and returns them as a list with their names. */
export function listPolicies(policies: unknown): PolicyList {
  if (isPolicy(policies)) return { names: ONLY_NAMES, list: [policies] };
  if (!isRecord(policies)) {
    failCheck("policies", "a policy, or policies by name", policies);
  }
  const entries = Object.entries(policies);
  if (entries.length === 0) throw new RangeError("policies must name at least one policy");
  const list = entries.map(([name, policy]): Policy => {
    if (TRY_OPTIONS.includes(name)) {
      throw new TypeError(`a policy cannot be named "${name}": that is an option of tryAcquire`);
    }
    if (!isPolicy(policy))
      failCheck(`policies.${name}`, "a policy, such as smoothBursty() returns", policy);
    return policy;
  });
  return { names: entries.map(([name]) => name), list };
}

/**
 * Returns the new policies in the order of the old ones. Throws unless names and algorithms are the same.
 */
export function renumber(before: PolicyList, after: PolicyList): PolicyList {
  noteRenumbering();
  const list = before.names.flatMap((name) => after.list[after.names.indexOf(name)] ?? []);
  const isSame = before.list.every(({ algorithm }, i) => algorithm === list[i]?.algorithm);
  if (isSame && after.list.length === list.length) return { names: before.names, list };
  throw new TypeError(
    `update must keep names and algorithms (${describe(before)}), got (${describe(after)})`,
  );
}

function describe({ names, list }: PolicyList): string {
  return names.map((name, i) => `${name}: ${list[i]?.algorithm.name}`).join(", ");
}

function isPolicy(value: unknown): value is Policy {
  return typeof (value as Partial<Policy> | null | undefined)?.algorithm?.earliest === "function";
}
