/** Breakers by connection, and the connection events of a client. */
import { oncePerProcess } from "../../ground/copies.ts";
import { Breaker } from "../breaker.ts";
import type { RedisClient } from "./client.ts";
import { type ClusterClient, isCluster, nodeOf } from "./cluster-slots.ts";

/** The status and events of a connection, as clients name them. */
interface Connection {
  readonly status?: unknown;
  on?(event: "ready" | "close" | "end" | "reconnecting", listener: () => void): unknown;
}

/** Returns the breaker that this key, prefix included, shares with the other keys of its server. */
export type BreakerOf = (key: string) => Breaker;

const known = /* @__PURE__ */ oncePerProcess(
  "breakers",
  () => new WeakMap<RedisClient, BreakerOf>(),
);

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
  const breakerOf = known.get(client) ?? makeBreakers(client);
  known.set(client, breakerOf);
  if (heeds && !isCluster(client) && !heeded.has(client)) {
    heeded.add(client);
    heed(client as Connection, breakerOf(""));
  }
  return breakerOf;
}

/**
 * Whether commands reach the server in the order in which they are passed to the client: true for ioredis
 * or iovalkey with a single server. A pool has several connections, and a Cluster client may redirect one
 * of several commands.
 */
export function keepsOrder(client: RedisClient): boolean {
  return "evalsha" in client && !isCluster(client);
}

function makeBreakers(client: RedisClient): BreakerOf {
  if (!isCluster(client)) {
    const breaker = new Breaker();
    return () => breaker;
  }
  const byNode = new Map<string, Breaker>();
  return (key) => {
    const node = nodeOf(client as ClusterClient, key);
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
