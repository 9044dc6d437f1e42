import { checkOptions, checkText } from "../../../check.ts";
import type { RedisSubscriber } from "../../../redis.ts";
import { checkPeriod, poll, within } from "./poll.ts";
import { LONGEST_TEXT, type RuleSource, tooLong } from "./source.ts";

/** What is asked of a Redis client: the text in a key. All of them can. */
export interface RedisReader {
  get(key: string): Promise<string | null>;
}

export interface RedisSourceOptions {
  /**
   * A connected client for subscriptions, such as `redis.duplicate()`; never closed. A message on
   * the channel then makes the gateway look at once. Without one it looks every `everyMs`.
   */
  readonly subscriber?: RedisSubscriber | undefined;
  /** Where a change is told, whatever the message. Default: the key. */
  readonly channel?: string | undefined;
  /** How often to look besides, ms, give or take a tenth; above 0, at most 1e9. Default 30 000. */
  readonly everyMs?: number | undefined;
  /** How long Redis may take for an answer, ms; above 0, at most 1e9. Default 5000. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Rules in a key of Redis. After `SET key …` a `PUBLISH key changed` tells all gateways at once.
 *
 * @param redis a client; never closed
 * @param key that holds YAML, at most 524 288 characters
 * @param options see `RedisSourceOptions`
 * @returns a source for `createGateway`; where the key does not exist it counts as gone
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
  checkOptions("options", options, ["subscriber", "channel", "everyMs", "timeoutMs"]);
  const { subscriber, channel = key, everyMs = 30_000, timeoutMs = 5000 } = options;
  if (typeof (Object(redis) as Partial<RedisReader>).get !== "function") {
    throw new TypeError("redis must be a client with get(key)");
  }
  const { subscribe, unsubscribe } = Object(subscriber) as Partial<RedisSubscriber>;
  if (subscriber !== undefined && !(subscribe && unsubscribe)) {
    throw new TypeError("subscriber must have subscribe and unsubscribe, as clients do");
  }
  const name = `redis key ${checkText("key", key)}`;
  checkText("channel", channel);
  checkPeriod("everyMs", everyMs);
  checkPeriod("timeoutMs", timeoutMs);
  return {
    name,

    async load(signal) {
      const text = await within(timeoutMs, name, signal, async () => redis.get(key));
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
 * A subscription that fails is the client's to repeat; until then there is the look every so often.
 * What changed before it stood was told to nobody, so there is a look as soon as it does.
 */
function listen(subscriber: RedisSubscriber, channel: string, hear: () => void): () => void {
  let isOver = false;
  const subscribed = () => {
    if (!isOver) hear();
  };
  const quietly = (deed: () => Promise<unknown>) => (async () => deed())().catch(() => {});
  if (!("psubscribe" in subscriber)) {
    void quietly(() => subscriber.subscribe(channel, hear).then(subscribed));
    return () => {
      isOver = true;
      void quietly(() => subscriber.unsubscribe(channel, hear));
    };
  }
  const listener = (from: string) => {
    if (from === channel) hear();
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
 * A connection of ioredis has one subscription of a channel, however many listen there.
 *
 * @returns leaves, and says whether it was the last
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
