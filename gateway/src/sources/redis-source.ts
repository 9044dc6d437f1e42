import type { RedisSubscriber } from "smooth-limiter/redis";
import { type Checks, checkOptions, checkText } from "../ground/check.ts";
import { askInTime, EVERY_MS, POLL_OPTIONS, type PollOptions, poll, TIMEOUT_MS } from "./poll.ts";
import { LONGEST_TEXT, type RuleSource, tooLong } from "./source.ts";

/** The part of a Redis client that is used: it reads the text in a key. All clients have it. */
export interface RedisReader {
  get(key: string): Promise<string | null>;
}

/** The options of `redisSource`. */
export interface RedisSourceOptions extends PollOptions {
  /**
   * A connected client for subscriptions, such as `redis.duplicate()`; never closed. The gateway
   * then reads the key as soon as a message arrives on the channel. Without one it reads every
   * `everyMs`.
   */
  readonly subscriber?: RedisSubscriber | undefined;
  /** The channel on which changes are published, with any message. Default: the key. */
  readonly channel?: string | undefined;
}

const OPTIONS: Checks<RedisSourceOptions> = {
  ...POLL_OPTIONS,
  subscriber(name, subscriber) {
    const { subscribe, unsubscribe } = Object(subscriber) as Partial<RedisSubscriber>;
    if (subscribe && unsubscribe) return;
    throw new TypeError(`${name} must have subscribe and unsubscribe, as clients do`);
  },
  channel: checkText,
};

/**
 * Rules in a key of Redis. `PUBLISH key changed` after `SET key …` makes all gateways read it at
 * once.
 *
 * @param redis a client; never closed
 * @param key that contains YAML, at most 524 288 characters
 * @param options see `RedisSourceOptions`
 * @returns a source for `createGateway`; if the key does not exist, the source counts as gone
 * @throws TypeError or RangeError that names the argument, its bound and what it got
 * @example
 * const remote = redisSource(redis, "rules", { subscriber: redis.duplicate() });
 * const gateway = await createGateway({ rules: [remote, fileSource("rules.yaml")], redis });
 */
export function redisSource(
  redis: RedisReader,
  key: string,
  options: RedisSourceOptions = {},
): RuleSource {
  checkOptions("options", options, OPTIONS);
  const { subscriber, channel = key, everyMs = EVERY_MS, timeoutMs = TIMEOUT_MS } = options;
  if (typeof (Object(redis) as Partial<RedisReader>).get !== "function") {
    throw new TypeError("redis must be a client with get(key)");
  }
  const name = `redis key ${checkText("key", key)}`;
  return {
    name,

    async load(signal) {
      const text = await askInTime(timeoutMs, name, signal, async () => redis.get(key));
      if (text === null) throw new Error(`${name} does not exist`);
      if (text.length > LONGEST_TEXT) throw tooLong(name);
      return text;
    },

    watch(changed) {
      const stop = poll(changed, everyMs);
      const end = subscriber && listen(subscriber, channel, changed);
      return () => {
        stop();
        end?.();
      };
    },
  };
}

/**
 * Subscribes to the channel. If that fails, the client retries it, and polling finds changes
 * meanwhile. Messages before the subscription are lost, so `onMessage` is called as soon as it is
 * active.
 */
function listen(subscriber: RedisSubscriber, channel: string, onMessage: () => void): () => void {
  let isOver = false;
  const subscribed = () => {
    if (!isOver) onMessage();
  };
  const quietly = (action: () => Promise<unknown>) => (async () => action())().catch(() => {});
  if (!("psubscribe" in subscriber)) {
    void quietly(() => subscriber.subscribe(channel, onMessage).then(subscribed));
    return () => {
      isOver = true;
      void quietly(() => subscriber.unsubscribe(channel, onMessage));
    };
  }
  const listener = (from: string) => {
    if (from === channel) onMessage();
  };
  subscriber.on("message", listener);
  const leave = join(subscriber, channel);
  void quietly(() => subscriber.subscribe(channel).then(subscribed));
  return () => {
    isOver = true;
    subscriber.off("message", listener);
    if (leave()) void quietly(() => subscriber.unsubscribe(channel));
  };
}

const listeners = new WeakMap<object, Map<string, number>>();

/**
 * Counts the listeners of a channel: an ioredis connection has only one subscription for all of
 * them.
 *
 * @returns a function that leaves, and returns whether it was the last listener
 */
function join(subscriber: object, channel: string): () => boolean {
  const channels = listeners.get(subscriber) ?? new Map<string, number>();
  listeners.set(subscriber, channels);
  channels.set(channel, (channels.get(channel) ?? 0) + 1);
  return () => {
    const left = (channels.get(channel) ?? 1) - 1;
    channels.set(channel, left);
    return left === 0;
  };
}
