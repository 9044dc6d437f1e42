/** The fields of rules that need more than a number or a word. */
import * as z from "zod";
import { ACTOR_KINDS } from "../actors/actor.ts";
import { AND } from "../actors/together.ts";
import { decode } from "../match/decode.ts";
import { isParameter } from "../match/pattern.ts";
import { ALGORITHMS, type RuleAlgorithms } from "./algorithms.ts";
import { ANYTHING, atLeastZero, refuse, says, text } from "./schema-parts.ts";
import { vocabulary } from "./words.ts";

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

/** The methods that servers know. A rule with a misspelt method would never apply. */
const METHODS = `
  GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT QUERY PURGE
  PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK SEARCH BIND REBIND UNBIND ACL REPORT
  MKACTIVITY MKCALENDAR CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE LINK UNLINK SOURCE
`
  .trim()
  .split(/\s+/);
export const METHOD_NAMES = vocabulary(METHODS);
/** A plain path: a rule must not contain what makes a request's path ambiguous. */
const SEGMENT = /(?:\*|(?!\.{1,2}(?:\/|$))[^/?#\\;*\0-\x20\x7f]+)(?=\/|$)/.source;
const PATH = new RegExp(`^/(?:${SEGMENT}(?:/${SEGMENT})*/?)?$`);
export const PLAIN =
  "a path: it begins with / and has no ?, #, ; or \\ in it, no . or .. as a segment, and * only as a whole segment";
/** The same after decoding: blanks and stars are then ordinary characters. */
const DECODED = /^\/(?:(?![. ]+(?:\/|$))[^/?#\\;\p{Cc}]+(?:\/|$))*$/u;
/** The ways in which routers write a segment that may be anything. */
const PARAMETER = /^(?::|\{.*\}|\[.*\]|<.*>|\(.*\))/;
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/i;

/** The path to which a rule applies, with everything below it. */
export function path() {
  return text(PLAIN, PATH).superRefine((found, context) => {
    if (!PATH.test(found)) return; // reported already
    const unknown = found
      .split("/")
      .find((segment) => PARAMETER.test(segment) && !isParameter(segment));
    const plain = found.replace(/(?<=\/)\*(?=\/|$)/g, "any");
    const wrong = !DECODED.test(decode(plain))
      ? `${PLAIN}, not encoded either`
      : unknown !== undefined && `${PLAIN}; a segment that may be anything is :name, {name} or *`;
    if (wrong) refuse(context, wrong, found);
  });
}

/** How a name of the application becomes known. */
const OWN_NAMES = "or a name that you register (options.actors; check --actor; replay --field)";

/**
 * An actor by its name; a kind of actor with an argument, `{ header: x-tenant }`; or a list of these, which counts by
 * all of them together.
 */
export function actor({ actors, actorKinds }: Names) {
  const known = vocabulary(actors);
  const kinds = vocabulary(actorKinds);
  const aMap = `a map with one of ${kinds.names.join(", ")}`;
  const one = `${known.names.join(", ")}; or ${aMap}, such as { header: x-tenant }`;
  const allowed = `${one}; or a list of these`;
  const nameOf = (found: unknown, wrong: (message: string) => string): string => {
    if (typeof found === "string")
      return known.find(found) ?? wrong(`${known.names.join(", ")}, ${OWN_NAMES}`);
    const [[written = "", argument] = [], more] = Object.entries(Object(found));
    const kind = kinds.find(written);
    if (kind === undefined || more !== undefined) return wrong(aMap);
    if (typeof argument !== "string" || argument === "" || argument.includes(AND))
      return wrong(`a text as ${kind}, without "${AND}"`);
    const isName = kind !== "header" || FIELD_NAME.test(argument);
    return isName ? `${kind}:${argument}` : wrong("the name of a header field as header");
  };
  const map = z.record(z.string(), ANYTHING);
  return z
    .union(
      [
        z.string(),
        map,
        z
          .array(z.union([z.string(), map]))
          .min(2, says("two actors or more, or a single one that is no list")),
      ],
      says(allowed),
    )
    .transform((found, context) => {
      const wrong = (message: string, path: readonly number[] = []) => {
        refuse(context, message, found, path);
        return "";
      };
      if (!Array.isArray(found)) return nameOf(found, wrong);
      const names = found.map((each, i) => nameOf(each, (message) => wrong(message, [i])));
      if (names.includes("all")) wrong("a list without all, which has one value for all requests");
      return names.join(AND);
    })
    .meta({
      description: allowed,
      anyOf: [
        { enum: [...known.spellings] },
        { type: "string" },
        { type: "object", minProperties: 1, maxProperties: 1 },
        { type: "array", minItems: 2, items: { type: ["string", "object"] } },
      ],
    });
}

/** Permits: a number, numbers by method, or the name of a function of the application. */
export function cost(names: readonly string[]) {
  const permits = atLeastZero("permits that a request takes, a number, 0 or more");
  const byMethod = vocabulary([...METHODS, "other"]);
  const known = vocabulary(names);
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
        if (costBy === undefined) refuse(context, allowed, found);
        return { cost: 1, costs: {}, costBy };
      }
      const { other = 1, ...costs } = Object.fromEntries(
        Object.entries(found).map(([method, permits]) => {
          const name = byMethod.find(method);
          if (name === undefined) {
            refuse(context, 'a map from HTTP methods, or "other", to numbers', method, [method]);
          }
          if (name === "other" && permits === 0) {
            const message = "a number above 0: list methods to leave the others out";
            refuse(context, message, permits, [method]);
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
export interface ReadCost {
  readonly cost: number;
  readonly costs: Readonly<Record<string, number>>;
  readonly costBy: string | undefined;
}
