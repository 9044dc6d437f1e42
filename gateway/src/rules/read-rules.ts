/**
 * Reads rules from YAML or plain objects, or lists what is wrong, each problem with its line and
 * column, or its path.
 */

import type * as z from "zod";
import { type Checks, checkOptions, checkPrototype, checkText, show } from "../ground/check.ts";
import { isThenable } from "../ground/maybe-promise.ts";
import { checkAlgorithms, type RuleAlgorithms } from "./algorithms.ts";
import { ruleOf } from "./make-rule.ts";
import { treeOfObjects } from "./object-tree.ts";
import { problemsOf } from "./problems.ts";
import type { Place, Rule } from "./rule.ts";
import { type Problem, RulesError } from "./rules-error.ts";
import { keyAt, nodeAt, type RulesNode, type RulesTree } from "./rules-tree.ts";
import { type Entry, type EntrySchema, entrySchema, type UrlRules } from "./schema.ts";
import { BUILT_IN, type Names } from "./schema-fields.ts";
import { treeOfText } from "./yaml-tree.ts";

/** The options of `readRules`. */
export interface ReadOptions extends Partial<Names> {
  /** The name of the text in messages, such as a file's name. Default "rules". */
  readonly source?: string | undefined;
}

function checkNames(name: string, list: unknown): void {
  if (!Array.isArray(list)) {
    throw new TypeError(`${name} must be an array of names, got ${show(list)}`);
  }
  for (const each of list) checkText(name, each);
}

const OPTIONS: Checks<ReadOptions> = {
  source: checkText,
  actors: checkNames,
  actorKinds: checkNames,
  algorithms: (_, algorithms) => checkAlgorithms(algorithms),
  costs: checkNames,
};

/** A single word that ends like the name of a rules file: it cannot be the text of rules. */
const A_PATH = /^\S+\.(?:ya?ml|json)$/i;
const MOST_PROBLEMS = 20;
/** A text has no room for more that are valid. A bound, because to list their mistakes takes seconds. */
const MOST_RULES = 20_000;

/**
 * Reads rules.
 *
 * @param rules YAML (JSON included): a URL with its rules, a list of these, or several documents of
 *   either; at most 524 288 characters. Or the same as plain objects
 * @param options.source the name of the text or of the objects in messages
 * @param options.actors names of actors besides all, account and device
 * @param options.actorKinds kinds of actors that take an argument, besides header and cookie
 * @param options.algorithms algorithms besides the built-in ones, by name
 * @param options.costs names of functions that compute what a request costs
 * @returns the rules, in the order of the text; none for an empty list
 * @throws RulesError that lists what is wrong, with line and column, or with the path in the
 *   objects; TypeError on a bad argument, or if code of the process has added to `Object.prototype`
 * @example
 * const rules = readRules(await readFile("rules.yaml", "utf8"), { source: "rules.yaml" });
 */
export function readRules(
  rules: string | UrlRules | readonly UrlRules[],
  options: ReadOptions = {},
): readonly Rule[] {
  checkPrototype();
  const isNoObject = Object(rules) !== rules || ArrayBuffer.isView(rules);
  if (typeof rules !== "string" && (isNoObject || isThenable(rules))) {
    throw new TypeError(`rules must be a text or plain objects, got ${show(rules)}`);
  }
  if (typeof rules === "string" && A_PATH.test(rules)) {
    throw new TypeError(
      `rules must be the rules themselves, got a file's name ${show(rules)}: read the file first, or give createGateway fileSource(${show(rules)})`,
    );
  }
  checkOptions("options", options, OPTIONS);
  const { source = "rules", actors = [], actorKinds = [], algorithms = {}, costs = [] } = options;
  const names: Names = {
    actors: [...new Set([...BUILT_IN.actors, ...actors])],
    actorKinds: [...new Set([...BUILT_IN.actorKinds, ...actorKinds])],
    algorithms: { ...BUILT_IN.algorithms, ...algorithms },
    costs,
  };
  const tree = typeof rules === "string" ? treeOfText(rules, source) : treeOfObjects(rules, source);
  return new Reader(tree, names).read();
}

class Reader {
  readonly #tree: RulesTree;
  readonly #algorithms: RuleAlgorithms;
  readonly #schema: EntrySchema;
  readonly #problems: Problem[] = [];

