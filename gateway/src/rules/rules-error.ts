import { LimiterError } from "smooth-limiter";
import type { Place } from "./rule.ts";

/** A problem in a file of rules. */
export interface Problem extends Place {
  /** What was found, and what is allowed. */
  readonly message: string;
}

/** Rules that are invalid. None of them is applied; the rules before them stay in force. */
export class RulesError extends LimiterError<{ readonly problems: readonly Problem[] }> {
  static readonly code = "RULES_INVALID";

  constructor(problems: readonly Problem[]) {
    const lines = problems.map(({ source, line, column, message }) =>
      line === 0 ? `${source}: ${message}` : `${source}:${line}:${column}: ${message}`,
    );
    super(RulesError.code, lines.join("\n"), { problems });
    // a minifier renames the class
    if (new.target === RulesError) this.name = "RulesError";
  }
}
