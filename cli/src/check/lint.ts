/** Finds rules that are valid but probably not intended. */
import {
  addressKey,
  isAddressOrRange,
  type Problem,
  type RequestRule,
  type Rule,
  segmentsOf,
} from "smooth-limiter-gateway/rules";
import { isOutOfReach } from "./flow.ts";

/** Identifies the kind of a warning for programs; stable. */
export type LintCode =
  | "never-binds"
  | "larger-limit-in-smaller-window"
  | "double-burst"
  | "global-without-redis"
  | "shadowed-url"
  | "same-url"
  | "no-such-value"
  | "useless-exception";

export interface Finding extends Problem {
  readonly level: "error" | "warning";
  readonly code: "invalid" | LintCode;
  /** The name of the rule; undefined if the problem is in no single rule. */
  readonly rule?: string;
}

/** A rule, with values that are computed once. */
interface Known {
  readonly rule: Rule;
  /** One of the rule's URLs. */
  readonly url: string;
  readonly path: string;
  /** Its index among all rules. */
  readonly at: number;
}

type ByPath = ReadonlyMap<string, readonly Known[]>;

/**
 * @param rules of one file
 * @param hasRedis whether the gateway has Redis, so that scope global is valid
 * @returns warnings, in the order of the file
 */
export function lint(rules: readonly Rule[], hasRedis: boolean): readonly Finding[] {
  const known = rules.flatMap((rule, at) =>
    rule.urls.map((url): Known => ({ rule, url, path: pathOf(url), at })),
  );
  const byPath = new Map<string, Known[]>();
  for (const one of known) {
    const group = byPath.get(one.path);
    if (group === undefined) byPath.set(one.path, [one]);
    else group.push(one);
  }
  const shades = new Map<Rule, Rule | undefined>();
  const found = known.flatMap((one) => {
    if (one.url !== one.rule.url) return [];
    const near = around(one, byPath);
    const shade = shadeOf(one, near);
    shades.set(one.rule, shade);
    return [
      ...(shade === undefined ? largerLimit(one, near) : neverBinds(one, shade)),
      ...doubleBurst(one),
      ...(hasRedis ? [] : globalWithoutRedis(one)),
      ...noSuchValue(one),
    ];
  });
  found.push(...shadowedUrls(byPath, shades), ...sameUrls(known), ...uselessExceptions(rules));
  return found.sort((a, b) => a.line - b.line || a.column - b.column);
}

function warning(rule: Rule, code: LintCode, message: string): Finding {
  return { ...rule.place, level: "warning", code, rule: rule.name, message };
}

/** Stands for any segment: no path of a rule contains this character. */
const ANYTHING = "\0";

/** Ends with a slash, so that every path begins with the paths that contain it. */
function pathOf(url: string): string {
  return [...segmentsOf(url).map((segment) => segment ?? ANYTHING), ""].join("/");
}

/** Returns the rules of the same URL and of those that contain it, in the order of the file. */
function around({ path }: Known, byPath: ByPath): readonly Known[] {
  const groups: (readonly Known[])[] = [];
  for (let end = 0; ; end = path.indexOf("/", end) + 1) {
    const group = byPath.get(path.slice(0, end));
    if (group !== undefined) groups.push(group);
    if (end === path.length) break;
  }
  const [only = [], ...others] = groups;
  return others.length === 0 ? only : groups.flat().sort((a, b) => a.at - b.at);
}

function lineOf({ place }: Rule): string {
  return `line ${place.line}`;
}

function rateOf(rule: Rule): string {
  if (rule.quotaUnit === "concurrent-requests") return `${rule.connections} at once`;
  if (rule.quotaUnit === "content-bytes") return `${rule.bytesPerSecond} bytes a second`;
  const { rpu, unit, units } = rule;
  if (unit === "ever") return `${rpu} in all`;
  if (units > 1) return `${rpu} in ${units} ${unit}s`;
  return `${rpu} ${unit === "hour" ? "an" : "a"} ${unit}`;
}