  constructor(tree: RulesTree, names: Names) {
    this.#tree = tree;
    this.#algorithms = names.algorithms;
    this.#schema = entrySchema(names);
  }

  read(): readonly Rule[] {
    const entries = this.#tree.documents.flatMap((document) =>
      Array.isArray(document.value) ? document.items : [document],
    );
    const rules = entries.flatMap((entry) => this.#rulesOf(entry));
    this.#stopIfWrong();
    this.#checkNames(rules);
    this.#stopIfWrong();
    return rules;
  }

  #rulesOf(entry: RulesNode): readonly Rule[] {
    if (this.#isFull) return [];
    const rules = nodeAt(entry, ["rules"]);
    const { length } = rules === entry || !Array.isArray(rules.value) ? [] : rules.items;
    if (length > MOST_RULES && isInText(this.#placeOf(rules))) {
      this.#wrong(this.#placeOf(rules), `found ${length} rules, allowed: at most ${MOST_RULES}`);
      return [];
    }
    const parsed = this.#validate(entry);
    if (parsed?.success) return this.#checkedRules(parsed.data, rules);
    // finding the place of an issue takes time, and no more issues are reported
    for (const issue of parsed?.error.issues.slice(0, MOST_PROBLEMS) ?? []) {
      this.#report(entry, issue);
    }
    return [];
  }

  #checkedRules(entry: Entry, { items }: RulesNode): readonly Rule[] {
    return entry.rules.flatMap((read, i) => {
      const place = this.#placeOf(items[i] as RulesNode);
      const rule = ruleOf(entry, read, place);
      const wrongs = problemsOf(rule, this.#algorithms);
      for (const wrong of wrongs) this.#wrong(place, wrong);
      return wrongs.length > 0 ? [] : [rule];
    });
  }

  /** Validates an entry. The validator collects all issues on the stack, which may overflow. */
  #validate(entry: RulesNode) {
    try {
      return this.#schema.safeParse(entry.value);
    } catch {
      this.#wrong(this.#placeOf(entry), "found more mistakes than can be listed");
      return undefined;
    }
  }

  #report(entry: RulesNode, issue: z.core.$ZodIssue): void {
    const node = nodeAt(entry, issue.path);
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys.slice(0, MOST_PROBLEMS)) {
        const place = this.#tree.placeOf(keyAt(node, key));
        this.#wrong(place, `found ${show(key)}, allowed: ${issue.message}`);
      }
      return;
    }
    const found = issue.path.reduce<unknown>(
      (value, key) => (Object(value) as Record<PropertyKey, unknown>)[key],
      entry.value,
    );
    const place = this.#placeOf(node);
    // the place of an object is its path already, except for what is missing
    const path = isInText(place) ? issue.path : found === undefined ? issue.path.slice(-1) : [];
    const where = path.length > 0 ? `${path.join(".")}: ` : "";
    const what = found === undefined ? "nothing" : show(found);
    this.#wrong(place, `${where}found ${what}, allowed: ${issue.message}`);
  }

  /**
   * Checks that names are unique: they identify rules in header fields, on Redis and after a
   * reload.
   */
  #checkNames(rules: readonly Rule[]): void {
    const first = new Map<string, Place>();
    for (const { name, place } of rules) {
      const other = first.get(name);
      if (other === undefined) {
        first.set(name, place);
        continue;
      }
      const where = isInText(other) ? `in line ${other.line}` : other.source;
      this.#wrong(
        place,
        `found a second rule ${show(name)}, the first is ${where}: give one of them a name`,
      );
    }
  }

  #placeOf({ at }: RulesNode): Place {
    return this.#tree.placeOf(at);
  }

  /** Whether the most problems that are reported were found; further ones are not looked for. */
  get #isFull(): boolean {
    return this.#problems.length >= MOST_PROBLEMS;
  }

  #wrong(place: Place, message: string): void {
    if (!this.#isFull) this.#problems.push({ ...place, message });
  }

  #stopIfWrong(): void {
    if (this.#problems.length > 0) throw new RulesError(this.#problems);
  }
}

function isInText(place: Place): boolean {
  return place.line > 0;
}
