/** Adds the key and its value, or the missing rights, to an error that only the operator can fix. */
import { show } from "../../ground/check.ts";
import { look as lookLua } from "./lua.gen.ts";
import { callScript, type Script, type ScriptRunner } from "./script-runner.ts";

const LOOK: Script = { name: "smoothLimiter:look", lua: lookLua };

const UNREADABLE = /the key (.*) holds a value that no limiter has written/s;
const MISSING_RIGHT = /NOPERM|user executing the script/;

/** The type of the values that a store keeps, and the rights that its Redis user needs. */
export interface Kept {
  readonly type: "string" | "zset";
  readonly rights: string;
}

export const LIMITER_STATE: Kept = { type: "string", rights: "+evalsha +eval +get +set +time" };

export const LEASES: Kept = {
  type: "zset",
  rights: "the rights in docs/concurrency.md, from +evalsha to +publish,",
};

/**
 * @param keys the keys that were passed to the script
 * @param needed those to which its user needs rights, as patterns
 * @returns the error with the added facts, or the error itself if there are none
 */
export async function explain(
  runner: ScriptRunner,
  { type, rights }: Kept,
  keys: readonly string[],
  error: unknown,
  needed = keys,
): Promise<unknown> {
  const message = error instanceof Error ? error.message : String(error);
  if (MISSING_RIGHT.test(message)) {
    const named = needed.map((key) => JSON.stringify(key)).join(", ");
    return new Error(`${message} (a limiter needs ${rights} on ${named})`, { cause: error });
  }
  const [, unreadable] = UNREADABLE.exec(message) ?? [];
  const candidates = unreadable === undefined ? keys : [unreadable];
  if (unreadable === undefined && !message.includes("WRONGTYPE")) return error;
  for (const key of candidates) {
    const what = await look(runner, key);
    if (what === undefined || what.type === "none") continue;
    if (what.type === type && unreadable === undefined) continue;
    const code = unreadable === undefined ? "WRONGTYPE " : "";
    return new Error(
      `${code}the key ${JSON.stringify(key)} holds ${what.words}, which no limiter has written: ` +
        "delete it, or give the limiter another name or prefix",
      { cause: error },
    );
  }
  return error;
}

async function look(runner: ScriptRunner, key: string) {
  try {
    const [type = "", text = ""] = String(await callScript(runner, LOOK, [key], [])).split("\t");
    const words = `a value of type ${type || "unknown"}`;
    if (type === "zset" && text !== "") return { type, words: `${words} with ${show(text)}` };
    return { type, words: type === "string" ? show(text) : words };
  } catch {
    // the value cannot be read, so the error stays as it is
    return undefined;
  }
}
