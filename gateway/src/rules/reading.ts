/** What servers and tools import to read rules. */
export { type ReadOptions, readRules } from "./read-rules.ts";
export type {
  Align,
  AnyRule,
  Block,
  ConnectionOverride,
  ConnectionRule,
  Count,
  Place,
  RateNumbers,
  RateOverride,
  RateRule,
  RefusingRule,
  RequestRule,
  Rule,
  RuleNumbers,
  RuleOverride,
  Unit,
} from "./rule.ts";
export { type Problem, RulesError } from "./rules-error.ts";
