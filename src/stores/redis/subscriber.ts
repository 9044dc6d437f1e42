/** Subscriptions: receive the messages that are published on a channel. */
import type { Listening } from "../lease-store.ts";

/** ioredis and iovalkey, a single server or a Cluster, for subscriptions only. */
export interface IoredisSubscriber {
  psubscribe(...patterns: string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: "message", listener: (channel: string, message: string) => void): unknown;
  off(event: "message", listener: (channel: string, message: string) => void): unknown;
}

/** node-redis, connected, for subscriptions; or anything with these two verbs. */
export interface NodeRedisSubscriber {
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  unsubscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
}

export type RedisSubscriber = IoredisSubscriber | NodeRedisSubscriber;

/** Opens a subscription. */
export type Subscriptions = (channel: string, hear: (message: string) => void) => Listening;

/** The methods that a duplicate of a client may have, besides those to subscribe. */
interface Duplicate {
  on?(event: "error" | "ready", listener: () => void): unknown;
  once?(event: "ready", listener: () => void): unknown;
  connect?(): Promise<unknown>;
  disconnect?(): unknown;
  destroy?(): unknown;
}

/**
 * Returns a function that opens subscriptions: on `subscriber`, which is shared and stays open, or else
 * each on its own connection, a duplicate of the client.
 */
export function subscriptions(client: unknown, subscriber: unknown): Subscriptions {
  if (subscriber !== undefined) {
    if (!has(subscriber, "subscribe", "unsubscribe")) {
      throw new TypeError("subscriber must have subscribe and unsubscribe, as clients do");
    }
    const shared = subscriber as RedisSubscriber;
    return (channel, hear) => shareOf(shared, channel, hear);
  }
  if (!has(client, "duplicate", "subscribe")) {
    throw new TypeError(
      "redis cannot be duplicated, or not subscribe: give a client that can, as options.subscriber",
    );
  }
  const { duplicate } = client as { duplicate(options?: object): RedisSubscriber & Duplicate };
  // when ioredis resubscribes by itself and fails, the rejection is unhandled and ends the process
  const options = has(client, "psubscribe") ? { autoResubscribe: false } : undefined;
  return (channel, hear) => ownOf(duplicate.call(client, options), channel, hear);
}

function has(object: unknown, ...verbs: readonly string[]): boolean {
  return verbs.every(
    (verb) => typeof (Object(object) as Record<string, unknown>)[verb] === "function",
  );
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
): Subscription {
  if (!isIoredis(to)) {
    const ready = promised(() => to.subscribe(channel, hear));
    return { ready, end: () => to.unsubscribe(channel, hear) };
  }
  const listener = (from: string, message: string) => {
    if (from === channel) hear(message);
  };
  to.on("message", listener);
  const end = () => {
    to.off("message", listener);
    return to.unsubscribe(channel);
  };
  return { ready: promised(() => to.subscribe(channel)), end };
}

function isIoredis(subscriber: RedisSubscriber): subscriber is IoredisSubscriber {
  return has(subscriber, "psubscribe");
}

function shareOf(
  subscriber: RedisSubscriber,
  channel: string,
  hear: (message: string) => void,
): Listening {
  const { ready, end } = subscribe(subscriber, channel, hear);
  return {
    ready: ready.then(() => {}),
    // errors of unsubscribing are ignored: the subscription is not used any more
    close: () => void ready.then(end).catch(() => {}),
  };
}

function ownOf(
  own: RedisSubscriber & Duplicate,
  channel: string,
  hear: (message: string) => void,
): Listening {
  // the client reconnects by itself, and the limiter polls for messages missed meanwhile
  own.on?.("error", () => {});
  let listens = false;
  const listen = async () => {
    await subscribe(own, channel, hear).ready;
    listens = true;
  };
  own.on?.("ready", () => {
    if (listens && isIoredis(own)) own.subscribe(channel).catch(() => {});
  });
  let checks = 0;
  // use the subscribed connection: a client may have others, and may reject a PING while subscribed
  const check = async (): Promise<unknown> => {
    if (isIoredis(own)) return own.subscribe(channel);
    checks += 1;
    const other = `${channel}:${checks}`;
    await own.subscribe(other, () => {});
    return own.unsubscribe(other, () => {}).catch(() => {});
  };
  return {
    check,
    ready: connect(own)
      .then(listen)
      // without an offline queue a client rejects commands before it is ready
      .catch(() => whenReady(own).then(listen)),
    // a client that has given up by itself rejects, because it is closed already
    close: () =>
      void Promise.resolve()
        .then(() => end(own))
        .catch(() => {}),
  };
}

function connect(own: RedisSubscriber & Duplicate): Promise<unknown> {
  return promised(() => (isIoredis(own) ? undefined : own.connect?.()));
}

function whenReady(own: Duplicate): Promise<void> {
  return new Promise((resolve) => {
    own.once?.("ready", resolve);
  });
}

function end(own: RedisSubscriber & Duplicate): unknown {
  return isIoredis(own) || !own.destroy ? own.disconnect?.() : own.destroy();
}

/** Turns an exception into a rejection: some clients throw where others reject. */
async function promised(deed: () => unknown): Promise<unknown> {
  return deed();
}
