import { LimiterError } from "../../../errors.ts";
import type { Place } from "./rule.ts";

/** One thing that is wrong in a file of rules. */
export interface Problem extends Place {
  /** In words: what was found, and what is allowed. */
  readonly message: string;
}

/** Rules that cannot be used. None of them is: whoever reads them keeps what there was before. */
export class RulesError extends LimiterError<{ readonly problems: readonly Problem[] }> {
  constructor(problems: readonly Problem[]) {
    const lines = problems.map(
      ({ source, line, column, message }) => `${source}:${line}:${column}: ${message}`,
    );
    super("RULES_INVALID", lines.join("\n"), { problems });
  }
}
