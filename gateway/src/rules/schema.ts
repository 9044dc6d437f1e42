/**
 * The schema of a rules file. Each part describes in words what is allowed; the reader adds what
 * was found. The same words are the descriptions in the JSON Schema.
 */
import * as z from "zod";
import { ruleSchema } from "./rule-schema.ts";
import { BUILT_IN, type Names, PLAIN, path } from "./schema-fields.ts";
import { jsonOf, list, object, oneOrMore, says } from "./schema-parts.ts";

/** A host name, the first part of which may be a star. */
const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/i;
const A_HOST = "a host name without a port, such as api.example.com or *.example.com";

function hostName() {
  return z
    .string(says(A_HOST))
    .regex(HOST, { error: ({ input }) => asSent(String(input)) ?? A_HOST })
    .meta({ description: A_HOST });
}

/** Returns what is allowed in place of a host name with letters that no request has: its punycode. */
function asSent(name: string): string | undefined {
  const [, star = "", rest = ""] =
    /^(\*\.)?([^\0-\x20/?#@:\\]*[^\0-\x7f][^\0-\x20/?#@:\\]*)$/.exec(name) ?? [];
  const sent = URL.canParse(`http://${rest}`) ? `${star}${new URL(`http://${rest}`).hostname}` : "";
  return HOST.test(sent) ? `${sent}, as clients send this name` : undefined;
}

/** The schema of one URL and its rules. */
export function entrySchema(names: Names) {
  return object({
    url: oneOrMore(path(), PLAIN),
    exact: z.boolean(says("true or false")).default(false),
    except: oneOrMore(
      path().refine((found) => found !== "/", says("a path below the root")),
      PLAIN,
    ).default([]),
    host: oneOrMore(hostName(), A_HOST).optional(),
    rules: list(ruleSchema(names), "a list of rules, at least one"),
  });
}

export type EntrySchema = ReturnType<typeof entrySchema>;
export type Entry = z.output<EntrySchema>;

/** A URL and its rules as a plain object, with the fields that rules have in a file. */
export interface UrlRules extends Readonly<z.input<EntrySchema>> {}

/** Returns the JSON Schema of a file, for editors: one entry, or a list of entries. */
export function rulesJsonSchema(): object {
  const entry = jsonOf(entrySchema(BUILT_IN));
  const { url, ...others } = entry.properties ?? {};
  const entries = ["url", "Url"].map((name) => ({
    ...entry,
    properties: { [name]: url, ...others },
    required: [name, "rules"],
  }));
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Rules of smooth-limiter-gateway",
    $defs: { entry: { anyOf: entries } },
    anyOf: [{ $ref: "#/$defs/entry" }, { type: "array", items: { $ref: "#/$defs/entry" } }],
  };
}
