/** What a client says of its connection. */
import { Breaker } from "../breaker.ts";
import type { RedisClient } from "./client.ts";

/** The events of a connection, by the names that clients give them. */
interface Connection {
  readonly status?: unknown;
  on?(event: "ready" | "close" | "end" | "reconnecting", listener: () => void): unknown;
}

const breakers = new WeakMap<RedisClient, Breaker>();

/** Clients whose events are listened to: with one listener for each event, however many limiters. */
const heeded = new WeakSet<RedisClient>();

/**
 * One for all limiters of a client. None for a Cluster: there one server may be away and others not,
 * so each limiter finds out by itself.
 *
 * @param heeds the client's own events are of use
 */
export function breakerOf(client: RedisClient, heeds: boolean): Breaker | undefined {
  if (isCluster(client)) return undefined;
  const breaker = breakers.get(client) ?? new Breaker();
  breakers.set(client, breaker);
  if (heeds && !heeded.has(client)) {
    heeded.add(client);
    heed(client as Connection, breaker);
  }
  return breaker;
}

/**
 * Whether commands reach the server in the order in which they are given to the client: one of ioredis
 * or iovalkey for a single server. A pool has several connections, and a Cluster may send one command
 * of several elsewhere.
 */
export function keepsOrder(client: RedisClient): boolean {
  return "evalsha" in client && !isCluster(client);
}

function isCluster(client: RedisClient): boolean {
  // of ioredis, of node-redis
  return "nodes" in client || "nodeClient" in client;
}

function heed(connection: Connection, breaker: Breaker): void {
  const cut = () => breaker.disconnected(new Error("the client has no connection"));
  if (["close", "reconnecting", "end"].includes(String(connection.status))) cut();
  if (typeof connection.on !== "function") return;
  for (const event of ["close", "end", "reconnecting"] as const) connection.on(event, cut);
  connection.on("ready", () => breaker.reconnected());
}
