/** From YAML to rules, or to a list of what is wrong, each with its line and column. */
import type * as z from "zod";
import { checkOptions, checkText, show } from "../../../check.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../index.ts";
import { checkAlgorithms, type RuleAlgorithm } from "./algorithms.ts";
import { type Place, type Rule, type RuleNumbers, type RuleOverride, UNITS } from "./rule.ts";
import { type Problem, RulesError } from "./rules-error.ts";
import { BUILT_IN, type Entry, entrySchema, type Names } from "./schema.ts";
import { keyAt, nodeAt, readYaml, YamlMistake, type YamlNode } from "./yaml-tree.ts";

export interface ReadOptions extends Partial<Names> {
  /** What messages call the text: a file's name. Default "rules". */
  readonly source?: string | undefined;
}

/** One word that ends as the names of such files do: no text of rules is that. */
const A_PATH = /^\S+\.(?:ya?ml|json)$/i;
/** In characters. Nothing else runs while rules are read. */
const LONGEST = 2 ** 19;
const MOST_PROBLEMS = 20;

/**
 * Reads rules.
 *
 * @param text YAML (so JSON too): a URL with its rules, a list of these, or several documents of
 *   either; at most 524 288 characters
 * @param options.source what messages call it
 * @param options.actors names of actors besides all, account and device
 * @param options.algorithms algorithms besides the built-in ones, by name
 * @returns the rules, in the order of the text; none for an empty list
 * @throws RulesError that lists what is wrong, with line and column; TypeError on a bad argument
 * @example
 * const rules = readRules(await readFile("rules.yaml", "utf8"), { source: "rules.yaml" });
 */
export function readRules(text: string, options: ReadOptions = {}): readonly Rule[] {
  checkText("text", text);
  if (A_PATH.test(text)) {
    throw new TypeError(
      `text must be the rules themselves, got a file's name ${show(text)}: read the file first, or give createGateway fileSource(${show(text)})`,
    );
  }
  checkOptions("options", options, ["source", "actors", "algorithms"]);
  const { source = "rules", actors = [], algorithms = {} } = options;
  checkText("source", source);
  if (!Array.isArray(actors)) {
    throw new TypeError(`actors must be an array of names, got ${show(actors)}`);
  }
  for (const actor of actors) checkText("actors", actor);
  checkAlgorithms(algorithms);
  const names: Names = {
    actors: [...BUILT_IN.actors, ...actors],
    algorithms: { ...BUILT_IN.algorithms, ...algorithms },
  };
  return new Reader(text, source, names).read();
}

class Reader {
  readonly #text: string;
  readonly #source: string;
  readonly #names: Names;
  /** Where each line begins, in characters. */
  readonly #lineStarts: readonly number[];
  readonly #problems: Problem[] = [];

