import { until } from "./ask.ts";
import { type RedisServer, startRedis, startReplica } from "./server.ts";

/** The name under which clients ask for the master. */
export const MASTER = "master";

export interface SentinelOptions {
  /** Additional arguments of redis-server for the master and its replicas. */
  args?: string[];
  /** The master counts as dead after that many ms without a reply. Default: 1000. */
  downAfterMs?: number;
}

/** A master, two replicas and three Sentinels that watch them. Made by startSentinels. */
export class SentinelGroup {
  /** The roles as they were when the group was started. */
  readonly master: RedisServer;
  readonly replicas: readonly RedisServer[];
  readonly sentinels: readonly RedisServer[];

  constructor(
    master: RedisServer,
    replicas: readonly RedisServer[],
    sentinels: readonly RedisServer[],
  ) {
    this.master = master;
    this.replicas = replicas;
    this.sentinels = sentinels;
  }

  /** The value for a client's option `sentinels`. */
  get addresses(): { host: string; port: number }[] {
    return this.sentinels.map(({ host, port }) => ({ host, port }));
  }

  /** Asks the Sentinels for a planned failover. */
  async failover(): Promise<void> {
    await this.sentinels[0]?.ask("SENTINEL", "FAILOVER", MASTER);
  }

  /** Waits until the Sentinels send clients to another master. */
  async switched(): Promise<void> {
    const before = `${this.master.host},${this.master.port}`;
    await until(
      "the Sentinels send clients to another master",
      async () => {
        const addresses = await Promise.all(
          this.sentinels.map((each) => each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)),
        );
        return addresses.every((address) => `${address}` !== before);
      },
      // an election without a majority is repeated after twice the failover-timeout
      { limitMs: 40_000 },
    );
  }

  async stop(): Promise<void> {
    const all = [...this.sentinels, ...this.replicas, this.master];
    await Promise.all(all.map((server) => server.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/** Starts a master, two replicas and three Sentinels, and waits until the Sentinels know each other. */
export async function startSentinels({
  args = [],
  downAfterMs = 1000,
}: SentinelOptions = {}): Promise<SentinelGroup> {
  const started: RedisServer[] = [];
  try {
    const master = await startRedis({ args });
    started.push(master);
    for (let i = 0; i < 2; i++) started.push(await startReplica(master, { args }));
    const sentinel = [
      `sentinel monitor ${MASTER} ${master.host} ${master.port} 2`,
      `sentinel down-after-milliseconds ${MASTER} ${downAfterMs}`,
      `sentinel failover-timeout ${MASTER} 3000`,
    ];
    for (let i = 0; i < 3; i++) started.push(await startRedis({ sentinel }));
    const sentinels = started.slice(3);
    await until("the Sentinels know each other and the replicas", async () => {
      const known = await Promise.all(sentinels.map((each) => each.ask("INFO", "sentinel")));
      return known.every((info) => `${info}`.includes("slaves=2,sentinels=3"));
    });
    return new SentinelGroup(master, started.slice(1, 3), sentinels);
  } catch (error) {
    await Promise.all(started.map((server) => server.stop()));
    throw error;
  }
}
