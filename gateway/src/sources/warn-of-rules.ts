import { warn } from "../actors/warn.ts";
import type { RulesEvent } from "./live-rules.ts";

/** Reports a source without valid rules as a process warning: for gateways without `onRules`. */
export function warnOfRules(event: RulesEvent): void {
  if (event.type !== "refused" && event.type !== "gone") return;
  const isInvalid = event.type === "refused";
  const reason = event.error instanceof Error ? event.error.message : String(event.error);
  warn(
    isInvalid ? "SMOOTH_LIMITER_RULES_INVALID" : "SMOOTH_LIMITER_RULES_GONE",
    `${event.source}: ${isInvalid ? "these rules are invalid and do not apply" : "the rules cannot be loaded"}: ` +
      `${reason}. Pass onRules to handle this`,
  );
}