  constructor(text: string, source: string, names: Names) {
    this.#text = text;
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

  /** The documents that are not empty. */
  #parse(): readonly YamlNode[] {
    if (this.#text.length > LONGEST) {
      this.#wrong(0, `found ${this.#text.length} characters, allowed: at most ${LONGEST}`);
      return [];
    }
    try {
      const documents = readYaml(this.#text).filter(({ value }) => value !== null);
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

  #rulesOf(document: YamlNode, schema: ReturnType<typeof entrySchema>): readonly Rule[] {
    const data = document.value;
    const entries: readonly unknown[] = Array.isArray(data) ? data : [data];
    return entries.flatMap((each, i) => {
      if (this.#isFull) return [];
      const path = Array.isArray(data) ? [i] : [];
      const parsed = this.#validate(schema, each, document, path);
      if (parsed === undefined) return [];
      if (!parsed.success) {
        // to find the place of each takes its time, and nobody is told of more
        for (const issue of parsed.error.issues.slice(0, MOST_PROBLEMS)) {
          this.#report(document, path, each, issue);
        }
        return [];
      }
      return this.#rules(document, path, parsed.data);
    });
  }

  /** The validator lists all that is wrong, on the stack. */
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
    const where = issue.path.length > 0 ? `${issue.path.join(".")}: ` : "";
    const what = found === undefined ? "nothing" : show(found);
    const at = nodeAt(document, [...base, ...issue.path]).at;
    this.#wrong(at, `${where}found ${what}, allowed: ${issue.message}`);
  }

  #rules(document: YamlNode, base: readonly number[], { url, rules }: Entry): Rule[] {
    return rules.flatMap((read, i) => {
      const at = nodeAt(document, [...base, "rules", i]).at;
      const { overrides = {}, exempt = [], name } = read;
      const methods = read.methods && [...new Set(read.methods)].sort();
      // V8 makes an object literal slowly if it goes on after a spread
      const rule: Rule = {
        name: name ?? derivedName(url, methods, read),
        url,
        methods,
        actor: read.actor,
        algo: read.algo,
        scope: read.scope as Rule["scope"],
        mode: read.mode as Rule["mode"],
        cost: read.cost,
        limitKey: read.limitKey,
        overrides: Object.entries(overrides).map(
          ([value, other]): RuleOverride => ({
            value,
            ...numbersOf({ ...read, ...defined(other) }),
          }),
        ),
        exempt,
        place: this.#place(at),
        ...numbersOf(read),
      };
      const algorithm = this.#names.algorithms[rule.algo] as RuleAlgorithm;
      const wrongs = [rule, ...rule.overrides].flatMap((each) => {
        const wrong = numbersProblem(each, rule, algorithm);
        if (wrong === undefined) return [];
        return "value" in each ? `override ${show(each.value)}: ${wrong}` : wrong;
      });
      if (rule.limitKey !== undefined && rule.scope === "local") {
        wrongs.push("found limitKey, which needs scope: global");
      }
      for (const wrong of wrongs) this.#wrong(at, wrong);
      return wrongs.length > 0 ? [] : [rule];
    });
  }

  /** A name stands for a rule in header fields, on Redis and after a reload. */
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
        message: `found a second rule ${show(rule.name)}, the first is in line ${other.place.line}: give one of them a name`,
      });
    }
  }

  #place(at: number): Place {
    let line = 0;
    for (let after = this.#lineStarts.length; after - line > 1; ) {
      const middle = (line + after) >> 1;
      if ((this.#lineStarts[middle] as number) <= at) line = middle;
      else after = middle;
    }
    const column = at - (this.#lineStarts[line] as number) + 1;
    return { source: this.#source, line: line + 1, column };
  }

  /** More is neither looked for nor said. */
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

type ReadNumbers = Partial<Omit<RuleNumbers, "periodMs">> & Pick<RuleNumbers, "rpu" | "unit">;

function numbersOf(
  read: { [Key in keyof ReadNumbers]: ReadNumbers[Key] | undefined },
): RuleNumbers {
  const { rpu, unit, units = 1, burst, nodelay, with: rest = {} } = read as ReadNumbers;
  return { rpu, unit, units, periodMs: units * UNITS[unit], burst, nodelay, with: rest };
}

function defined(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Why the algorithm cannot work with the numbers, if it cannot. */
function numbersProblem(
  numbers: RuleNumbers,
  { algo, cost }: Rule,
  { fields = [], policy }: RuleAlgorithm,
): string | undefined {
  const given = {
    burst: numbers.burst !== undefined,
    nodelay: numbers.nodelay !== undefined,
    with: Object.keys(numbers.with).length > 0,
  };
  for (const field of ["burst", "nodelay", "with"] as const) {
    if (given[field] && !fields.includes(field)) {
      return `found ${field}, which the algorithm ${show(algo)} does not know`;
    }
  }
  try {
    // asks for the cost once: more than the policy ever holds is an error
    Limiter.create(policy(numbers)).peek(cost);
    return undefined;
  } catch (error) {
    if (!(error instanceof PermitsExceedCapacityError)) {
      const { message } = error as Error;
      // what a rule calls its burst
      return given.burst ? message.replace(/^capacity /, "burst ") : message;
    }
    const { capacity } = error.facts;
    return `found cost ${cost}, allowed: at most ${capacity}, which is all that passes at once`;
  }
}

/** Says what a rule is for; neither its place in the file nor its numbers. */
function derivedName(
  url: string,
  methods: readonly string[] = [],
  { actor, algo, units, unit }: Entry["rules"][number],
): string {
  const path = encodeURI(url.replace(/\p{Surrogate}/gu, "\ufffd"));
  const per = units === 1 ? unit : `${units} ${unit}`;
  return [path, ...methods, printable(actor), `per ${per}`, printable(algo)].join(" ");
}

/** Names go into header fields: what these cannot hold is escaped as in a URL. */
function printable(name: string): string {
  return name
    .replace(/\p{Surrogate}/gu, "\ufffd")
    .replace(/[^ -~]/gu, (char) => encodeURIComponent(char));
}
