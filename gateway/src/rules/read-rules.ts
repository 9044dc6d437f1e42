/**
 * Reads rules from YAML or plain objects, or lists what is wrong, each problem with its line and
 * column, or its path.
 */

import type * as z from "zod";
import { checkOptions, checkPrototype, checkText, show } from "../ground/check.ts";
import { isThenable } from "../ground/maybe.ts";
import { checkAlgorithms } from "./algorithms.ts";
import { ruleOf } from "./make-rule.ts";
import { ObjectMistake, treeOf } from "./object-tree.ts";
import { problemsOf } from "./problems.ts";
import type { Place, Rule } from "./rule.ts";
import { type Problem, RulesError } from "./rules-error.ts";
import { type Entry, entrySchema, type UrlRules } from "./schema.ts";
import { BUILT_IN, type Names } from "./schema-fields.ts";
import { keyAt, nodeAt, readYaml, YamlMistake, type YamlNode } from "./yaml-tree.ts";

export interface ReadOptions extends Partial<Names> {
  /** The name of the text in messages, such as a file's name. Default "rules". */
  readonly source?: string | undefined;
}

/** A single word that ends like the name of a rules file: it cannot be the text of rules. */
const A_PATH = /^\S+\.(?:ya?ml|json)$/i;
/** In characters. A bound, because reading blocks the event loop. */
const LONGEST = 2 ** 19;
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
  checkOptions("options", options, ["source", "actors", "actorKinds", "algorithms", "costs"]);
  const { source = "rules", actors = [], actorKinds = [], algorithms = {}, costs = [] } = options;
  checkText("source", source);
  for (const [name, list] of Object.entries({ actors, actorKinds, costs })) {
    if (!Array.isArray(list)) {
      throw new TypeError(`${name} must be an array of names, got ${show(list)}`);
    }
    for (const each of list) checkText(name, each);
  }
  checkAlgorithms(algorithms);
  const names: Names = {
    actors: [...new Set([...BUILT_IN.actors, ...actors])],
    actorKinds: [...new Set([...BUILT_IN.actorKinds, ...actorKinds])],
    algorithms: { ...BUILT_IN.algorithms, ...algorithms },
    costs,
  };
  return new Reader(rules, source, names).read();
}

class Reader {
  readonly #given: string | object;
  readonly #source: string;
  readonly #names: Names;
  /** Of objects: the path of each node. */
  #paths: readonly string[] | undefined;
  /** Where each line begins, in characters. */
  readonly #lineStarts: readonly number[];
  readonly #problems: Problem[] = [];

