import type { Rule } from "../rules/rule.ts";

/** A source of rules. */
export interface RuleSource {
  /** The source's name in messages, such as a file name or a URL. */
  readonly name: string;

  /**
   * Returns the current rules.
   *
   * @param signal aborted when the result is not needed any more
   * @returns YAML, or rules that were read already; the same value again if nothing has changed
   * @throws (rejects) if the source cannot be reached
   */
  load(signal: AbortSignal): Promise<string | readonly Rule[]>;

  /**
   * Calls `changed` whenever `load` may return something new. Absent: the rules never change.
   *
   * @returns a function that ends it
   */
  watch?(changed: () => void): () => unknown;
}

/** The most bytes that are read from any source; longer rules would be rejected anyway. */
export const LONGEST_TEXT = 2 ** 19;

export function tooLong(name: string): RangeError {
  return new RangeError(`${name} has more than ${LONGEST_TEXT} bytes`);
}

/** A source of rules that were read already. */
export function fixedSource(rules: readonly Rule[]): RuleSource {
  return { name: "rules", load: async () => rules };
}
