import type { Redis } from "ioredis";
import { CliError, type Io } from "../io.ts";

const DEFAULT_URL = "redis://127.0.0.1:6379";

/** Runs a deed on a Redis server, and disconnects. */
export async function withRedis<Result>(
  url: string | undefined,
  { env }: Io,
  deed: (redis: Redis) => Promise<Result>,
): Promise<Result> {
  const Client = await ioredis();
  const redis = new Client(url ?? env.REDIS_URL ?? DEFAULT_URL, {
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  // why there is no connection: the calls only say that there is none
  let reason: unknown;
  redis.on("error", (error) => {
    reason = error;
  });
  try {
    await redis.connect();
    return await deed(redis);
  } catch (error) {
    if (error instanceof CliError) throw error;
    const cause = reason ?? error;
    const why = cause instanceof Error ? cause.message || cause.name : cause;
    throw new CliError(`Redis: ${why} (--url or REDIS_URL says where it is)`, { cause });
  } finally {
    if (redis.status !== "end") redis.disconnect();
  }
}

/** The client is the user's own: the package does not depend on it. */
async function ioredis(): Promise<typeof Redis> {
  try {
    return (await import("ioredis")).Redis;
  } catch (error) {
    const advice = "the commands on Redis need the package ioredis: npm install ioredis";
    throw new CliError(advice, { cause: error });
  }
}
