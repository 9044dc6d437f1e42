/** Chooses the adapter of a client, by the client's methods. */
import type { ClientAdapter, Connection } from "./clients/adapter.ts";
import { type BunRedisLike, bunAdapter } from "./clients/bun.ts";
import { type IoredisLike, ioredisAdapter } from "./clients/ioredis.ts";
import { type NodeRedisLike, nodeRedisAdapter } from "./clients/node-redis.ts";
import { type UpstashLike, upstashAdapter } from "./clients/upstash.ts";
import { has } from "./methods.ts";
import { notAClient, whyNoClient } from "./not-a-client.ts";
import { onePerClient } from "./per-client.ts";
import type { ScriptRunner } from "./script-runner.ts";

export type { Script, ScriptRunner } from "./script-runner.ts";
export type { BunRedisLike, IoredisLike, NodeRedisLike, UpstashLike };

/** A client of Redis that limiters accept, or anything with `runScript`. */
export type RedisClient = IoredisLike | NodeRedisLike | BunRedisLike | UpstashLike | ScriptRunner;

/**
 * Returns the adapter of a client: the same for the same client.
 *
 * @throws TypeError if it is not a client, with what is accepted
 */
export const adapterOf = /* @__PURE__ */ onePerClient("client adapters", makeAdapter);

/** Returns the runner of a client's scripts. */
export function scriptRunner(client: RedisClient): ScriptRunner {
  return adapterOf(client).runner;
}

function makeAdapter(client: RedisClient): ClientAdapter {
  let why: string | undefined;
  try {
    why = whyNoClient(client);
    if (why === undefined) return choose(client);
  } catch (error) {
    why = `an object that throws when it is read: ${error}`;
  }
  throw notAClient(why);
}

function choose(client: RedisClient): ClientAdapter {
  if (has(client, "runScript")) return ownAdapter(client as ScriptRunner);
  if (has(client, "evalSha")) return nodeRedisAdapter(client as NodeRedisLike);
  if (has(client, "createScript")) return upstashAdapter(client as UpstashLike);
  // `Bun.RedisClient` has `evalsha` too, in newer versions
  if (has(client, "send")) return bunAdapter(client as BunRedisLike);
  return ioredisAdapter(client as IoredisLike);
}

function ownAdapter(client: ScriptRunner): ClientAdapter {
  return { runner: client, connection: client as Connection };
}
