import { type ClusterClient, nodeOf } from "../cluster-slots.ts";
import { has } from "../methods.ts";
import { Redirections } from "../redirections.ts";
import { runByHash } from "../script-runner.ts";
import { checkByChannel, listenOn, type NodeRedisSubscriber, whenReady } from "../subscriber.ts";
import type { ClientAdapter, Connection } from "./adapter.ts";

/** node-redis (`redis`, `@redis/client`) from 4 on: a single server, a pool, a Cluster or Sentinel. */
export interface NodeRedisLike {
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(lua: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** The methods for subscriptions, which a pool does not have. */
interface Duplicable {
  duplicate(options?: { minimizeConnections: boolean }): Duplicate;
}

interface Duplicate extends NodeRedisSubscriber {
  on?(event: "error" | "ready", listener: () => void): unknown;
  once?(event: "ready", listener: () => void): unknown;
  connect(): Promise<unknown>;
  /** Since 5. */
  destroy?(): unknown;
  disconnect(): unknown;
}

export function nodeRedisAdapter(client: NodeRedisLike): ClientAdapter {
  const runner = runByHash(
    (sha, keys, args) => client.evalSha(sha, { keys: [...keys], arguments: [...args] }),
    (lua, keys, args) => client.eval(lua, { keys: [...keys], arguments: [...args] }),
  );
  const subscribe = has(client, "duplicate", "subscribe")
    ? subscriptionsOf(client as unknown as Duplicable)
    : undefined;
  if (!("nodeClient" in client)) {
    return { runner, connection: client as Connection, subscribe };
  }
  const redirections = new Redirections(client);
  return {
    runner: { runScript: (...call) => redirections.follow(() => runner.runScript(...call)) },
    nodeOf: (key) => nodeOf(client as ClusterClient, key),
    subscribe,
  };
}

function subscriptionsOf(client: Duplicable): ClientAdapter["subscribe"] {
  return (channel, hear, resumed) => {
    let isEnded = false;
    /** Resolves when the first attempt to connect has succeeded or failed. */
    let attempt: Promise<unknown> | undefined;
    return listenOn<Duplicate>({
      // a Cluster needs no connections to the nodes that the subscription does not use
      make: () => client.duplicate({ minimizeConnections: true }),
      open: async (own) => {
        let failed = () => {};
        const failure = new Promise<void>((resolve) => {
          failed = resolve;
        });
        // the client reconnects and subscribes again by itself
        own.on?.("error", () => failed());
        try {
          const connected = own.connect();
          attempt = Promise.race([connected, failure]).catch(() => {});
          await connected;
          if (isEnded) return;
          await own.subscribe(channel, hear);
        } catch {
          // without an offline queue a client rejects commands before it is ready
          await whenReady(own);
          await own.subscribe(channel, hear);
        }
        own.on?.("ready", resumed);
      },
      check: checkByChannel(channel),
      end: async (own) => {
        isEnded = true;
        // a client that is closed while it connects goes on, and leaves the connections open
        await attempt;
        await (own.destroy ?? own.disconnect).call(own);
      },
    });
  };
}
