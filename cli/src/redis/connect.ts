import type { Cluster, Redis } from "ioredis";
import { StoreUnavailableError } from "smooth-limiter/redis";
import { CliError, type Io } from "../io.ts";

const DEFAULT_URL = "redis://127.0.0.1:6379";

/** The options of all commands. */
export interface RedisOptions {
  readonly url?: string;
  readonly json?: boolean;
  /** How long to wait for a connection, and for each answer, ms. */
  readonly timeout: number;
}

/** A client of one server, or of a Cluster. */
export type Server = Redis | Cluster;

/** Connects to a Redis server, or to the Cluster that it belongs to, calls the function, and disconnects. */
export async function withRedis<Result>(
  { url, timeout }: RedisOptions,
  { env }: Io,
  action: (redis: Server) => Promise<Result>,
): Promise<Result> {
  const clients = await ioredis();
  // without the ready check a server that still loads its data says so, instead of keeping the command waiting
  const patience = { connectTimeout: timeout, commandTimeout: timeout, enableReadyCheck: false };
  const redis = new clients.Redis(url ?? env.REDIS_URL ?? DEFAULT_URL, {
    ...patience,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  // the reason of a failed connection: the calls themselves report only that there is none
  let reason: unknown;
  const onError = (error: unknown) => {
    reason = error;
  };
  redis.on("error", onError);
  let cluster: Cluster | undefined;
  try {
    await within(timeout, redis.connect());
    if (!(await isInCluster(redis))) return await action(redis);
    const { host = "", port = 0, username, password, tls } = redis.options;
    cluster = new clients.Cluster([{ host, port }], {
      lazyConnect: true,
      clusterRetryStrategy: () => null,
      // ioredis gives up after one second, and it asks only once
      slotsRefreshTimeout: timeout,
      // ioredis never ends connecting when this check fails
      enableReadyCheck: false,
      redisOptions: { ...patience, username, password, tls },
    });
    cluster.on("error", onError);
    await within(timeout, cluster.connect());
    return await action(cluster);
  } catch (error) {
    if (error instanceof CliError) throw error;
    if (isNoAnswer(error)) throw await silence(redis, cluster, timeout, error);
    // an error of Redis in its own words, also where a limiter has met it
    const cause = reason ?? (error instanceof StoreUnavailableError ? error.cause : error);
    const why = cause instanceof Error ? cause.message || cause.name : cause;
    throw new CliError(`Redis: ${why} (--url or REDIS_URL says where it is)`, { cause });
  } finally {
    cluster?.disconnect();
    if (redis.status !== "end") redis.disconnect();
  }
}

/** Returns the clients of all servers with keys of their own. */
export function mastersOf(redis: Server): readonly Redis[] {
  return redis.isCluster ? (redis as Cluster).nodes("master") : [redis as Redis];
}

/** The clock of the server that has this key, Unix time in ms: the key's own times are by this clock. */
export async function clockOf(redis: Server, key: string): Promise<number> {
  // TIME names no key: on a Cluster the command before it leads both to the key's node
  const [, time] = (await redis.pipeline().type(key).time().exec()) ?? [];
  const [error, reply] = time ?? [new Error("no reply to TIME")];
  if (error) throw error;
  const [seconds = NaN, microseconds = NaN] = (reply as readonly unknown[]).map(Number);
  return seconds * 1000 + Math.floor(microseconds / 1000);
}

async function isInCluster(redis: Redis): Promise<boolean> {
  try {
    return (await redis.info("cluster")).includes("cluster_enabled:1");
  } catch (error) {
    if (isNoAnswer(error)) throw error;
    // INFO may be forbidden
    return false;
  }
}

/** What ioredis says of a command without an answer. */
const NO_ANSWER = "Command timed out";

/** ioredis limits the time of a command, and of opening a socket, but not of what lies between. */
async function within<Result>(ms: number, promise: Promise<Result>): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(NO_ANSWER)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether an error, or what caused it, is that no answer came in time. */
function isNoAnswer(error: unknown): boolean {
  return error instanceof Error && (error.message === NO_ANSWER || isNoAnswer(error.cause));
}

/** How long the nodes of a Cluster may take to say that they are there, ms, once one of them has not answered. */
const PING_MS = 1000;

/** The error after no answer came in time. On a Cluster it names the nodes that are silent. */
async function silence(
  redis: Redis,
  cluster: Cluster | undefined,
  ms: number,
  cause: unknown,
): Promise<CliError> {
  const nodes = await Promise.all(
    (cluster?.nodes("master") ?? []).map((node) =>
      within(PING_MS, node.ping()).then(
        () => [],
        (error: unknown) => (isNoAnswer(error) ? [addressOf(node)] : []),
      ),
    ),
  );
  const server = nodes.flat().join(", ") || addressOf(redis);
  const why = "it hangs or is too busy, or the network drops what is sent";
  const advice = "--url or REDIS_URL says where it is, --timeout how long to wait";
  const message = `Redis: no answer of ${server} within ${ms / 1000} s: ${why} (${advice})`;
  return new CliError(message, { cause });
}

function addressOf({ options: { path, host, port } }: Redis): string {
  return path ?? `${host}:${port}`;
}

/** The client is the user's own: the package does not depend on it. */
async function ioredis(): Promise<{ Redis: typeof Redis; Cluster: typeof Cluster }> {
  try {
    return await import("ioredis");
  } catch (error) {
    const advice = "the commands on Redis need the package ioredis: npm install ioredis";
    throw new CliError(advice, { cause: error });
  }
}