/** Whether `outer` counts every request that `inner` counts, by the same actor or all together. */
function counts(outer: Known, inner: Known): boolean {
  const { rule } = outer;
  return (
    rule.mode === "enforce" &&
    rule.quotaUnit === inner.rule.quotaUnit &&
    inner.path.startsWith(outer.path) &&
    (rule.actor === "all" || rule.actor === inner.rule.actor) &&
    (rule.scope === "global" || inner.rule.scope === "local") &&
    rule.overrides.length === 0 &&
    rule.exempt.length === 0 &&
    hasMethodsOf(rule, inner.rule) &&
    rule.whenActorMissing === inner.rule.whenActorMissing &&
    isPlain(rule) &&
    isSteady(rule) &&
    isSteady(inner.rule) &&
    inner.rule.urls.length === 1
  );
}

/** Whether a rule counts every request to its URLs. */
function isPlain(rule: Rule): boolean {
  const { exact, except, hosts, quotaUnit } = rule;
  const countsAll = quotaUnit !== undefined || rule.count === "all";
  return countsAll && !exact && except.length === 0 && !hosts;
}

/** Whether a request has one cost, and the numbers are those of the file. */
function isSteady(rule: Rule): boolean {
  if (rule.quotaUnit !== undefined) return true;
  const { costs, costBy, limitKey } = rule;
  // operators may change the numbers behind a limitKey at any time
  return costBy === undefined && Object.keys(costs).length === 0 && limitKey === undefined;
}

/** GET includes HEAD. */
function hasMethodsOf({ methods }: Rule, inner: Rule): boolean {
  if (methods === undefined) return true;
  return (
    inner.methods?.every(
      (method) => methods.includes(method) || (method === "HEAD" && methods.includes("GET")),
    ) ?? false
  );
}

/**
 * Returns a rule that makes this one ineffective; of two equal rules the first is the effective
 * one.
 */
function shadeOf(one: Known, near: readonly Known[]): Rule | undefined {
  return near.find(
    (other) =>
      other !== one &&
      counts(other, one) &&
      isOutOfReach(one.rule, other.rule) &&
      (other.at < one.at || !(counts(one, other) && isOutOfReach(other.rule, one.rule))),
  )?.rule;
}

function neverBinds({ rule }: Known, shade: Rule): readonly Finding[] {
  const message = `${rateOf(rule)} can never bind: all these requests pass rule "${shade.name}" (${lineOf(shade)}), ${rateOf(shade)}, which lets no more through`;
  return [warning(rule, "never-binds", message)];
}

function largerLimit(one: Known, near: readonly Known[]): readonly Finding[] {
  const { rule } = one;
  if (rule.quotaUnit !== undefined) return [];
  const other = near
    .filter((each) => counts(each, one))
    .map((each) => each.rule as RequestRule)
    .find(
      ({ actor, periodMs, rpu, cost }) =>
        actor === rule.actor && rule.periodMs < periodMs && rule.rpu / rule.cost >= rpu / cost,
    );
  if (other === undefined) return [];
  const message = `${rateOf(rule)} is no less than what rule "${other.name}" (${lineOf(other)}) allows in a longer time, ${rateOf(other)}`;
  return [warning(rule, "larger-limit-in-smaller-window", message)];
}

function doubleBurst({ rule }: Known): readonly Finding[] {
  if (rule.quotaUnit !== undefined || rule.algo !== "window") return [];
  if (rule.unit === "ever" || rule.rpu < 1) return [];
  const most = 2 * Math.floor(rule.rpu / rule.cost);
  const message = `a fixed window lets ${most} through at once where two windows meet, although it says ${rateOf(rule)}: the sliding window (SW) and the token bucket (TB) do not`;
  return [warning(rule, "double-burst", message)];
}

