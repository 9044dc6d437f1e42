/**
 * The schema of a rules file. Each part describes in words what is allowed; the reader adds what
 * was found. The same words are the descriptions in the JSON Schema.
 */
import * as z from "zod";
import { decode } from "../match/decode.ts";
import { ALGORITHMS, type RuleAlgorithms } from "./algorithms.ts";
import { UNITS, type Unit } from "./rule.ts";
import { type Vocabulary, vocabulary } from "./words.ts";

/** The names that rules may use. */
export interface Names {
  readonly actors: readonly string[];
  readonly algorithms: RuleAlgorithms;
}

export const BUILT_IN: Names = {
  actors: ["all", "account", "device"],
  algorithms: ALGORITHMS,
};

/** A rule's name: it is used in header fields and keys. */
const NAME = /^[!-~](?:[ -~]{0,198}[!-~])?$/;
/** The methods that servers know. A rule with a misspelt method would never apply. */
const METHODS = [
  ..."GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT QUERY PURGE".split(" "),
  ..."PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK SEARCH BIND REBIND UNBIND ACL REPORT".split(
    " ",
  ),
  ..."MKACTIVITY MKCALENDAR CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE LINK UNLINK".split(
    " ",
  ),
  "SOURCE",
];
/** A plain path: a rule must not contain what makes a request's path ambiguous. */
const SEGMENT = /(?!\.{1,2}(?:\/|$))[^/?#\\;*\0-\x20\x7f]+/.source;
const PATH = new RegExp(`^/(?:${SEGMENT}(?:/${SEGMENT})*/?)?$`);
const PLAIN = "a path: it begins with / and has no ?, #, * or ; in it, and no . or .. as a segment";
/** The same after decoding: blanks and stars are then ordinary characters. */
const DECODED = /^\/(?:(?![. ]+(?:\/|$))[^/?#\\;\p{Cc}]+(?:\/|$))*$/u;
/** The ways in which routers write a segment that may be anything. */
const PARAMETER = /\/(?=:|\{.*\}|\[.*\]|<.*>|\(.*\))/;

function says(allowed: string): { readonly error: () => string } {
  return { error: () => allowed };
}

function number(allowed: string) {
  const words = says(allowed);
  return z.number(words).positive(words).meta({ description: allowed });
}

function text(allowed: string, pattern: RegExp) {
  const words = says(allowed);
  return z.string(words).regex(pattern, words).meta({ description: allowed });
}

/** The path to which a rule applies, with everything below it. */
function path() {
  return text(PLAIN, PATH).superRefine((found, context) => {
    const at = found.search(PARAMETER);
    const outer = found.slice(0, Math.max(1, at));
    const wrong = !DECODED.test(decode(found))
      ? `${PLAIN}, not encoded either`
      : at >= 0 && `a path without parameters: "${outer}" holds for everything below it`;
    if (wrong) context.addIssue({ code: "custom", message: wrong });
  });
}

/** A name from a list, in any case; the result is spelled as in the list. */
function word({ names, spellings, find }: Vocabulary, isOpen = false) {
  const allowed = names.join(", ");
  const choices = { enum: [...spellings] };
  return z
    .string(says(allowed))
    .transform((found, context) => {
      const name = find(found);
      if (name !== undefined) return name;
      context.issues.push({ code: "custom", message: allowed, input: found });
      return z.NEVER;
    })
    .meta({
      description: spellings.join(", "),
      // an editor suggests the names, but also accepts other names and other cases
      anyOf: isOpen
        ? [choices, { type: "string" }]
        : [choices, { type: "string", pattern: inAnyCase(spellings) }],
    });
}

function inAnyCase(words: readonly string[]): string {
  const letters = (name: string) =>
    name.replace(/[a-z]/gi, (letter) => `[${letter.toLowerCase()}${letter.toUpperCase()}]`);
  return `^(?:${words.map(letters).join("|")})$`;
}

function object<Shape extends z.core.$ZodShape>(shape: Shape) {
  const known = Object.keys(shape).join(", ");
  return z.strictObject(shape, {
    error: (issue) => (issue.code === "unrecognized_keys" ? known : `a map of ${known}`),
  });
}

const numbers = {
  rpu: number("requests per unit, a number above 0"),
  unit: word(vocabulary(Object.keys(UNITS).map((unit) => [unit]))).transform(
    (unit) => unit as Unit,
  ),
  units: number("how many units, a number above 0").optional(),
  burst: z
    .number(says("a number, 0 or more"))
    .min(0, says("a number, 0 or more"))
    .meta({ description: "a number, 0 or more: tokens kept, or requests that may wait" })
    .optional(),
  nodelay: z
    .union(
      [z.literal(true), z.number().min(0)],
      says("true, or a number, 0 or more: how many of the burst go at once"),
    )
    .optional(),
  with: z
    .record(z.string(), z.unknown(), says("a map: what a registered algorithm asks for"))
    .optional(),
};

/** The schema of one rule, with the names that may be used. */
function ruleSchema({ actors, algorithms }: Names) {
  const algorithmWords = vocabulary(
    Object.entries(algorithms).map(([name, { aliases }]) => [name, aliases ?? []]),
  );
  const values = "a list of texts: values of the actor";
  return object({
    name: text("a name: printable ASCII, at most 200 characters", NAME).optional(),
    actor: word(vocabulary(actors.map((actor) => [actor])), true),
    ...numbers,
    units: numbers.units.default(1),
    algo: word(algorithmWords, true).default("token bucket"),
    scope: word(vocabulary([["local"], ["global"]])).default("local"),
    mode: word(vocabulary([["enforce"], ["shadow"]])).default("enforce"),
    cost: number("permits that a request takes, a number above 0").default(1),
    limitKey: text("a Redis key in which operators keep rpu", /^.{1,512}$/s).optional(),
    methods: z
      .array(word(vocabulary(METHODS.map((method) => [method]))), says("a list of HTTP methods"))
      .min(1, says("a list of HTTP methods"))
      .optional(),
    overrides: z
      .record(
        z.string(),
        object(numbers).partial(),
        says("a map from values of the actor to numbers"),
      )
      .optional(),
    exempt: z.array(z.string(says("a text: a value of the actor")), says(values)).optional(),
  });
}

/** The schema of one URL and its rules. */
export function entrySchema(names: Names) {
  const rules = says("a list of rules, at least one");
  return object({
    url: path(),
    rules: z.array(ruleSchema(names), rules).min(1, rules),
  });
}

export type Entry = z.output<ReturnType<typeof entrySchema>>;

/** A URL and its rules as a plain object, with the fields that rules have in a file. */
export interface UrlRules extends Readonly<z.input<ReturnType<typeof entrySchema>>> {}

/** Returns the JSON Schema of a file, for editors: one entry, or a list of entries. */
export function rulesJsonSchema(): object {
  const options = { io: "input", unrepresentable: "any" } as const;
  const { $schema, ...entry } = z.toJSONSchema(entrySchema(BUILT_IN), options);
  const { url, rules } = entry.properties ?? {};
  const entries = ["url", "Url"].map((name) => ({
    ...entry,
    properties: { [name]: url, rules },
    required: [name, "rules"],
  }));
  return {
    $schema,
    title: "Rules of smooth-limiter-gateway",
    $defs: { entry: { anyOf: entries } },
    anyOf: [{ $ref: "#/$defs/entry" }, { type: "array", items: { $ref: "#/$defs/entry" } }],
  };
}
