import { type Rule, RulesError, readRules } from "smooth-limiter-gateway/rules";
import { type Colors, colorsOf, type Io, json, printable, readText, sourceName } from "../io.ts";
import { some } from "../words.ts";
import { type Finding, lint } from "./lint.ts";

export interface CheckOptions {
  readonly strict?: boolean;
  readonly json?: boolean;
  readonly redis?: boolean;
  /** Names of actors that the application registers. */
  readonly actor: readonly string[];
  /** Names of kinds of actors that the application registers. */
  readonly actorKind: readonly string[];
  /** Names of functions of the application that compute costs. */
  readonly cost: readonly string[];
}

/** @returns whether the rules are valid; with `strict`, whether they have no warnings either */
export async function check(
  paths: readonly string[],
  options: CheckOptions,
  io: Io,
): Promise<boolean> {
  const files = await Promise.all(paths.map((path) => checkFile(path, options, io)));
  const findings = files.flatMap((file) => file.findings);
  const rules = files.flatMap((file) => file.rules);
  const errors = findings.filter(({ level }) => level === "error").length;
  const warnings = findings.length - errors;
  const urls = new Set(rules.map(({ url }) => url)).size;
  if (options.json) {
    const result = { rules: rules.length, urls, errors, warnings, findings };
    io.stdout.write(json(result));
  } else {
    const colors = colorsOf(io, io.stdout);
    for (const finding of findings) io.stdout.write(`${line(finding, colors)}\n`);
    const counts = `${some(rules.length, "rule")} for ${some(urls, "URL")}`;
    const found = `${some(errors, "error")}, ${some(warnings, "warning")}`;
    const sum = errors + warnings > 0 ? found : colors.green("fine");
    io.stdout.write(`${errors > 0 ? "" : `${counts}: `}${sum}\n`);
    const shared = rules.filter(({ scope }) => scope === "global").length;
    if (options.redis && shared > 0) io.stdout.write(`${duringOutages(shared)}\n`);
  }
  return errors === 0 && !(options.strict && warnings > 0);
}

/** What the defaults of `createGateway` do while Redis is unavailable. */
function duringOutages(count: number): string {
  return `while Redis is unavailable each instance applies its share of ${some(count, "global rule")}, by the last count of instances, unless options.whenUnavailable is set`;
}

async function checkFile(
  path: string,
  { actor, actorKind, cost, redis = false }: CheckOptions,
  io: Io,
): Promise<{ rules: readonly Rule[]; findings: readonly Finding[] }> {
  const text = await readText(path, io);
  try {
    const rules = readRules(text, {
      source: sourceName(path),
      actors: actor,
      actorKinds: actorKind,
      costs: cost,
    });
    return { rules, findings: lint(rules, redis) };
  } catch (error) {
    if (!(error instanceof RulesError)) throw error;
    const findings = error.facts.problems.map(
      (problem): Finding => ({ ...problem, level: "error", code: "invalid" }),
    );
    return { rules: [], findings };
  }
}

function line(finding: Finding, colors: Colors): string {
  const { source, line, column, level, message, code } = finding;
  const paint = level === "error" ? colors.red : colors.yellow;
  const where = colors.bold(`${printable(source)}:${line}:${column}:`);
  const which = code === "invalid" ? "" : ` ${colors.dim(`[${code}]`)}`;
  return `${where} ${paint(level)}: ${printable(message)}${which}`;
}
