/** Subscriptions: receive the messages that are published on a channel. */
import type { Listening } from "../lease-store.ts";
import type { Subscriptions } from "./clients/adapter.ts";
import { has, promised } from "./methods.ts";

/** ioredis and iovalkey, a single server or a Cluster, for subscriptions only. */
export interface IoredisSubscriber {
  psubscribe(...patterns: string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: "message" | "ready", listener: (channel: string, message: string) => void): unknown;
  off(event: "message" | "ready", listener: (channel: string, message: string) => void): unknown;
}

/** node-redis or `Bun.RedisClient`, connected, for subscriptions; or anything with these two verbs. */
export interface NodeRedisSubscriber {
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  unsubscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  on?(event: "ready", listener: () => void): unknown;
  off?(event: "ready", listener: () => void): unknown;
}

/** A connected client for subscriptions. */
export type RedisSubscriber = IoredisSubscriber | NodeRedisSubscriber;

/** Opens subscriptions on a client, which is shared and stays open. */
export function subscriptionsOn(subscriber: unknown): Subscriptions {
  if (!has(subscriber, "subscribe", "unsubscribe")) {
    throw new TypeError("subscriber must have subscribe and unsubscribe, as clients do");
  }
  return (channel, hear, resumed) => {
    const { ready, end } = subscribe(subscriber as RedisSubscriber, channel, hear, resumed);
    return {
      ready: ready.then(() => {}),
      // errors of unsubscribing are ignored: the subscription is not used any more
      close: () => void ready.then(end).catch(() => {}),
    };
  };
}

/** A subscription, and how to end it. */
interface Subscription {
  readonly ready: Promise<unknown>;
  end(): Promise<unknown>;
}

function subscribe(
  to: RedisSubscriber,
  channel: string,
  hear: (message: string) => void,
  resumed: () => void,
): Subscription {
  if (!isIoredis(to)) {
    to.on?.("ready", resumed);
    const end = () => {
      to.off?.("ready", resumed);
      return to.unsubscribe(channel, hear);
    };
    return { ready: promised(() => to.subscribe(channel, hear)), end };
  }
  const listener = (from: string, message: string) => {
    if (from === channel) hear(message);
  };
  const again = () => void to.subscribe(channel).then(resumed, () => {});
  to.on("message", listener);
  to.on("ready", again);
  const end = () => {
    to.off("message", listener);
    to.off("ready", again);
    return to.unsubscribe(channel);
  };
  return { ready: promised(() => to.subscribe(channel)), end };
}

function isIoredis(subscriber: RedisSubscriber): subscriber is IoredisSubscriber {
  return has(subscriber, "psubscribe", "on", "off");
}

/** How a client opens, checks and ends a connection for one subscription. */
export interface OwnConnection<Own> {
  make(): Own | Promise<Own>;
  /** Resolves when the subscription is active. */
  open(own: Own): Promise<unknown>;
  /** Resolves when the connection has replied; a client may reject a PING while it is subscribed. */
  check(own: Own): Promise<unknown>;
  end(own: Own): unknown;
}

export function listenOn<Own>(connection: OwnConnection<Own>): Listening {
  const own = promised(() => connection.make());
  return {
    ready: own.then(async (made) => void (await connection.open(made as Own))),
    check: () => own.then((made) => connection.check(made as Own)),
    // a client that has given up by itself rejects, because it is closed already
    close: () => void own.then((made) => connection.end(made as Own)).catch(() => {}),
  };
}

/** Returns a check that subscribes to another channel for a moment. */
export function checkByChannel(channel: string): (own: NodeRedisSubscriber) => Promise<unknown> {
  let checks = 0;
  return async (own) => {
    checks += 1;
    const other = `${channel}:${checks}`;
    await own.subscribe(other, () => {});
    return own.unsubscribe(other, () => {}).catch(() => {});
  };
}

export function whenReady(own: {
  once?(event: "ready", listener: () => void): unknown;
}): Promise<void> {
  return new Promise((resolve) => {
    own.once?.("ready", resolve);
  });
}
