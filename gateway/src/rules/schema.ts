/**
 * The schema of a rules file. Each part describes in words what is allowed; the reader adds what
 * was found. The same words are the descriptions in the JSON Schema.
 */
import * as z from "zod";
import { ACTOR_KINDS } from "../actors/actor.ts";
import { decode } from "../match/decode.ts";
import { isParameter } from "../match/pattern.ts";
import { ALGORITHMS, type RuleAlgorithms } from "./algorithms.ts";
import { type Align, isTimeZone, UNITS, type Unit } from "./rule.ts";
import { type Vocabulary, vocabulary } from "./words.ts";

/** The names that rules may use. */
export interface Names {
  readonly actors: readonly string[];
  /** The kinds of actors that take an argument. */
  readonly actorKinds: readonly string[];
  readonly algorithms: RuleAlgorithms;
  /** Functions that compute what a request costs. */
  readonly costs: readonly string[];
}

export const BUILT_IN: Names = {
  actors: ["all", "account", "device"],
  actorKinds: Object.keys(ACTOR_KINDS),
  algorithms: ALGORITHMS,
  costs: [],
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
const METHOD_NAMES = vocabulary(METHODS.map((method) => [method]));
/** A plain path: a rule must not contain what makes a request's path ambiguous. */
const SEGMENT = /(?:\*|(?!\.{1,2}(?:\/|$))[^/?#\\;*\0-\x20\x7f]+)(?=\/|$)/.source;
const PATH = new RegExp(`^/(?:${SEGMENT}(?:/${SEGMENT})*/?)?$`);
const PLAIN =
  "a path: it begins with / and has no ?, #, ; or \\ in it, no . or .. as a segment, and * only as a whole segment";
/** The same after decoding: blanks and stars are then ordinary characters. */
const DECODED = /^\/(?:(?![. ]+(?:\/|$))[^/?#\\;\p{Cc}]+(?:\/|$))*$/u;
/** The ways in which routers write a segment that may be anything. */
const PARAMETER = /^(?::|\{.*\}|\[.*\]|<.*>|\(.*\))/;
/** A host name, the first part of which may be a star. */
const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/i;
const A_HOST = "a host name without a port, such as api.example.com or *.example.com";

const A_ZONE = "a time zone such as Europe/Berlin or UTC";
const WHEN_ACTOR_MISSING = ["device", "shared", "skip"];
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/i;
const DURATION = /^([0-9]+(?:\.[0-9]+)?)(s|m|h|d)$/;
const UNIT_MS: Readonly<Record<string, number>> = {
  s: UNITS.second,
  m: UNITS.minute,
  h: UNITS.hour,
  d: UNITS.day,
};
const LONGEST_BLOCK_MS = 365 * UNITS.day;

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
    const unknown = found
      .split("/")
      .find((segment) => PARAMETER.test(segment) && !isParameter(segment));
    const plain = found.replace(/(?<=\/)\*(?=\/|$)/g, "any");
    const wrong = !DECODED.test(decode(plain))
      ? `${PLAIN}, not encoded either`
      : unknown !== undefined && `${PLAIN}; a segment that may be anything is :name, {name} or *`;
    if (wrong) context.addIssue({ code: "custom", message: wrong });
  });
}

/** Anything, of which a text is allowed: a later step says why something else is not. */
const ANYTHING = z.unknown() as unknown as z.ZodType<string, string>;

/** One value, or a list of at least one. */
function oneOrMore(value: z.ZodType<string>, allowed: string) {
  const one = z.toJSONSchema(value, { io: "input", unrepresentable: "any" });
  const { $schema, ...items } = one;
  const words = says(`${allowed}, or a list of these`);
  return z
    .union([z.string(), z.array(ANYTHING).min(1, words)], words)
    .transform((found, context): readonly string[] =>
      [found].flat().map((each, i) => {
        const read = value.safeParse(each);
        if (read.success) return read.data;
        const path = Array.isArray(found) ? [i] : [];
        for (const { message } of read.error.issues) {
          context.issues.push({ code: "custom", message, input: each, path });
        }
        return "";
      }),
    )
    .meta({ anyOf: [items, { type: "array", items, minItems: 1 }] });
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

function atLeastZero(allowed: string) {
  const words = says(allowed);
  return z.number(words).min(0, words).meta({ description: allowed });
}

const numbers = {
  rpu: atLeastZero("requests per unit, a number, 0 or more: 0 refuses all"),
  unit: word(vocabulary(Object.keys(UNITS).map((unit) => [unit]))).transform(
    (unit) => unit as Unit,
  ),
  units: number("how many units, a number above 0").optional(),
  burst: z
    .number(says("a number, 0 or more"))
    .min(0, says("a number, 0 or more"))
    .meta({ description: "a number, 0 or more: tokens kept, or requests that may wait" })
    .optional(),
  slack: atLeastZero(
    "a number, 0 or more: unused permits that a leaky bucket makes up for",
  ).optional(),
  buckets: atLeastZero("a whole number, 1 to 10000: the parts of a sliding window").optional(),
  align: word(vocabulary([["epoch"], ["first"]]))
    .transform((align) => align as Align)
    .optional(),
  timeZone: z
    .string(says(A_ZONE))
    .refine(isTimeZone, says(A_ZONE))
    .meta({ description: A_ZONE })
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

/** An actor by its name; or a kind of actor with an argument, `{ header: x-tenant }`. */
function actor({ actors, actorKinds }: Names) {
  const known = vocabulary(actors.map((name) => [name]));
  const kinds = vocabulary(actorKinds.map((kind) => [kind]));
  const aMap = `a map with one of ${kinds.names.join(", ")}`;
  const allowed = `${known.names.join(", ")}; or ${aMap}, such as { header: x-tenant }`;
  return z
    .union([z.string(), z.record(z.string(), ANYTHING)], says(allowed))
    .transform((found, context) => {
      const wrong = (message: string) => {
        context.issues.push({ code: "custom", message, input: found });
        return z.NEVER;
      };
      if (typeof found === "string") return known.find(found) ?? wrong(known.names.join(", "));
      const [[written = "", argument] = [], more] = Object.entries(found);
      const kind = kinds.find(written);
      if (kind === undefined || more !== undefined) return wrong(aMap);
      if (typeof argument !== "string" || argument === "") return wrong(`a text as ${kind}`);
      const isName = kind !== "header" || FIELD_NAME.test(argument);
      return isName ? `${kind}:${argument}` : wrong("the name of a header field as header");
    })
    .meta({
      description: allowed,
      anyOf: [
        { enum: [...known.spellings] },
        { type: "string" },
        { type: "object", minProperties: 1, maxProperties: 1 },
      ],
    });
}

/** Permits: a number, numbers by method, or the name of a function of the application. */
function cost(names: readonly string[]) {
  const permits = atLeastZero("permits that a request takes, a number, 0 or more");
  const byMethod = vocabulary([...METHODS.map((method) => [method] as const), ["other"]]);
  const known = vocabulary(names.map((name) => [name]));
  const function_ = names.length > 0 ? `, or one of ${names.join(", ")}` : "";
  const allowed = `a number above 0, or a map from methods to numbers${function_}`;
  return z
    .union(
      [z.number().positive(says(allowed)), z.string(), z.record(z.string(), permits)],
      says(allowed),
    )
    .transform((found, context): ReadCost => {
      if (typeof found === "number") return { cost: found, costs: {}, costBy: undefined };
      if (typeof found === "string") {
        const costBy = known.find(found);
        if (costBy !== undefined) return { cost: 1, costs: {}, costBy };
        context.issues.push({ code: "custom", message: allowed, input: found });
        return z.NEVER;
      }
      const { other = 1, ...costs } = Object.fromEntries(
        Object.entries(found).map(([method, permits]) => {
          const name = byMethod.find(method);
          if (name === undefined) {
            const message = `a map from HTTP methods, or "other", to numbers`;
            context.issues.push({ code: "custom", message, input: method, path: [method] });
          }
          if (name === "other" && permits === 0) {
            const message = "a number above 0: list methods to leave the others out";
            context.issues.push({ code: "custom", message, input: permits, path: [method] });
          }
          return [name ?? method, permits] as const;
        }),
      );
      return { cost: other, costs, costBy: undefined };
    })
    .meta({
      description: allowed,
      anyOf: [
        { type: "number", exclusiveMinimum: 0 },
        { type: "string" },
        { type: "object", additionalProperties: { type: "number", minimum: 0 } },
      ],
    });
}

/** What the field `cost` says. */
interface ReadCost {
  readonly cost: number;
  readonly costs: Readonly<Record<string, number>>;
  readonly costBy: string | undefined;
}

/** Milliseconds, from a text such as "15m". */
function duration(allowed: string) {
  const words = says(allowed);
  return z
    .string(words)
    .regex(DURATION, words)
    .transform((found, context) => {
      const [, count, unit = "s"] = DURATION.exec(found) ?? [];
      const ms = Number(count) * (UNIT_MS[unit] ?? 1000);
      if (ms > 0 && ms <= LONGEST_BLOCK_MS) return ms;
      context.issues.push({ code: "custom", message: `${allowed}, at most 365d`, input: found });
      return z.NEVER;
    })
    .meta({ description: allowed });
}

/** The schema of one rule, with the names that may be used. */
function ruleSchema(names: Names) {
  const { algorithms, costs } = names;
  const algorithmWords = vocabulary(
    Object.entries(algorithms).map(([name, { aliases }]) => [name, aliases ?? []]),
  );
  const values = "a list of texts: values of the actor";
  return object({
    name: text("a name: printable ASCII, at most 200 characters", NAME).optional(),
    actor: actor(names),
    whenActorMissing: word(vocabulary(WHEN_ACTOR_MISSING.map((choice) => [choice]))).optional(),
    ...numbers,
    units: numbers.units.default(1),
    algo: word(algorithmWords, true).optional(),
    scope: word(vocabulary([["local"], ["global"]])).default("local"),
    mode: word(vocabulary([["enforce"], ["shadow"]])).default("enforce"),
    cost: cost(costs).default({ cost: 1, costs: {}, costBy: undefined }),
    count: word(vocabulary([["all"], ["failures"], ["successes"]])).default("all"),
    block: duration("a duration such as 90s, 15m, 1h or 1d").optional(),
    limitKey: text("a Redis key in which operators keep rpu", /^.{1,512}$/s).optional(),
    methods: z
      .array(word(METHOD_NAMES), says("a list of HTTP methods"))
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
    url: oneOrMore(path(), PLAIN),
    exact: z.boolean(says("true or false")).default(false),
    except: oneOrMore(
      path().refine((found) => found !== "/", says("a path below the root")),
      PLAIN,
    ).default([]),
    host: oneOrMore(text(A_HOST, HOST), A_HOST).optional(),
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
  const { url, ...others } = entry.properties ?? {};
  const entries = ["url", "Url"].map((name) => ({
    ...entry,
    properties: { [name]: url, ...others },
    required: [name, "rules"],
  }));
  return {
    $schema,
    title: "Rules of smooth-limiter-gateway",
    $defs: { entry: { anyOf: entries } },
    anyOf: [{ $ref: "#/$defs/entry" }, { type: "array", items: { $ref: "#/$defs/entry" } }],
  };
}
