/** A request as one rule sees it. */
import type { Limiter } from "smooth-limiter";
import type { CompiledRequestRule } from "./compiled-request-rule.ts";
import type { Calendar } from "./rules/calendar.ts";

/** The request to one rule. */
export interface Charge {
  readonly active: CompiledRequestRule;
  readonly actor: string;
  /** Whether the actor is the rule's own, and not a replacement for a missing one. */
  readonly isKnown: boolean;
  readonly cost: number;
  /** Undefined: nothing passes. */
  readonly limiter: Limiter | undefined;
  readonly calendar: Calendar | undefined;
}

/** The request to a rule that has a limiter. */
export type OpenCharge = Charge & { readonly limiter: Limiter };

export function isOpen(ask: Charge): ask is OpenCharge {
  return ask.limiter !== undefined;
}
