/** An object in the shape of `Bun.RedisClient`; test/support/runtimes/bun-redis.ts tests the real one. */
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { allOf } from "../../../../src/index.ts";
import {
  type BunRedisLike,
  RedisConcurrencyLimiter,
  RedisRateLimiter,
} from "../../../../src/redis/index.ts";
import { PATIENT } from "../../../support/patient.ts";
import { until } from "../../../support/redis/ask.ts";
import { type RedisServer, startRedis } from "../../../support/redis/server.ts";
import { suite } from "../../../support/suite.ts";

const test = suite("Bun.RedisClient");

let server: RedisServer;

test.before(async () => {
  server = await startRedis();
});

test.after(async () => {
  await server.stop();
});

/** Has `evalsha` and `psubscribe`, as newer versions have, and no events. */
class LikeBun implements BunRedisLike {
  readonly connected = true;
  readonly sent: string[] = [];
  readonly redis = new Redis(server.url);

  send(command: string, args: string[]): Promise<unknown> {
    this.sent.push(command);
    return this.redis.call(command, ...args);
  }

  async duplicate(): Promise<LikeBun> {
    return new LikeBun();
  }

  async subscribe(channel: string, listener: (message: string, channel: string) => void) {
    this.redis.on("message", (from: string, message: string) => {
      if (from === channel) listener(message, from);
    });
    await this.redis.subscribe(channel);
  }

  async unsubscribe(channel: string) {
    await this.redis.unsubscribe(channel);
  }

  hmget() {}
  evalsha() {
    throw new Error("it takes its arguments in a different form");
  }
  eval() {}
  psubscribe() {}

  close() {
    this.redis.disconnect();
  }
}

test("scripts are sent by hash through `send`, alone and combined", async () => {
  const client = new LikeBun();
  const limiter = RedisRateLimiter.create(client, "a", 0.001, PATIENT);
  assert.equal([await limiter.tryAcquire(), await limiter.tryAcquire()], [true, false]);
  assert.equal(client.sent, ["EVALSHA", "EVAL", "EVALSHA"]);
  const other = RedisRateLimiter.create(client, "b", 0.001, PATIENT);
  assert.is(await allOf(limiter, other).tryAcquire(), false);
  assert.is(await other.tryAcquire(), true);
  client.close();
});

test("a concurrency limiter opens a duplicate for messages, or uses the given one", async () => {
  const client = new LikeBun();
  const subscriber = new LikeBun();
  for (const options of [{}, { subscriber }]) {
    const places = () =>
      RedisConcurrencyLimiter.create(client, "c", 1, {
        ...PATIENT,
        ...options,
        leaseMs: 300_000,
      });
    const [one, other] = [places(), places()];
    const lease = await one.acquire();
    const waiting = other.acquire();
    await until("a ticket", async () => (await one.peek()).waiting === 1);
    await lease.release();
    await (await waiting).release();
    await Promise.all([one.close(), other.close()]);
  }
  const channels = async () => ((await server.ask("PUBSUB", "CHANNELS")) as unknown[]).length;
  await until("the end of the subscriptions", async () => (await channels()) === 0);
  client.close();
  subscriber.close();
});

test.run();
