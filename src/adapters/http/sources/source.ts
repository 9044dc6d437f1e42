import type { Rule } from "../rules/rule.ts";

/** Where rules come from. */
export interface RuleSource {
  /** What messages call it: the name of a file, a URL. */
  readonly name: string;

  /**
   * The rules as they are now.
   *
   * @param signal aborted when nobody wants them any more
   * @returns YAML, or rules that were read already; the same again where nothing has changed
   * @throws (as a rejection) where the source cannot be reached
   */
  load(signal: AbortSignal): Promise<string | readonly Rule[]>;

  /**
   * Calls `changed` whenever `load` may have something new to tell. Absent: it never has.
   *
   * @returns ends it
   */
  watch?(changed: () => void): () => unknown;
}

/** More than this is read from nowhere, in bytes; rules of that length are refused anyway. */
export const LONGEST_TEXT = 2 ** 19;

export function tooLong(name: string): RangeError {
  return new RangeError(`${name} has more than ${LONGEST_TEXT} bytes`);
}

/** Rules that are there already. */
export function fixedSource(rules: readonly Rule[]): RuleSource {
  return { name: "rules", load: async () => rules };
}
