/** The scripts: frame.lua, or steps of it, around the twins of the algorithms that are used. */
import type { Script } from "./client.ts";
import { lua } from "./lua.gen.ts";
import type { KeyScript } from "./script-coalescer.ts";

const scripts = new Map<string, KeyScript>();
const combinedScripts = new Map<string, Script>();

/**
 * The frame around the twins, with the rarer verbs or without, and where requests only reserve and
 * the algorithm has one behind its hot path. All limiters share them.
 */
export function scriptFor(names: readonly string[], verbs: string): KeyScript {
  const used = distinct(names);
  const name = `smoothLimiter:${used.join("+")}${verbs === "" ? "" : ":verbs"}`;
  const known = scripts.get(name);
  if (known !== undefined) return known;
  const script = build(name, used, verbs);
  scripts.set(name, script);
  return script;
}

function build(name: string, used: readonly string[], verbs: string): KeyScript {
  const { head, frame, run } = stepsOf(verbs);
  const hot = verbs === "" ? hotPathOf(used) : undefined;
  const made = `${hot?.rest ?? twinsOf(used)}${frame}`;
  const one = `${hot === undefined ? "" : hot.make + hot.arguments + hot.key}${made}${run}`;
  const many = String(lua.many).replace("--> arguments\n", () => hot?.arguments ?? "");
  // the frame is made for the first key that needs it
  const lazy = `local frame\nlocal function make()\n${made}return function()\n${run}end\nend\n`;
  const runEach = `local function run()\n${hot?.key ?? ""}frame = frame or make()\nreturn frame()\nend\n`;
  return {
    one: { name, lua: `${head}key, key_at, first, last = KEYS[1], 1, 1, #ARGV\n${one}` },
    many: { name: `${name}:many`, lua: `${head}${hot?.make ?? ""}${lazy}${runEach}${many}` },
  };
}

/** For requests of several limiters each, whose algorithms are among these. */
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

/** The steps of the frame, by its marks: `run` is all that comes after `frame`. */
function stepsOf(verbs: string) {
  const text = String(lua.frame).replace("--> verbs\n", () => verbs);
  const steps = text.split(/--> (?:hot|load|requests|grants|granted|save|reply)\n/);
  const [head = "", frame = "", load = "", ...rest] = steps;
  const [before = "", grants = "", after = "", save = "", reply = ""] = rest;
  return { head, frame, load, grants, save, run: load + before + grants + after + save + reply };
}

/**
 * The steps of the hot path of this algorithm, and the rest of its twin; undefined where it has
 * none. The twin's mark names the fields of the state.
 */
function hotPathOf(names: readonly string[]) {
  const [needed = "", first, second, rest] = String(lua[String(names)]).split(
    /--> hot (\w+) (\w+)\n/,
  );
  if (first === undefined || second === undefined) return undefined;
  const { grants } = stepsOf("");
  const text = String(lua.hot)
    .replace(/\b(FIRST|SECOND)\b/g, (field) => (field === "FIRST" ? first : second))
    .replace("--> grants\n", () => grants);
  const [state = "", args = "", key = ""] = text.split(/--> (?:arguments|key)\n/);
  return {
    make: needed + state,
    arguments: args,
    key,
    rest: `local algorithms = {}\n${rest}`,
  };
}
