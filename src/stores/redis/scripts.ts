/** Builds the scripts: frame.lua, or steps of it, with the twins of the algorithms that are used. */

import { lua } from "./lua.gen.ts";
import type { KeyScript } from "./script-coalescer.ts";
import type { Script } from "./script-runner.ts";

interface HotPath {
  readonly make: string;
  readonly args: string;
  readonly key: string;
}

const scripts = new Map<string, KeyScript>();
const combinedScripts = new Map<string, Script>();

/**
 * Returns the frame with the twins, with the rarer verbs or without. Without them the hot path of the
 * algorithm comes first, if it has one. All limiters share the scripts.
 */
export function scriptFor(names: readonly string[], verbs: string): KeyScript {
  const used = distinct(names);
  const name = `smoothLimiter:${used.join("+")}${verbs === "" ? "" : ":verbs"}`;
  const known = scripts.get(name);
  if (known !== undefined) return known;
  const { head, frame, run } = stepsOf(verbs);
  const script = keyScript(name, head, hotPathOf(used, verbs), twinsOf(used) + frame, run);
  scripts.set(name, script);
  return script;
}

/**
 * @param hot the code that is tried first, for each key
 * @param made the code that runs once in a call, for the first key that the hot path does not answer
 * @param run the code that runs for each such key
 */
function keyScript(name: string, head: string, hot: HotPath, made: string, run: string): KeyScript {
  const one = `do\n${hot.make}${hot.args}${hot.key}end\n${made}${run}`;
  const lazy = `local frame\nlocal function make()\n${made}return function()\n${run}end\nend\n`;
  const each = `local function run()\n${hot.key}frame = frame or make()\nreturn frame()\nend\n`;
  const many = each + String(lua.many).replace("--> arguments\n", () => hot.args);
  const open = "key, key_at, first, last, trip_at = KEYS[1], 1, 1, #ARGV - 2, #ARGV - 1\n";
  return {
    one: { name, lua: head + open + one },
    many: { name: `${name}:many`, lua: head + hot.make + lazy + many },
  };
}

/** The script that counts processes. */
export const processScript: KeyScript = keyScript(
  "smoothLimiter:processes",
  "local key, key_at, first, last, trip_at\n",
  { make: "", args: "", key: "" },
  "",
  String(lua.processes),
);

/** Returns the script for requests to several limiters each, with algorithms among `names`. */
export function combinedScriptFor(names: readonly string[]): Script {
  const used = distinct(names);
  const name = `smoothLimiter:${used.join("+")}:combined`;
  const known = combinedScripts.get(name);
  if (known !== undefined) return known;
  const { head, frame, load, save } = stepsOf(String(lua.verbs));
  const combined = String(lua.combined)
    .replace("--> load\n", () => load)
    .replace("--> save\n", () => save);
  const script = { name, lua: head + twinsOf(used) + frame + combined };
  combinedScripts.set(name, script);
  return script;
}

function distinct(names: readonly string[]): readonly string[] {
  return [...new Set(names)].sort();
}

function twinsOf(names: readonly string[]): string {
  return `local algorithms = {}\n${names.map((each) => `do\n${lua[each]}end\n`).join("")}`;
}

/** Returns the steps of the frame, divided at its marks: `run` is everything after `frame`. */
function stepsOf(verbs: string) {
  const text = String(lua.frame).replace("--> verbs\n", () => verbs);
  const steps = text.split(/--> (?:hot|load|requests|save|reply)\n/);
  const [head = "", frame = "", load = "", requests = "", save = "", reply = ""] = steps;
  return { head, frame, load, save, run: load + requests + save + reply };
}

/** Returns the steps of the algorithm's hot path; empty for several algorithms, or without a hot path. */
function hotPathOf(names: readonly string[], verbs: string): HotPath {
  const text = verbs === "" ? lua[`${names}:hot`] : undefined;
  const [make = "", args = "", key = ""] = text?.split(/--> (?:arguments|key)\n/) ?? [];
  return { make, args, key };
}
