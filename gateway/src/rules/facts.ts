/** What a gateway makes of a rule, for tools that read rules. */
import type { Policy } from "smooth-limiter";
import { canonical } from "../actors/address.ts";
import { range } from "../actors/exemption.ts";
import { ANY, readPattern } from "../match/pattern.ts";
import { policiesOf } from "../rule-limiters.ts";
import { ALGORITHMS } from "./algorithms.ts";
import type { RequestRule, RuleNumbers } from "./rule.ts";

/** The numbers of a rule, or of one of its overrides, and the policy that a gateway makes of them. */
export interface RulePolicy {
  readonly numbers: RuleNumbers;
  /** Undefined if the numbers let nothing through. */
  readonly policy: Policy | undefined;
  /**
   * Whether its windows are days or months of a calendar, or one window without an end. The policy
   * has the longest of them.
   */
  readonly isOnCalendar: boolean;
}

/**
 * Returns the policy of a rule, then those of its overrides in their order.
 *
 * @param rule one with a built-in algorithm: those that an application registers are unknown here
 * @throws TypeError where the algorithm is not built in
 */
export function policiesOfRule(rule: RequestRule): readonly RulePolicy[] {
  if (!Object.hasOwn(ALGORITHMS, rule.algo)) {
    const names = Object.keys(ALGORITHMS).join(", ");
    throw new TypeError(`rule.algo must be one of ${names}, got "${rule.algo}"`);
  }
  return [rule, ...rule.overrides].map((numbers) => {
    const { policy, calendar } = policiesOf({ ...rule, ...numbers, overrides: [] }, ALGORITHMS).own;
    return { numbers, policy, isOnCalendar: calendar !== undefined };
  });
}

/**
 * Returns the segments of a path of a rule as the gateway compares them: two paths with equal segments
 * apply to the same requests. Undefined stands for a segment that may be anything.
 *
 * @param path one of the rule's `urls` or of its `except`
 * @example
 * segmentsOf("/Users/:id"); // [ "users", undefined ]
 */
export function segmentsOf(path: string): readonly (string | undefined)[] {
  return readPattern(path).map((segment) => (segment === ANY ? undefined : segment));
}

/**
 * Returns the text as which an address is counted, `"192.0.2.1"` or `"2001:db8:0:100::/56"`; undefined
 * for a text that is no address.
 *
 * @param ipv6Prefix how many leading bits of an IPv6 address count: default 56, as for `fromAddress`
 */
export function addressKey(text: string, ipv6Prefix?: number): string | undefined {
  return canonical(text, ipv6Prefix);
}

/** Returns whether the text is an address or a range such as `"192.0.2.0/24"`, which `exempt` may list. */
export function isAddressOrRange(text: string): boolean {
  return range(text) !== undefined;
}
