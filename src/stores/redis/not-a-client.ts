/** Errors for arguments that are not a Redis client: what is accepted, and the likely mistake. */
import { show } from "../../ground/check.ts";

export const ACCEPTED =
  "a client of ioredis or iovalkey (new Redis(), new Cluster()), " +
  "of node-redis (createClient(), createClientPool(), createCluster(), createSentinel()), " +
  "or an object with runScript(script, keys, args) that returns a promise";

/** Returns why an object is not a usable client; undefined if no mistake is found. */
export function whyNoClient(client: unknown): string | undefined {
  const has = (...verbs: readonly string[]) =>
    verbs.every((verb) => typeof (Object(client) as Record<string, unknown>)[verb] === "function");
  if (typeof client === "string") return "a URL: create a client with it";
  if (has("then")) return "a promise: await it first";
  if (typeof client === "function" && !has("evalsha") && !has("evalSha") && !has("runScript")) {
    return "a function: if it is the class of a client, create one with new";
  }
  if (has("runScript")) return undefined;
  if (has("evalsha") || has("evalSha")) {
    if ((client as { isPipeline?: unknown }).isPipeline === true || has("execAsPipeline")) {
      return "a pipeline or transaction: give the client that it belongs to";
    }
    if (has("internal_send_command")) {
      return "a client of node-redis 3, which takes callbacks: use 5 or newer";
    }
    if (has("evalsha", "createScript")) {
      return (
        "a client over HTTP, which takes lists: wrap it, " +
        "{ runScript: (script, keys, args) => client.eval(script.lua, keys, args) }"
      );
    }
    return has("eval") ? undefined : "an object that has a verb for hashes, but no eval";
  }
  return show(client);
}

export function notAClient(what: string): TypeError {
  return new TypeError(`redis must be ${ACCEPTED}; got ${what}`);
}
