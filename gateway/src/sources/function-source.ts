import { checkOptions, checkText, show } from "../ground/check.ts";
import type { Rule } from "../rules/rule.ts";
import { checkPeriod, poll, within } from "./poll.ts";
import type { RuleSource } from "./source.ts";

/** The options of `functionSource`. */
export interface FunctionSourceOptions {
  /** The source's name in messages. Default "function". */
  readonly name?: string | undefined;
  /**
   * How often the function is called, ms, give or take a tenth; above 0, at most 1e9. Default:
   * once.
   */
  readonly everyMs?: number | undefined;
  /** How long a call may take, ms; above 0, at most 1e9. Default 5000. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Rules from any function: a database, a vault, a service of yours.
 *
 * @param load returns YAML, or the result of `readRules`, or a promise of it; throws or rejects if
 *   it cannot. Its signal is aborted when the call takes too long or the gateway is closed
 * @param options see `FunctionSourceOptions`
 * @returns a source for `createGateway`
 * @throws TypeError or RangeError that names the argument, its bound and what it got
 * @example
 * const remote = functionSource(() => db.setting("rules"), { everyMs: 10_000 });
 */
export function functionSource(
  load: (signal: AbortSignal) => string | readonly Rule[] | Promise<string | readonly Rule[]>,
  options: FunctionSourceOptions = {},
): RuleSource {
  checkOptions("options", options, ["name", "everyMs", "timeoutMs"]);
  const { name = "function", everyMs, timeoutMs = 5000 } = options;
  if (typeof load !== "function") {
    throw new TypeError(`load must be a function, got ${show(load)}`);
  }
  checkText("name", name);
  checkPeriod("timeoutMs", timeoutMs);
  const ask = async (signal: AbortSignal) => load(signal);
  const source = { name, load: (signal: AbortSignal) => within(timeoutMs, name, signal, ask) };
  if (everyMs === undefined) return source;
  checkPeriod("everyMs", everyMs);
  return { ...source, watch: (changed) => poll(changed, everyMs) };
}