  constructor(given: string | object, source: string, names: Names) {
    this.#given = given;
    const text = typeof given === "string" ? given : "";
    this.#lineStarts = [
      0,
      ...[...text.slice(0, LONGEST).matchAll(/\n/g)].map(({ index }) => index + 1),
    ];
    this.#source = source;
    this.#names = names;
  }

  read(): readonly Rule[] {
    const documents = this.#parse();
    this.#stopIfWrong();
    const schema = entrySchema(this.#names);
    const rules = documents.flatMap((document) => this.#rulesOf(document, schema));
    this.#stopIfWrong();
    this.#checkNames(rules);
    this.#stopIfWrong();
    return rules;
  }

  /** Returns the documents that are not empty. */
  #parse(): readonly YamlNode[] {
    const given = this.#given;
    if (typeof given !== "string") return this.#parseObjects(given);
    if (given.length > LONGEST) {
      this.#wrong(0, `found ${given.length} characters, allowed: at most ${LONGEST}`);
      return [];
    }
    try {
      const documents = readYaml(given).filter(({ value }) => value !== null);
      if (documents.length === 0) {
        this.#wrong(0, "found nothing, allowed: a url with rules, a list, or []");
      }
      return documents;
    } catch (error) {
      if (!(error instanceof YamlMistake)) throw error;
      this.#wrong(error.at, error.message);
      return [];
    }
  }

  #parseObjects(given: object): readonly YamlNode[] {
    try {
      const { root, paths } = treeOf(given);
      this.#paths = paths;
      return [root];
    } catch (error) {
      if (!(error instanceof ObjectMistake)) throw error;
      this.#paths = [""];
      this.#wrong(0, error.message);
      return [];
    }
  }

  #rulesOf(document: YamlNode, schema: ReturnType<typeof entrySchema>): readonly Rule[] {
    const data = document.value;
    const entries: readonly unknown[] = Array.isArray(data) ? data : [data];
    return entries.flatMap((each, i) => {
      if (this.#isFull) return [];
      const path = Array.isArray(data) ? [i] : [];
      const { rules } = Object(each) as { readonly rules?: unknown };
      if (this.#paths === undefined && Array.isArray(rules) && rules.length > MOST_RULES) {
        const { at } = nodeAt(document, [...path, "rules"]);
        this.#wrong(at, `found ${rules.length} rules, allowed: at most ${MOST_RULES}`);
        return [];
      }
      const parsed = this.#validate(schema, each, document, path);
      if (parsed === undefined) return [];
      if (!parsed.success) {
        // finding the place of an issue takes time, and no more issues are reported
        for (const issue of parsed.error.issues.slice(0, MOST_PROBLEMS)) {
          this.#report(document, path, each, issue);
        }
        return [];
      }
      return this.#rules(document, path, parsed.data);
    });
  }

  /** Validates the document. The validator collects all issues on the stack, which may overflow. */
  #validate(
    schema: ReturnType<typeof entrySchema>,
    entry: unknown,
    document: YamlNode,
    path: readonly number[],
  ) {
    try {
      return schema.safeParse(entry);
    } catch {
      this.#wrong(nodeAt(document, path).at, "found more mistakes than can be listed");
      return undefined;
    }
  }

  #report(
    document: YamlNode,
    base: readonly number[],
    data: unknown,
    issue: z.core.$ZodIssue,
  ): void {
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys.slice(0, MOST_PROBLEMS)) {
        const at = keyAt(nodeAt(document, [...base, ...issue.path]), key);
        this.#wrong(at, `found ${show(key)}, allowed: ${issue.message}`);
      }
      return;
    }
    const found = issue.path.reduce<unknown>(
      (value, key) => (Object(value) as Record<PropertyKey, unknown>)[key],
      data,
    );
    // the place of an object is its path already, except for what is missing
    const path =
      this.#paths === undefined ? issue.path : found === undefined ? issue.path.slice(-1) : [];
    const where = path.length > 0 ? `${path.join(".")}: ` : "";
    const what = found === undefined ? "nothing" : show(found);
    const at = nodeAt(document, [...base, ...issue.path]).at;
    this.#wrong(at, `${where}found ${what}, allowed: ${issue.message}`);
  }

  #rules(document: YamlNode, base: readonly number[], entry: Entry): Rule[] {
    return entry.rules.flatMap((read, i) => {
      const { at } = nodeAt(document, [...base, "rules", i]);
      const rule = ruleOf(entry, read, this.#place(at));
      const wrongs = problemsOf(rule, this.#names.algorithms);
      for (const wrong of wrongs) this.#wrong(at, wrong);
      return wrongs.length > 0 ? [] : [rule];
    });
  }

  /**
   * Checks that names are unique: they identify rules in header fields, on Redis and after a
   * reload.
   */
  #checkNames(rules: readonly Rule[]): void {
    const first = new Map<string, Rule>();
    for (const rule of rules) {
      const other = first.get(rule.name);
      if (other === undefined) {
        first.set(rule.name, rule);
        continue;
      }
      this.#problems.push({
        ...rule.place,
        message: `found a second rule ${show(rule.name)}, the first is ${this.#paths === undefined ? `in line ${other.place.line}` : other.place.source}: give one of them a name`,
      });
    }
  }

  #place(at: number): Place {
    if (this.#paths !== undefined) {
      return { source: `${this.#source}${this.#paths[at]}`, line: 0, column: 0 };
    }
    let line = 0;
    for (let after = this.#lineStarts.length; after - line > 1; ) {
      const middle = (line + after) >> 1;
      if ((this.#lineStarts[middle] as number) <= at) line = middle;
      else after = middle;
    }
    const column = at - (this.#lineStarts[line] as number) + 1;
    return { source: this.#source, line: line + 1, column };
  }

  /** Whether the most problems that are reported were found; further ones are not looked for. */
  get #isFull(): boolean {
    return this.#problems.length >= MOST_PROBLEMS;
  }

  #wrong(at: number, message: string): void {
    if (!this.#isFull) this.#problems.push({ ...this.#place(at), message });
  }

  #stopIfWrong(): void {
    if (this.#problems.length > 0) throw new RulesError(this.#problems.slice(0, MOST_PROBLEMS));
  }
}
