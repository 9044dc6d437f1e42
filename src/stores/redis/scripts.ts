/** Builds the scripts: transition.lua, or steps of it, with the twins of the algorithms that are used. */

import {
  coldTwins,
  combined as combinedLua,
  hot as hotLua,
  ledger as ledgerLua,
  many as manyLua,
  one as oneLua,
  processes as processesLua,
  transition as transitionLua,
  verbs as verbsLua,
} from "./lua.gen.ts";
import type { LuaTwin } from "./lua-twin.ts";
import type { KeyScript } from "./script-coalescer.ts";
import type { Script } from "./script-runner.ts";

interface HotPath {
  readonly make: string;
  readonly args: string;
  readonly key: string;
}

const MARK = /--> (\w+)\n/g;

const scripts = new Map<string, KeyScript>();
const combinedScripts = new Map<string, Script>();

/**
 * Returns the transition with the twins, with the rarer verbs or without. Without them the hot path of the
 * algorithm comes first, if it has one. All limiters share the scripts.
 */
export function scriptFor(twins: readonly LuaTwin[], hasVerbs: boolean): KeyScript {
  const used = distinct(twins);
  const name = `${nameOf(used)}${hasVerbs ? ":verbs" : ""}`;
  const known = scripts.get(name);
  if (known !== undefined) return known;
  const { head, transition, run } = stepOf(used, hasVerbs ? verbsLua : "");
  const script = keyScript(name, head, hotPathOf(hasVerbs ? [] : used), transition, run);
  scripts.set(name, script);
  return script;
}

/**
 * @param hot the code that is tried first, for each key
 * @param made the code that runs once in a call, for the first key that the hot path does not answer
 * @param run the code that runs for each such key
 */
function keyScript(name: string, head: string, hot: HotPath, made: string, run: string): KeyScript {
  const one = withSteps(oneLua, { hot: hot.make + hot.args + hot.key }) + made + run;
  const many = withSteps(manyLua, { made, run, key: hot.key, arguments: hot.args });
  return {
    one: { name, lua: head + one },
    many: { name: `${name}:many`, lua: head + hot.make + many },
  };
}

/** The script that counts processes. */
export const processScript: KeyScript = bareScript("processes", processesLua);

/** The script that exchanges messages with the ledger of a divided limit. */
export const ledgerScript: KeyScript = /* @__PURE__ */ bareScript("ledger", ledgerLua);

/** Returns a script without algorithms. */
function bareScript(name: string, lua: string): KeyScript {
  const [head = "", run = ""] = lua.split("--> run\n");
  return keyScript(`smoothLimiter:${name}`, head, { make: "", args: "", key: "" }, "", run);
}

/** Returns the script for requests to several limiters each, with algorithms among these. */
export function combinedScriptFor(twins: readonly LuaTwin[]): Script {
  const used = distinct(twins);
  const name = `${nameOf(used)}:combined`;
  const known = combinedScripts.get(name);
  if (known !== undefined) return known;
  const { head, transition, load, save } = stepOf(used, verbsLua);
  const script = { name, lua: head + transition + withSteps(combinedLua, { load, save }) };
  combinedScripts.set(name, script);
  return script;
}

/** Returns each twin once, in the order of the names. */
function distinct(twins: readonly LuaTwin[]): readonly LuaTwin[] {
  const byName = new Map(twins.map((twin) => [twin.name, twin]));
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function nameOf(twins: readonly LuaTwin[]): string {
  return `smoothLimiter:${twins.map(({ name }) => name).join("+")}`;
}

/** Returns the code with these steps in place of the marks with their names. */
function withSteps(lua: string, steps: Readonly<Record<string, string>>): string {
  return lua.replace(MARK, (mark, name: string) => steps[name] ?? mark);
}

/** Returns the steps of the transition, divided at its marks: `run` is everything after `transition`. */
function stepOf(used: readonly LuaTwin[], verbs: string) {
  const others = coldTwins.filter(({ code }) => used.every((twin) => twin.code !== code));
  const marks = { twins: textOf(used), others: textOf(others), verbs };
  const steps = withSteps(transitionLua, marks).split(/--> \w+\n/);
  const [head = "", transition = "", load = "", requests = "", save = "", reply = ""] = steps;
  return { head, transition, load, save, run: load + requests + save + reply };
}

function textOf(twins: readonly LuaTwin[]): string {
  return twins
    .map(({ lua, own = {} }) => `do\n${lua.replace(MARK, (_, mark) => own[mark] ?? "")}end\n`)
    .join("");
}

/** Returns the steps of the algorithm's hot path; empty for several algorithms, or without a hot path. */
function hotPathOf(twins: readonly LuaTwin[]): HotPath {
  const parts = twins.length === 1 ? twins[0]?.hot : undefined;
  const text = parts === undefined ? "" : withSteps(withSteps(hotLua, parts), parts);
  const [make = "", args = "", key = ""] = text.split(/--> \w+\n/);
  return { make, args, key };
}
