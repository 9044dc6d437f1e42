import { has } from "../methods.ts";
import { runByHash } from "../script-runner.ts";
import { checkByChannel, listenOn, type NodeRedisSubscriber } from "../subscriber.ts";
import type { ClientAdapter } from "./adapter.ts";

/** `Bun.RedisClient`, which reconnects by itself; a single server. */
export interface BunRedisLike {
  send(command: string, args: string[]): Promise<unknown>;
  /** Whether it has a connection. */
  readonly connected: boolean;
}

interface Duplicable {
  duplicate(): Promise<Duplicate>;
}

interface Duplicate extends NodeRedisSubscriber {
  close(): void;
}

/** Its `onclose` and `onconnect` hold one function each, which are the user's: they are not used. */
export function bunAdapter(client: BunRedisLike): ClientAdapter {
  const sendWith =
    (command: "EVALSHA" | "EVAL") =>
    (script: string, keys: readonly string[], args: readonly string[]) =>
      client.send(command, [script, String(keys.length), ...keys, ...args]);
  return {
    runner: runByHash(sendWith("EVALSHA"), sendWith("EVAL")),
    subscribe: has(client, "duplicate", "subscribe")
      ? subscriptionsOf(client as unknown as Duplicable)
      : undefined,
  };
}

function subscriptionsOf(client: Duplicable): ClientAdapter["subscribe"] {
  return (channel, hear) =>
    listenOn<Duplicate>({
      make: () => client.duplicate(),
      open: (own) => own.subscribe(channel, hear),
      check: checkByChannel(channel),
      end: (own) => own.close(),
    });
}
