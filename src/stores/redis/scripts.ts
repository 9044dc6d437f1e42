/** The scripts: frame.lua, or steps of it, around the twins of the algorithms that are used. */
import type { Script } from "./client.ts";
import { lua } from "./lua.gen.ts";
import type { KeyScript } from "./script-coalescer.ts";

const scripts = new Map<string, KeyScript>();
const combinedScripts = new Map<string, Script>();

/** The frame around the twins, with the rarer verbs or without. All limiters share them. */
export function scriptFor(names: readonly string[], verbs: string): KeyScript {
  const used = distinct(names);
  const name = `smoothLimiter:${used.join("+")}${verbs === "" ? "" : ":verbs"}`;
  const known = scripts.get(name);
  if (known !== undefined) return known;
  const { once, run } = stepsOf(used, verbs);
  const script = keyScript(name, once, run);
  scripts.set(name, script);
  return script;
}

/** @param once what is run once in a call @param run what is run for each key */
function keyScript(name: string, once: string, run: string): KeyScript {
  return {
    one: { name, lua: `${once}key, key_at, first, last = KEYS[1], 1, 1, #ARGV\n${run}` },
    many: { name: `${name}:many`, lua: `${once}local function run()\n${run}end\n${lua.many}` },
  };
}

/** Counts processes. */
export const processScript: KeyScript = keyScript(
  "smoothLimiter:processes",
  "local key, key_at, first, last\n",
  String(lua.processes),
);

/** For requests of several limiters each, whose algorithms are among these. */
export function combinedScriptFor(names: readonly string[]): Script {
  const used = distinct(names);
  const name = `smoothLimiter:${used.join("+")}:combined`;
  const known = combinedScripts.get(name);
  if (known !== undefined) return known;
  const { once, load, save } = stepsOf(used, String(lua.verbs));
  const combined = String(lua.combined)
    .replace("--> load\n", () => load)
    .replace("--> save\n", () => save);
  const script = { name, lua: once + combined };
  combinedScripts.set(name, script);
  return script;
}

function distinct(names: readonly string[]): readonly string[] {
  return [...new Set(names)].sort();
}

/** The steps of the frame, by its marks: `run` is all that comes after `once`. */
function stepsOf(used: readonly string[], verbs: string) {
  const twins = used.map((each) => `do\n${lua[each]}end\n`).join("");
  const frame = String(lua.frame).replace("--> verbs\n", () => verbs);
  const [made = "", load = "", requests = "", save = "", reply = ""] = frame.split(
    /--> (?:load|requests|save|reply)\n/,
  );
  const once = `local algorithms = {}\n${twins}${made}`;
  return { once, load, save, run: load + requests + save + reply };
}
