/** What a client says of its connections. */
import { Breaker } from "../breaker.ts";
import type { RedisClient } from "./client.ts";
import { type ClusterClient, isCluster, nodeOf } from "./cluster-slots.ts";

/** The events of a connection, by the names that clients give them. */
interface Connection {
  readonly status?: unknown;
  on?(event: "ready" | "close" | "end" | "reconnecting", listener: () => void): unknown;
}

/** The breaker of all limiters whose keys go away together with this one, the prefix included. */
export type BreakerOf = (key: string) => Breaker;

const known = new WeakMap<RedisClient, BreakerOf>();

/** Clients whose events are listened to: with one listener for each event, however many limiters. */
const heeded = new WeakSet<RedisClient>();

/**
 * One breaker for all limiters of a client; on Cluster, where one server may be away and others not,
 * one for each node. So however many keys there are, one probe at a time looks for each node.
 *
 * @param heeds the client's own events are of use
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
 * Whether commands reach the server in the order in which they are given to the client: one of ioredis
 * or iovalkey for a single server. A pool has several connections, and a Cluster may send one command
 * of several elsewhere.
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
