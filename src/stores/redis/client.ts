import { show } from "../../ground/check.ts";
import { oncePerProcess } from "../../ground/copies.ts";
import { isCluster } from "./cluster-slots.ts";
import { notAClient, whyNoClient } from "./not-a-client.ts";
import { Redirections } from "./redirections.ts";

/** The only operation that a limiter needs of a Redis client: run a script. */
export interface ScriptRunner {
  runScript(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

export interface Script {
  /** The name of the script, unique in this package. */
  readonly name: string;
  readonly lua: string;
}

/** ioredis and iovalkey, a single server or a Cluster. */
export interface IoredisLike {
  evalsha(sha1: string, numberOfKeys: number, ...keysAndArgs: string[]): Promise<unknown>;
  eval(lua: string, numberOfKeys: number, ...keysAndArgs: string[]): Promise<unknown>;
}

/** node-redis (`redis`, `@redis/client`): a single server, a pool, a Cluster or Sentinel. */
export interface NodeRedisLike {
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(lua: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

export type RedisClient = IoredisLike | NodeRedisLike | ScriptRunner;

/** Runs a script. If the client throws, or returns no promise, the result is a promise all the same. */
export function callScript(
  runner: ScriptRunner,
  ...call: Parameters<ScriptRunner["runScript"]>
): Promise<unknown> {
  try {
    return Promise.resolve(runner.runScript(...call));
  } catch (error) {
    return Promise.reject(error);
  }
}

const runners = /* @__PURE__ */ oncePerProcess(
  "script runners",
  () => new WeakMap<RedisClient, ScriptRunner>(),
);

/** Returns the runner of a client, chosen by the client's methods. The same for the same client. */
export function scriptRunner(client: RedisClient): ScriptRunner {
  const known = runners.get(client);
  if (known !== undefined) return known;
  const runner = makeRunner(client);
  runners.set(client, runner);
  return runner;
}

function makeRunner(client: RedisClient): ScriptRunner {
  const why = whyNoClient(client);
  if (why !== undefined) throw notAClient(why);
  if (can(client, "runScript")) return client;
  const runner = byHash(client);
  if (!isCluster(client)) return runner;
  const redirections = new Redirections(client);
  return { runScript: (...call) => redirections.follow(() => runner.runScript(...call)) };
}

function byHash(client: IoredisLike | NodeRedisLike): ScriptRunner {
  if (can(client, "evalsha")) {
    return new HashRunner(
      (sha, keys, args) => client.evalsha(sha, keys.length, ...keys, ...args),
      (lua, keys, args) => client.eval(lua, keys.length, ...keys, ...args),
    );
  }
  return new HashRunner(
    (sha, keys, args) => client.evalSha(sha, { keys: [...keys], arguments: [...args] }),
    (lua, keys, args) => client.eval(lua, { keys: [...keys], arguments: [...args] }),
  );
}

function can<Verb extends string>(
  client: RedisClient,
  verb: Verb,
): client is Extract<RedisClient, Record<Verb, unknown>> {
  return typeof (Object(client) as Record<string, unknown>)[verb] === "function";
}

type Send = (script: string, keys: readonly string[], args: readonly string[]) => Promise<unknown>;

/**
 * Sends a script by its hash, and its whole text if the server does not have the script. (ioredis' own
 * `defineCommand` does the same, but fails if the client pipelines automatically.)
 */
class HashRunner implements ScriptRunner {
  readonly #byHash: Send;
  readonly #whole: Send;

  constructor(byHash: Send, whole: Send) {
    this.#byHash = byHash;
    this.#whole = whole;
  }

  runScript(
    { name, lua }: Script,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown> {
    const hash = hashes.get(lua) ?? sha1(lua);
    if (typeof hash !== "string") {
      // scripts that are sent meanwhile wait for the same promise, so the order is kept
      hashes.set(lua, hash);
      return hash.then((found) => {
        hashes.set(lua, found);
        return this.runScript({ name, lua }, keys, args);
      });
    }
    const reply = this.#byHash(hash, keys, args);
    if (typeof reply?.then !== "function") {
      throw notAClient(`a client that answers with ${show(reply)} where a promise is expected`);
    }
    return reply.catch((error: unknown) => {
      if (!String(error).includes("NOSCRIPT")) throw error;
      return this.#whole(lua, keys, args);
    });
  }
}

const hashes = new Map<string, string | Promise<string>>();

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
