/** The option `rules` of a gateway. */
import { show } from "../ground/check.ts";
import type { Rule } from "../rules/rule.ts";
import type { UrlRules } from "../rules/schema.ts";
import { fixedSource, type RuleSource } from "./source.ts";

export type RulesOption =
  | RuleSource
  | readonly RuleSource[]
  | UrlRules
  | readonly UrlRules[]
  | readonly Rule[];

/** Returns the sources of the rules: objects are a source that never changes. */
export function sourcesOf(
  rules: RulesOption,
  read: (rules: readonly UrlRules[]) => readonly Rule[],
): readonly RuleSource[] {
  const list = (Array.isArray(rules) ? rules : [rules]) as readonly (
    | RuleSource
    | Rule
    | UrlRules
  )[];
  const sources = list.filter((one): one is RuleSource => isSource(one));
  if (sources.length === 0) {
    if (Array.isArray(rules) && list.every(isRead)) return [fixedSource(list as readonly Rule[])];
    if (list.every(isObject)) return [fixedSource(read(list as readonly UrlRules[]))];
  } else if (sources.length === list.length) {
    return sources;
  }
  const fix =
    typeof rules === "string" ? ": readRules(text) reads a text, fileSource(path) a file" : "";
  throw new TypeError(
    `rules must be a source, sources, plain objects, or the result of readRules, got ${show(rules)}${fix}`,
  );
}

/** Whether it is a rule that `readRules` has returned. */
function isRead(one: unknown): boolean {
  return typeof (Object(one) as Partial<Rule>).place === "object";
}

function isObject(one: unknown): boolean {
  return typeof one === "object" && one !== null && !(one instanceof Promise);
}

function isSource(one: unknown): boolean {
  return typeof (Object(one) as Partial<RuleSource>).load === "function";
}
