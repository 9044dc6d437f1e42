/** Runs scripts through a client of any kind. */
import { show } from "../../ground/check.ts";
import { readable } from "../../ground/errors.ts";
import { notAClient } from "./not-a-client.ts";

/** The only operation that a limiter needs of a Redis client: run a script. */
export interface ScriptRunner {
  runScript(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

export interface Script {
  /** The name of the script, unique in this package. */
  readonly name: string;
  readonly lua: string;
}

/**
 * Runs a script. The promise resolves to a text or a list of texts, or rejects with an Error that has a
 * readable message: also if the client throws, returns no promise, replies with something else, or rejects
 * with something that is not an Error.
 */
export function callScript(
  runner: ScriptRunner,
  script: Script,
  keys: readonly string[],
  args: readonly string[],
): Promise<string | readonly string[]> {
  try {
    return Promise.resolve(runner.runScript(script, keys, args)).then(textsOf, fail);
  } catch (reason) {
    return Promise.reject(readable(reason));
  }
}

/** The longest text that is read, in characters: about twice what 4096 decisions on ten policies need. */
const LONGEST_TEXT = 2 ** 22;

function textsOf(reply: unknown): string | readonly string[] {
  try {
    const texts = typeof reply === "string" ? reply : listOf(reply);
    const longest = typeof texts === "string" ? texts : texts.find(isTooLong);
    if (longest === undefined || !isTooLong(longest)) return texts;
    throw new TypeError(
      `the script answered ${longest.length} characters, more than it ever needs`,
    );
  } catch (reason) {
    return fail(reason);
  }
}

function isTooLong({ length }: string): boolean {
  return length > LONGEST_TEXT;
}

function listOf(reply: unknown): readonly string[] {
  // a copy: what a client does to its list later has no effect
  const texts: unknown[] = Array.isArray(reply) ? [...reply] : [];
  if (Array.isArray(reply) && texts.every((text) => typeof text === "string")) return texts;
  throw new TypeError(`the script answered ${show(reply)}, which is not a text or a list of texts`);
}

function fail(reason: unknown): never {
  throw readable(reason);
}

/** Returns whether the server does not run a script on these keys because they are in several slots of a Cluster. */
export function isCrossSlot(error: unknown): boolean {
  return /CROSSSLOT|same slot/.test(String(error));
}

/** Sends a script, its hash or its text, with the method of a client. */
type Send = (script: string, keys: readonly string[], args: readonly string[]) => Promise<unknown>;

/**
 * Returns a runner that sends a script by its hash, and its whole text if the server does not have it.
 * (ioredis' own `defineCommand` does the same, but fails if the client pipelines automatically.)
 */
export function runByHash(byHash: Send, whole: Send): ScriptRunner {
  const runScript: ScriptRunner["runScript"] = ({ name, lua }, keys, args) => {
    const hash = hashes.get(lua) ?? sha1(lua);
    if (typeof hash !== "string") {
      // scripts that are sent meanwhile wait for the same promise, so the order is kept
      hashes.set(lua, hash);
      return hash.then((found) => {
        hashes.set(lua, found);
        return runScript({ name, lua }, keys, args);
      });
    }
    const reply = byHash(hash, keys, args);
    if (typeof reply?.then !== "function") {
      throw notAClient(`a client that answers with ${show(reply)} where a promise is expected`);
    }
    return Promise.resolve(reply).then(undefined, (error: unknown) => {
      if (!readable(error).message.includes("NOSCRIPT")) throw error;
      return whole(lua, keys, args);
    });
  };
  return { runScript };
}

const hashes = new Map<string, string | Promise<string>>();

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
