import { type ClusterClient, nodeOf } from "../cluster-slots.ts";
import { has } from "../methods.ts";
import { Redirections } from "../redirections.ts";
import { runByHash } from "../script-runner.ts";
import { type IoredisSubscriber, listenOn, whenReady } from "../subscriber.ts";
import type { ClientAdapter, Connection } from "./adapter.ts";

/** ioredis and iovalkey, a single server or a Cluster. */
export interface IoredisLike {
  evalsha(sha1: string, numberOfKeys: number, ...keysAndArgs: string[]): Promise<unknown>;
  eval(lua: string, numberOfKeys: number, ...keysAndArgs: string[]): Promise<unknown>;
}

/** The methods for subscriptions, which every client has. */
interface Duplicable {
  duplicate(options: { autoResubscribe: boolean }): Duplicate;
}

interface Duplicate extends IoredisSubscriber {
  on(event: "message", listener: (channel: string, message: string) => void): unknown;
  on(event: "error" | "ready", listener: () => void): unknown;
  once(event: "ready", listener: () => void): unknown;
  disconnect(): unknown;
}

export function ioredisAdapter(client: IoredisLike): ClientAdapter {
  const runner = runByHash(
    (sha, keys, args) => client.evalsha(sha, keys.length, ...keys, ...args),
    (lua, keys, args) => client.eval(lua, keys.length, ...keys, ...args),
  );
  const subscribe = has(client, "duplicate", "subscribe")
    ? subscriptionsOf(client as unknown as Duplicable)
    : undefined;
  if (!("nodes" in client)) {
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
  return (channel, hear, resumed) =>
    listenOn<Duplicate>({
      // when ioredis resubscribes by itself and fails, the rejection is unhandled and ends the process
      make: () => client.duplicate({ autoResubscribe: false }),
      open: async (own) => {
        // the client reconnects by itself
        own.on("error", () => {});
        own.on("message", (from, message) => {
          if (from === channel) hear(message);
        });
        let listens = false;
        own.on("ready", () => {
          if (listens) own.subscribe(channel).then(resumed, () => {});
        });
        // without an offline queue a client rejects commands before it is ready
        await own.subscribe(channel).catch(() => whenReady(own).then(() => own.subscribe(channel)));
        listens = true;
      },
      check: (own) => own.subscribe(channel),
      end: (own) => own.disconnect(),
    });
}
