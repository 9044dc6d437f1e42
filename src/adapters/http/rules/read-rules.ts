/** From YAML to rules, or to a list of what is wrong, each with its line and column. */
import { Composer, type Document, isScalar, LineCounter, type Node, Parser, visit } from "yaml";
import type * as z from "zod";
import { checkOptions, checkText, show } from "../../../check.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../index.ts";
import { checkAlgorithms, type RuleAlgorithm } from "./algorithms.ts";
import { keyOffset, nodeOffset, offset } from "./offset.ts";
import { type Place, type Rule, type RuleNumbers, type RuleOverride, UNITS } from "./rule.ts";
import { type Problem, RulesError } from "./rules-error.ts";
import { BUILT_IN, type Entry, entrySchema, type Names } from "./schema.ts";
import { TooMuch, wordsOf } from "./words-of.ts";

export interface ReadOptions extends Partial<Names> {
  /** What messages call the text: a file's name. Default "rules". */
  readonly source?: string | undefined;
}

/** One word that ends as the names of such files do: no text of rules is that. */
const A_PATH = /^\S+\.(?:ya?ml|json)$/i;
/** In characters: reading takes a second then, and all else waits. */
const LONGEST = 2 ** 19;
const MOST_PROBLEMS = 20;
/** Who needs more than this has written a bomb. */
const MOST_ALIASES = 100;
const MOST_DOCUMENTS = 10_000;

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
  readonly #lines = new LineCounter();
  readonly #problems: Problem[] = [];

  constructor(text: string, source: string, names: Names) {
    this.#text = text;
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

  #parse(): readonly Document.Parsed[] {
    if (this.#text.length > LONGEST) {
      this.#wrong(0, `found ${this.#text.length} characters, allowed: at most ${LONGEST}`);
      return [];
    }
    for (let at = 0; at >= 0; at = this.#text.indexOf("\n", at) + 1 || -1) {
      this.#lines.addNewLine(at);
    }
    const documents: Document.Parsed[] = [];
    const { stackTraceLimit } = Error;
    // the parser makes an error of each mistake, and to write its stack takes longer than to find it
    Error.stackTraceLimit = 0;
    try {
      for (const document of this.#documents()) {
        documents.push(document);
        for (const { pos, message } of document.errors) this.#wrong(pos[0], worded(message));
        if (document.errors.length === 0) this.#checkTree(document);
        if (documents.length > MOST_DOCUMENTS) {
          this.#wrong(offset(document.contents), `found more than ${MOST_DOCUMENTS} documents`);
        }
        if (this.#isFull || documents.length > MOST_DOCUMENTS) return [];
      }
    } catch (error) {
      if (!(error instanceof TooMuch)) throw error;
      this.#wrong(error.at, `found ${error.message}`);
      return [];
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
    // "---" without anything below it is no document
    const full = documents.filter(({ contents }) => !isEmpty(contents));
    if (full.length === 0)
      this.#wrong(0, "found nothing, allowed: a url with rules, a list, or []");
    return full;
  }

  *#documents(): Iterable<Document.Parsed> {
    const parser = new Parser();
    const text = this.#text;
    const tokens = (function* () {
      for (const word of wordsOf(text)) yield* parser.next(word);
      yield* parser.end();
    })();
    // the composer's own look for duplicate keys takes the square of their number
    yield* new Composer({ prettyErrors: false, uniqueKeys: false }).compose(tokens);
  }

  /** What YAML allows and rules do not need. */
  #checkTree(document: Document.Parsed): void {
    let aliases = 0;
    visit(document, {
      Alias: (_, alias) => {
        aliases += 1;
        if (aliases > MOST_ALIASES) {
          this.#wrong(offset(alias), `found more than ${MOST_ALIASES} aliases`);
          return visit.BREAK;
        }
        if (alias.resolve(document) === undefined) {
          this.#wrong(
            offset(alias),
            `found *${alias.source}, which this document has no anchor for`,
          );
        }
        return this.#isFull ? visit.BREAK : undefined;
      },
      Map: (_, { items }) => {
        this.#checkKeys(items.map(({ key }) => key));
        return this.#isFull ? visit.BREAK : undefined;
      },
    });
  }

  #checkKeys(keys: readonly unknown[]): void {
    const seen = new Set<string>();
    for (const key of keys) {
      if (!isScalar(key) || typeof key.value !== "string" || key.value === "__proto__") {
        const found = isScalar(key) ? show(key.value) : "that is no text";
        this.#wrong(offset(key), `found a key ${found}, allowed: a text, in quotes where need be`);
        continue;
      }
      if (key.value === "Url") key.value = "url";
      const name = String(key.value);
      if (seen.has(name)) this.#wrong(offset(key), `found the key ${show(name)} a second time`);
      seen.add(name);
    }
  }

  #rulesOf(document: Document.Parsed, schema: ReturnType<typeof entrySchema>): readonly Rule[] {
    const data = this.#plain(document);
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
    document: Document.Parsed,
    path: readonly number[],
  ) {
    try {
      return schema.safeParse(entry);
    } catch {
      this.#wrong(nodeOffset(document, path), "found more mistakes than can be listed");
      return undefined;
    }
  }

  #plain(document: Document.Parsed): unknown {
    try {
      return document.toJS({ maxAliasCount: MOST_ALIASES });
    } catch (error) {
      this.#wrong(offset(document.contents), worded((error as Error).message));
      return [];
    }
  }

  #report(
    document: Document.Parsed,
    base: readonly number[],
    data: unknown,
    issue: z.core.$ZodIssue,
  ): void {
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys.slice(0, MOST_PROBLEMS)) {
        const at = keyOffset(document, [...base, ...issue.path], key);
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
    const at = nodeOffset(document, [...base, ...issue.path]);
    this.#wrong(at, `${where}found ${what}, allowed: ${issue.message}`);
  }

  #rules(document: Document.Parsed, base: readonly number[], { url, rules }: Entry): Rule[] {
    return rules.flatMap((read, i) => {
      const at = nodeOffset(document, [...base, "rules", i]);
      const { overrides = {}, exempt = [], methods, name, ...rest } = read;
      const numbers = numbersOf(rest);
      const rule: Rule = {
        ...numbers,
        url,
        name: "",
        methods: methods && [...new Set(methods)].sort(),
        actor: rest.actor,
        algo: rest.algo,
        scope: rest.scope as Rule["scope"],
        mode: rest.mode as Rule["mode"],
        cost: rest.cost,
        ...(rest.limitKey !== undefined && { limitKey: rest.limitKey }),
        overrides: Object.entries(overrides).map(
          ([value, other]): RuleOverride => ({
            value,
            ...numbersOf({ ...rest, ...defined(other) }),
          }),
        ),
        exempt,
        place: this.#place(at),
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
      return wrongs.length > 0 ? [] : { ...rule, name: name ?? derivedName(rule) };
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
    const { line, col } = this.#lines.linePos(at);
    return { source: this.#source, line: Math.max(1, line), column: Math.max(1, col) };
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

/** Made of what a rule is, not of where it stands or how much it lets through. */
function derivedName({ url, methods, actor, algo, units, unit }: Rule): string {
  const path = encodeURI(url.replace(/\p{Surrogate}/gu, "\ufffd"));
  const per = units === 1 ? unit : `${units} ${unit}`;
  return [path, ...(methods ?? []), printable(actor), `per ${per}`, printable(algo)].join(" ");
}

/** Names go into header fields: what these cannot hold is escaped as in a URL. */
function printable(name: string): string {
  return name
    .replace(/\p{Surrogate}/gu, "\ufffd")
    .replace(/[^ -~]/gu, (char) => encodeURIComponent(char));
}

function isEmpty(contents: Node | null): boolean {
  return contents === null || (isScalar(contents) && contents.value === null);
}

/** The parser's words, but for a text that is too much for it. */
function worded(message: string): string {
  if (/call stack/i.test(message)) return "found more levels in one another than can be read";
  return /Excessive alias/.test(message) ? "found aliases that multiply without end" : message;
}
