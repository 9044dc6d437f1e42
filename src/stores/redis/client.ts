/** The one thing that is asked of a Redis client: run a script. */
export interface ScriptRunner {
  runScript(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

export interface Script {
  /** Names the script among all of this package. */
  readonly name: string;
  readonly lua: string;
}

/** A client with `defineCommand`: ioredis and iovalkey, a single server or a Cluster. */
export interface IoredisLike {
  defineCommand(name: string, definition: { lua: string; numberOfKeys: number }): void;
}

/**
 * A client with `evalSha`: node-redis (`redis`, `@redis/client`), a single server, a pool, a
 * Cluster or Sentinel.
 */
export interface NodeRedisLike {
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

export type RedisClient = IoredisLike | NodeRedisLike | ScriptRunner;

/** What the client can do decides, not what it is called. */
export function scriptRunner(client: RedisClient): ScriptRunner {
  const able = Object(client) as Partial<IoredisLike & NodeRedisLike & ScriptRunner>;
  if (typeof able.runScript === "function") return client as ScriptRunner;
  if (typeof able.defineCommand === "function") return new IoredisRunner(client as IoredisLike);
  if (typeof able.evalSha === "function") return new NodeRedisRunner(client as NodeRedisLike);
  throw new TypeError(
    "redis must be a client of ioredis, iovalkey or node-redis, or have runScript(script, keys, args)",
  );
}

type Command = (...args: string[]) => Promise<unknown>;

/**
 * `defineCommand` sends a script by its hash, and whole again where the server has forgotten it.
 */
class IoredisRunner implements ScriptRunner {
  readonly #client: IoredisLike;
  readonly #commands = new Map<string, Command>();

  constructor(client: IoredisLike) {
    this.#client = client;
  }

  runScript(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.#command(script, keys.length).call(this.#client, ...keys, ...args);
  }

  #command({ name, lua }: Script, numberOfKeys: number): Command {
    const known = this.#commands.get(name);
    if (known !== undefined) return known;
    this.#client.defineCommand(name, { lua, numberOfKeys });
    const command = (this.#client as unknown as Record<string, Command>)[name] as Command;
    this.#commands.set(name, command);
    return command;
  }
}

class NodeRedisRunner implements ScriptRunner {
  readonly #client: NodeRedisLike;
  readonly #hashes = new Map<string, string>();

  constructor(client: NodeRedisLike) {
    this.#client = client;
  }

  async runScript(
    script: Script,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown> {
    const options = { keys: [...keys], arguments: [...args] };
    try {
      return await this.#client.evalSha(await this.#hash(script), options);
    } catch (error) {
      if (!String(error).includes("NOSCRIPT")) throw error;
      return this.#client.eval(script.lua, options);
    }
  }

  async #hash({ name, lua }: Script): Promise<string> {
    const hash = this.#hashes.get(name) ?? (await sha1(lua));
    this.#hashes.set(name, hash);
    return hash;
  }
}

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
