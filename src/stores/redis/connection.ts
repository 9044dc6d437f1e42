/** Breakers by connection, and the connection events of a client. */
import { oncePerProcess } from "../../ground/copies.ts";
import { Breaker } from "../breaker.ts";
import { adapterOf, type RedisClient } from "./client.ts";
import type { Connection } from "./clients/adapter.ts";
import { onePerClient } from "./per-client.ts";

/** Returns the breaker that this key, prefix included, shares with the other keys of its server. */
export type BreakerOf = (key: string) => Breaker;

const breakersByClient = /* @__PURE__ */ onePerClient("breakers", makeBreakers);

/** The clients with event listeners: one listener for each event, for any number of limiters. */
const heeded = /* @__PURE__ */ oncePerProcess(
  "clients with listeners",
  () => new WeakSet<RedisClient>(),
);

/**
 * Returns one breaker for all limiters of a client; on Cluster, where one server may be unavailable while
 * others are not, one for each node. So there is one probe at a time for each node, for any number of keys.
 *
 * @param heeds whether the breaker uses the client's connection events
 */
export function breakersOf(client: RedisClient, heeds: boolean): BreakerOf {
  const breakerOf = breakersByClient(client);
  const { connection } = adapterOf(client);
  if (heeds && connection !== undefined && !heeded.has(client)) {
    heeded.add(client);
    heed(connection, breakerOf(""));
  }
  return breakerOf;
}

function makeBreakers(client: RedisClient): BreakerOf {
  const { nodeOf } = adapterOf(client);
  if (nodeOf === undefined) {
    const breaker = new Breaker();
    return () => breaker;
  }
  const byNode = new Map<string, Breaker>();
  return (key) => {
    const node = nodeOf(key);
    const breaker = byNode.get(node) ?? new Breaker();
    byNode.set(node, breaker);
    return breaker;
  };
}

function heed(connection: Connection, breaker: Breaker): void {
  const cut = () => breaker.disconnected(new Error("the client has no connection"));
  if (["close", "reconnecting", "end"].includes(String(connection.status))) cut();
  if (typeof connection.on !== "function") return;
  for (const event of ["close", "end", "reconnecting"] as const) connection.on(event, cut);
  connection.on("ready", () => breaker.reconnected());
}