function globalWithoutRedis({ rule }: Known): readonly Finding[] {
  if (rule.scope === "local") return [];
  const message =
    "scope global needs a gateway with options.redis; without one it refuses the file. Pass --redis if it has one";
  return [warning(rule, "global-without-redis", message)];
}

/** A value that looks like an address. */
const ADDRESS = /^[0-9a-f]*[.:][0-9a-f.:]*(?:\/[0-9]+)?$/i;

/** Finds overrides and exemptions that never equal a value of the actor. */
function noSuchValue({ rule }: Known): readonly Finding[] {
  const messages =
    rule.actor === "device" ? ofDevice(rule) : rule.actor === "all" ? ofAll(rule) : [];
  return messages.map((message) => warning(rule, "no-such-value", message));
}

function ofAll({ exempt, overrides }: Rule): readonly string[] {
  const isOverridden = overrides.some(({ value }) => value !== "");
  const fields = [...(exempt.length > 0 ? ["exempt"] : []), ...(isOverridden ? ["overrides"] : [])];
  return fields.map((field) => `${field} of actor all never applies`);
}

function ofDevice({ exempt, overrides }: Rule): readonly string[] {
  const broken = exempt.filter((value) => ADDRESS.test(value) && !isAddressOrRange(value));
  return [
    ...broken.map(
      (value) => `exempt "${value}" never applies: it is neither an address nor a range`,
    ),
    ...overrides.flatMap(({ value }) => {
      const [bare = "", bits] = value.split("/");
      const address = addressKey(bare);
      if (address === undefined || address === value) return [];
      const isPrefix = bits !== undefined && addressKey(bare, Number(bits)) === value;
      const unless = isPrefix ? ` unless the gateway has ipv6Prefix: ${bits}` : "";
      return `override "${value}" never applies${unless}: this address counts as "${address}"`;
    }),
  ];
}

function shadowedUrls(
  byPath: ByPath,
  shades: ReadonlyMap<Rule, Rule | undefined>,
): readonly Finding[] {
  return [...byPath].flatMap(([path, group]) => {
    const [first] = group;
    // a rule that is ineffective only because of its own URL does not make the URL ineffective
    const isShadowed = group.every(({ rule }) => {
      const shade = shades.get(rule);
      return shade?.urls.every((url) => pathOf(url) !== path) ?? false;
    });
    if (first === undefined || !isShadowed) return [];
    const message = `url ${first.url} is shadowed: none of its rules can ever bind, because those of outer URLs are stricter`;
    return [warning(first.rule, "shadowed-url", message)];
  });
}

function sameUrls(known: readonly Known[]): readonly Finding[] {
  const first = new Map<string, Known>();
  const reported = new Set<string>();
  return known.flatMap((one) => {
    const { rule, url, path } = one;
    const other = first.get(path);
    if (other === undefined) first.set(path, one);
    if (other === undefined || other.url === url || reported.has(url)) return [];
    reported.add(url);
    const message = `url ${url} is the same as ${other.url} (${lineOf(other.rule)}): the rules of both apply`;
    return [warning(rule, "same-url", message)];
  });
}

/** Finds exceptions that exempt no path of a rule. Rules of the same list have the same ones. */
function uselessExceptions(rules: readonly Rule[]): readonly Finding[] {
  const reported = new Set<string>();
  return rules.flatMap((rule) =>
    rule.except.flatMap((path) => {
      const { urls, exact } = rule;
      const message = `except ${path} exempts nothing: it is not below ${urls.join(" or ")}`;
      if (urls.some((url) => meet(url, path, exact)) || reported.has(message)) return [];
      reported.add(message);
      return [warning(rule, "useless-exception", message)];
    }),
  );
}

/** Whether a path can be at or below an exception while a rule for the URL applies to it. */
function meet(url: string, exception: string, exact: boolean): boolean {
  const [here, there] = [segmentsOf(url), segmentsOf(exception)];
  return there.every((segment, i) => {
    if (i >= here.length) return !exact;
    const own = here[i];
    return own === undefined || segment === undefined || own === segment;
  });
}
