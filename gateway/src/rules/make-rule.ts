/** Makes a rule from the fields that were read. */
import {
  type ConnectionRule,
  type Place,
  type RateRule,
  type RequestRule,
  type Rule,
  type RuleNumbers,
  type RuleOverride,
  UNITS,
} from "./rule.ts";
import type { ReadRule } from "./rule-schema.ts";
import type { Entry } from "./schema.ts";

type Read<Field extends string> = Extract<ReadRule, { readonly [Key in Field]: unknown }>;

export function ruleOf(entry: Entry, read: ReadRule, place: Place): Rule {
  if ("connections" in read) return connectionRule(entry, read, place);
  return "bytesPerSecond" in read ? rateRule(entry, read, place) : requestRule(entry, read, place);
}

/** The fields of all kinds of rules, except the actor: its type differs by kind. */
function common(
  { url: urls, exact, except, host: hosts }: Entry,
  { name, methods, whenActorMissing, exempt = [] }: ReadRule,
  place: Place,
  nameOf: (methods: readonly string[] | undefined) => string,
) {
  const sorted = methods && [...new Set(methods)].sort();
  return {
    name: name ?? nameOf(sorted),
    url: urls[0] ?? "/",
    urls,
    exact,
    except,
    hosts,
    methods: sorted,
    whenActorMissing,
    exempt,
    place,
  };
}

function requestRule(entry: Entry, read: Read<"rpu">, place: Place): RequestRule {
  // a quota without an end has no rate at which a bucket could be refilled
  const { algo = read.unit === "ever" ? "window" : "token bucket" } = read;
  const { actor, count, units, unit, overrides = {} } = read;
  const per = units === 1 ? unit : `${units} ${unit}`;
  const counted = typeof count === "string" ? count : count.status.join(",");
  const what = [actor, `per ${per}`, algo, ...(count === "all" ? [] : [counted])];
  // V8 creates an object literal slowly if it goes on after a spread
  return {
    actor,
    algo,
    scope: read.scope,
    mode: read.mode,
    report: read.report,
    cost: read.cost.cost,
    costs: read.cost.costs,
    costBy: read.cost.costBy,
    count,
    block: read.block,
    limitKey: read.limitKey,
    overrides: Object.entries(overrides).map(
      ([value, other]): RuleOverride => ({ value, ...numbersOf({ ...read, ...defined(other) }) }),
    ),
    ...common(entry, read, place, (methods) => derivedName(entry, methods, what)),
    ...numbersOf(read),
  };
}

function connectionRule(entry: Entry, read: Read<"connections">, place: Place): ConnectionRule {
  const { actor, connections, maxAge, overrides = {} } = read;
  const what = [actor, "connections"];
  return {
    quotaUnit: "concurrent-requests",
    actor,
    scope: read.scope,
    mode: read.mode,
    report: read.report,
    cost: 1,
    connections,
    maxAgeMs: maxAge,
    overrides: Object.entries(overrides).map(([value, other]) => ({ value, ...other })),
    ...common(entry, read, place, (methods) => derivedName(entry, methods, what)),
  };
}

function rateRule(entry: Entry, read: Read<"bytesPerSecond">, place: Place): RateRule {
  const { actor, bytesPerSecond, afterBytes, overrides = {} } = read;
  const what = actor === undefined ? ["bytes"] : [actor, "bytes"];
  return {
    quotaUnit: "content-bytes",
    actor,
    scope: "local",
    mode: "enforce",
    bytesPerSecond,
    afterBytes,
    overrides: Object.entries(overrides).map(([value, other]) => ({
      value,
      bytesPerSecond: other.bytesPerSecond ?? bytesPerSecond,
      afterBytes: other.afterBytes ?? afterBytes,
    })),
    ...common(entry, read, place, (methods) => derivedName(entry, methods, what)),
  };
}

type ReadNumbers = Partial<Omit<RuleNumbers, "periodMs">> & Pick<RuleNumbers, "rpu" | "unit">;

function numbersOf(
  read: { [Key in keyof ReadNumbers]: ReadNumbers[Key] | undefined },
): RuleNumbers {
  const { rpu, unit, units = 1, burst, nodelay, with: rest = {} } = read as ReadNumbers;
  const { slack, buckets, align, timeZone } = read as ReadNumbers;
  const periodMs = units * UNITS[unit];
  return {
    rpu,
    unit,
    units,
    periodMs,
    burst,
    nodelay,
    slack,
    buckets,
    align,
    timeZone,
    with: rest,
  };
}

function defined(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Derives a name from what the rule applies to, not from its place in the file or its numbers. */
function derivedName(
  { url, exact, host = [] }: Entry,
  methods: readonly string[] = [],
  what: readonly string[],
): string {
  const paths = url.map((each) => encodeURI(each.replace(/\p{Surrogate}/gu, "\ufffd")));
  const where = `${exact ? "=" : ""}${paths.join(",")}`;
  return [...host, where, ...methods, ...what.map(printable)].join(" ");
}

/** Escapes, as in a URL, characters that header fields cannot contain. */
function printable(name: string): string {
  return name
    .replace(/\p{Surrogate}/gu, "\ufffd")
    .replace(/[^ -~]/gu, (char) => encodeURIComponent(char));
}
