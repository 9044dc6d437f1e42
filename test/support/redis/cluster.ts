import { until } from "./ask.ts";
import { type RedisServer, startRedis } from "./server.ts";

const SLOTS = 16_384;

export interface ClusterOptions {
  /** How many replicas each master has. Default: 0. */
  replicas?: 0 | 1;
  /** A node counts as dead after that many ms without a reply. Default: 1000. */
  nodeTimeoutMs?: number;
  /** By how many ms the clock of each node is ahead of the machine's, masters first. Default: 0. */
  clockOffsetsMs?: readonly number[];
}

/** A Redis Cluster. Made by startCluster. */
export class RedisCluster {
  /** The masters in the order of their slots. A failover swaps a master and its replica. */
  readonly masters: RedisServer[];
  /** `replicas[i]` copies `masters[i]`. Empty without replicas. */
  readonly replicas: RedisServer[];

  constructor(masters: RedisServer[], replicas: RedisServer[]) {
    this.masters = masters;
    this.replicas = replicas;
  }

  get nodes(): RedisServer[] {
    return [...this.masters, ...this.replicas];
  }

  /**
   * Makes the replica of `masters[i]` the master, and waits until every running node knows. A master that
   * answers takes part, and no write is lost. A master that was killed or suspended does not, and writes
   * that it had not yet sent to the replica are lost.
   */
  async failover(i: number): Promise<void> {
    const [master, replica] = [this.masters[i], this.replicas[i]];
    if (master === undefined || replica === undefined) throw new Error(`no replica of master ${i}`);
    const force = master.running && !master.suspended ? [] : ["FORCE"];
    let looks = 0;
    await until(`failover of master ${i}`, async () => {
      if (await isMaster(replica)) return true;
      // A replica that is asked too often starts the failover again each time.
      if (looks++ % 100 === 0) await replica.ask("CLUSTER", "FAILOVER", ...force);
      return false;
    });
    this.masters[i] = replica;
    this.replicas[i] = master;

    const id = `${await replica.ask("CLUSTER", "MYID")}`;
    await until(`every node knows of the failover of master ${i}`, () =>
      every(this.nodes, async (node) => {
        const line = (await table(node)).find((row) => row[0] === id);
        return (line?.[2] ?? "").includes("master") && line?.[8] !== undefined && isReady(node);
      }),
    );
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/** Starts a cluster and waits until every node serves it. Redis needs 2 s for that. */
export async function startCluster(
  masters = 3,
  { replicas = 0, nodeTimeoutMs = 1000, clockOffsetsMs = [] }: ClusterOptions = {},
): Promise<RedisCluster> {
  const started = await Promise.allSettled(
    Array.from({ length: masters * (1 + replicas) }, (_, i) =>
      startRedis({
        cluster: true,
        args: ["--cluster-node-timeout", `${nodeTimeoutMs}`],
        clockOffsetMs: clockOffsetsMs[i] ?? 0,
      }),
    ),
  );
  const nodes = started.flatMap((node) => (node.status === "fulfilled" ? [node.value] : []));
  const cluster = new RedisCluster(nodes.slice(0, masters), nodes.slice(masters));
  try {
    for (const node of started) if (node.status === "rejected") throw node.reason;
    await join(cluster);
    return cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  }
}

async function join({ masters, replicas, nodes }: RedisCluster): Promise<void> {
  const edge = (i: number) => Math.round((SLOTS * i) / masters.length);
  await Promise.all(
    masters.map(async (master, i) => {
      const slots = Array.from({ length: edge(i + 1) - edge(i) }, (_, k) => `${edge(i) + k}`);
      await master.ask("CLUSTER", "ADDSLOTS", ...slots);
      await master.ask("CLUSTER", "SET-CONFIG-EPOCH", `${i + 1}`);
    }),
  );
  // Each node meets every other node: gossip alone would take seconds.
  for (const [i, node] of nodes.entries()) {
    for (const { host, port } of nodes.slice(0, i))
      await node.ask("CLUSTER", "MEET", host, `${port}`);
  }
  await until("the cluster's nodes know each other", () =>
    every(nodes, async (node) => {
      const rows = await table(node);
      return rows.length === nodes.length && rows.every(([, , flags]) => flags !== "handshake");
    }),
  );
  await Promise.all(
    replicas.map(async (replica, i) => {
      await replica.ask("CLUSTER", "REPLICATE", `${await masters[i]?.ask("CLUSTER", "MYID")}`);
      await until(`replica of master ${i}`, async () =>
        `${await replica.ask("INFO", "replication")}`.includes("master_link_status:up"),
      );
    }),
  );
  await until("the cluster is ready", () => every(nodes, isReady));
}

async function isReady(node: RedisServer): Promise<boolean> {
  return `${await node.ask("CLUSTER", "INFO")}`.includes("cluster_state:ok");
}

async function isMaster(node: RedisServer): Promise<boolean> {
  return `${await node.ask("INFO", "replication")}`.includes("role:master");
}

/** Returns rows of: id, address, flags, master's id, ping, pong, epoch, link, slots… */
async function table(node: RedisServer): Promise<string[][]> {
  const rows = `${await node.ask("CLUSTER", "NODES")}`.trimEnd().split("\n");
  return rows.map((row) => row.split(" "));
}

/** Returns whether `holds` is true for every node that can answer. */
async function every(
  nodes: RedisServer[],
  holds: (node: RedisServer) => Promise<boolean>,
): Promise<boolean> {
  const alive = nodes.filter((node) => node.running && !node.suspended);
  return (await Promise.all(alive.map(holds))).every(Boolean);
}
