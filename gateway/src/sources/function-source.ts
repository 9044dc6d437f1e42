import { checkFunction, checkOptions, checkText } from "../ground/check.ts";
import type { Rule } from "../rules/rule.ts";
import { askInTime, POLL_OPTIONS, poll, TIMEOUT_MS } from "./poll.ts";
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
  checkOptions("options", options, { ...POLL_OPTIONS, name: checkText });
  const { name = "function", everyMs, timeoutMs = TIMEOUT_MS } = options;
  checkFunction("load", load);
  const ask = async (signal: AbortSignal) => load(signal);
  const source = { name, load: (signal: AbortSignal) => askInTime(timeoutMs, name, signal, ask) };
  if (everyMs === undefined) return source;
  return { ...source, watch: (changed) => poll(changed, everyMs) };
}
