/** Errors for arguments that are not a Redis client: what is accepted, and the likely mistake. */
import { show } from "../../ground/check.ts";
import { has } from "./methods.ts";

export const ACCEPTED =
  "a client of ioredis or iovalkey (new Redis(), new Cluster()), " +
  "of node-redis 4 or newer (createClient(), createClientPool(), createCluster(), createSentinel()), " +
  "of Bun (new Bun.RedisClient()), of @upstash/redis (new Redis()), " +
  "or an object with runScript(script, keys, args) that returns a promise";

/** Returns why an object is not a usable client; undefined if no mistake is found. */
export function whyNoClient(client: unknown): string | undefined {
  if (typeof client === "string") return "a URL: create a client with it";
  if (has(client, "then")) return "a promise: await it first";
  if (has(client, "runScript")) return undefined;
  const byHash = has(client, "evalsha") || has(client, "evalSha");
  if (!byHash && (has(client, "unsafe") || has(client, "query"))) {
    return "a client of PostgreSQL: postgresStore makes a store of it";
  }
  if (typeof client === "function" && !byHash) {
    return "a function: if it is the class of a client, create one with new";
  }
  if (byHash) {
    if (isPipeline(client)) return "a pipeline or transaction: give the client that it belongs to";
    if (has(client, "internal_send_command")) {
      return "a client of node-redis 3, which takes callbacks: use 4 or newer";
    }
    return has(client, "eval") ? undefined : "an object that has a verb for hashes, but no eval";
  }
  // `Bun.RedisClient`; other objects that send are sockets
  if (has(client, "send", "hmget")) return undefined;
  return show(client);
}

/** The pipelines of ioredis, node-redis and @upstash/redis. The client of @upstash/redis has `chain` too. */
function isPipeline(client: unknown): boolean {
  if ((client as { isPipeline?: unknown }).isPipeline === true) return true;
  return has(client, "execAsPipeline") || (has(client, "chain") && !has(client, "createScript"));
}

export function notAClient(what: string): TypeError {
  return new TypeError(`redis must be ${ACCEPTED}; got ${what}`);
}
