/** The parts of which the schema of rules is made: each says in words what is allowed. */
import * as z from "zod";
import { UNITS } from "./rule.ts";
import { nearest, type Vocabulary, vocabulary } from "./words.ts";

const DURATION = /^([0-9]+(?:\.[0-9]+)?)(s|m|h|d)$/;
const UNIT_MS: Readonly<Record<string, number>> = {
  s: UNITS.second,
  m: UNITS.minute,
  h: UNITS.hour,
  d: UNITS.day,
};
const LONGEST_DURATION_MS = 365 * UNITS.day;
/** In bytes: powers of 1024, as in nginx. */
const SIZE = /^([0-9]+(?:\.[0-9]+)?)(k|m|g)$/i;
const SIZES: Readonly<Record<string, number>> = { k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 };

export function says(allowed: string): { readonly error: () => string } {
  return { error: () => allowed };
}

/** A number above 0. */
export function number(allowed: string) {
  const words = says(allowed);
  return z.number(words).positive(words).meta({ description: allowed });
}

export function atLeastZero(allowed: string, description = allowed) {
  const words = says(allowed);
  return z.number(words).min(0, words).meta({ description });
}

export function text(allowed: string, pattern: RegExp) {
  const words = says(allowed);
  return z.string(words).regex(pattern, words).meta({ description: allowed });
}

/** A list of at least one. */
export function list<Item extends z.ZodType>(item: Item, allowed: string) {
  return z.array(item, says(allowed)).min(1, says(allowed));
}

/** Values by the value of an actor. */
export function byValue<Value extends z.ZodType>(value: Value) {
  return z.record(z.string(), value, says("a map from values of the actor to numbers")).optional();
}

/** Reports what is allowed in place of a value that the schema's types do not exclude. */
export function refuse(
  context: z.core.ParsePayload,
  allowed: string,
  input: unknown,
  path: readonly PropertyKey[] = [],
): void {
  context.issues.push({ code: "custom", message: allowed, input, path: [...path] });
}

/** What a value is read as; where `read` returns undefined, it is not allowed. */
export function reading<Found, Read, Written>(
  schema: z.ZodType<Found, Written>,
  allowed: string | ((found: Found) => string),
  read: (found: Found) => Read | undefined,
) {
  return schema.transform((found, context): Read => {
    const value = read(found);
    if (value !== undefined) return value;
    refuse(context, typeof allowed === "string" ? allowed : allowed(found), found);
    return z.NEVER;
  });
}

/** Any text, of which editors suggest the names. */
type Spelling<Name extends string> = Name | (string & {});

/** A name from a list, or one of its aliases; the result is the name. */
export function word<Name extends string>(
  { names, spellings, find }: Vocabulary<Name>,
  isOpen = false,
) {
  const allowed = names.join(", ");
  const choices = { enum: [...spellings] };
  const text: z.ZodType<string, Spelling<Name>> = z.string(says(allowed));
  const withHint = (found: string) => {
    const meant = nearest(found, { names, spellings });
    return meant === undefined ? allowed : `${allowed}; did you mean ${meant}?`;
  };
  return reading(text, withHint, find).meta({
    description: spellings.join(", "),
    ...(isOpen ? { anyOf: [choices, { type: "string" }] } : choices),
  });
}

/** One of these words. */
export function choice<Name extends string>(...names: readonly Name[]) {
  return word(vocabulary(names));
}

export function object<Shape extends z.core.$ZodShape>(shape: Shape, others = "") {
  const known = `${Object.keys(shape).join(", ")}${others}`;
  return z.strictObject(shape, {
    error: (issue) => (issue.code === "unrecognized_keys" ? known : `a map of ${known}`),
  });
}

/** Anything, of which a text is allowed: a later step says why something else is not. */
export const ANYTHING = z.unknown() as unknown as z.ZodType<string, string>;

/** One value, or a list of at least one. */
export function oneOrMore(value: z.ZodType<string>, allowed: string) {
  const words = says(`${allowed}, or a list of these`);
  return z
    .union([z.string(), z.array(ANYTHING).min(1, words)], words)
    .transform((found, context): readonly string[] =>
      [found].flat().map((each, i) => {
        const { success, data = "", error } = value.safeParse(each);
        const path = Array.isArray(found) ? [i] : [];
        if (!success) for (const { message } of error.issues) refuse(context, message, each, path);
        return data;
      }),
    )
    .meta({
      get anyOf() {
        const items = jsonOf(value);
        return [items, { type: "array", items, minItems: 1 }];
      },
    });
}

/** A text, or a map: what it is decides which schema says what is allowed. */
export function either<Text, Map, WrittenText, WrittenMap>(
  text: z.ZodType<Text, WrittenText>,
  map: z.ZodType<Map, WrittenMap>,
) {
  const isMap = (found: unknown) => typeof found === "object" && found !== null;
  return oneOf<Text | Map, WrittenText | WrittenMap>([text, map], (found) =>
    isMap(found) ? map : text,
  );
}

/** One of several schemas: the value decides which of them says what is allowed. */
export function oneOf<Read, Written>(
  schemas: readonly z.ZodType<Read, Written>[],
  schemaOf: (found: unknown) => z.ZodType<Read, Written>,
) {
  const schema = z
    .unknown()
    .transform((found, context): Read => {
      const read = schemaOf(found).safeParse(found);
      if (read.success) return read.data;
      for (const issue of read.error.issues) {
        context.issues.push({ ...issue, input: found } as z.core.$ZodRawIssue);
      }
      return z.NEVER;
    })
    .meta({
      get anyOf() {
        return schemas.map(jsonOf);
      },
    });
  return schema as unknown as z.ZodType<Read, Written>;
}

/** Returns the JSON Schema of what a file may contain. It takes long, so the schemas above call it only for editors. */
export function jsonOf(schema: z.ZodType) {
  const { $schema, ...json } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return json;
}

/** Milliseconds, from a text such as "15m". */
export function duration() {
  const allowed = "a duration such as 90s, 15m, 1h or 1d";
  return reading(text(allowed, DURATION), `${allowed}, at most 365d`, (found) => {
    const [, count, unit = "s"] = DURATION.exec(found) ?? [];
    const ms = Number(count) * (UNIT_MS[unit] ?? 1000);
    return ms > 0 && ms <= LONGEST_DURATION_MS ? ms : undefined;
  }).meta({ description: allowed });
}

/** Bytes: a number, or a text such as "500k". */
export function size(what: string, isWithZero: boolean) {
  const allowed = `${what}: a number ${isWithZero ? "of 0 or more" : "above 0"}, or a text such as 500k or 1m`;
  return reading(z.union([z.number(), z.string()], says(allowed)), allowed, (found) => {
    const [, count, unit = ""] = typeof found === "string" ? (SIZE.exec(found) ?? []) : [];
    const bytes =
      typeof found === "number" ? found : Number(count) * (SIZES[unit.toLowerCase()] ?? 1);
    const isSize = bytes > 0 ? bytes < Infinity : isWithZero && bytes === 0;
    return isSize ? bytes : undefined;
  }).meta({
    description: allowed,
    anyOf: [
      isWithZero ? { type: "number", minimum: 0 } : { type: "number", exclusiveMinimum: 0 },
      { type: "string", pattern: SIZE.source.replace("k|m|g", "[kKmMgG]") },
    ],
  });
}
