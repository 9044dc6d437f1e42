// The faults, and what each of them may cost.

import { setTimeout as sleep } from "node:timers/promises";
import { startProxy, type TcpProxy } from "../redis/proxy.ts";
import { promote, type RedisServer, startReplica } from "../redis/server.ts";

/** The server, proxies and processes with which a fault is caused. */
export interface Stage {
  readonly server: RedisServer;
  /** One half of the processes reaches the server through the first, the other half through the second. */
  readonly proxies: readonly [TcpProxy, TcpProxy];
  /** The processes that share the limit. */
  readonly pids: readonly number[];
  /** Records what each process holds at this moment. */
  mark(): Promise<void>;
}

/** A fault that is ready to begin. */
export interface PreparedFault extends AsyncDisposable {
  /** Begins the fault. Resolves when the fault is over. */
  run(): Promise<void>;
}

/** Losses beyond the time without Redis. */
export interface Costs {
  /** Redis loses its data. */
  readonly lostState?: boolean;
  /** Redis loses the writes of that many last seconds. */
  readonly lostSeconds?: number;
}

export interface Fault {
  readonly title: string;
  readonly costs: Costs;
  /** Additional arguments of the server. */
  readonly redisArgs?: string[];
  /** Redis answers at times during the fault, or answers some commands. Calls then detect the outage several times. */
  readonly returns?: "often";
  /** Settings of the clients, ms: see `Order`. */
  readonly socketTimeout?: number;
  readonly retryMs?: number;
  prepare(stage: Stage): Promise<PreparedFault>;
}

const OUTAGE_MS = 3000;
/** Shows what many short outages leave behind. */
export const FLAPS = "1 000 flaps";
const KEPT = ["--appendonly", "yes", "--appendfsync", "always"];

function fault(
  title: string,
  run: (stage: Stage) => Promise<void>,
  options: Partial<Omit<Fault, "title" | "prepare">> = {},
): Fault {
  const prepare = async (stage: Stage) => ({
    run: () => run(stage),
    [Symbol.asyncDispose]: async () => {},
  });
  return { title, costs: {}, ...options, prepare };
}

function both({ proxies }: Stage, action: (proxy: TcpProxy) => Promise<void>): Promise<unknown> {
  return Promise.all(proxies.map(action));
}

/** Makes a fault where the network fails for all processes for that many ms. */
function network(
  title: string,
  begin: (proxy: TcpProxy) => Promise<void>,
  options: Partial<Omit<Fault, "title" | "prepare">> = {},
  ms = OUTAGE_MS,
): Fault {
  const run = async (stage: Stage) => {
    await both(stage, begin);
    await sleep(ms);
    await both(stage, (proxy) => proxy.open());
  };
  return fault(title, run, options);
}

export const faults: readonly Fault[] = [
  fault(
    "kill -9, back after 3 s without its data",
    async ({ server }) => {
      await server.kill9();
      await sleep(OUTAGE_MS);
      await server.restart();
    },
    { costs: { lostState: true } },
  ),
  fault(
    "shut down, back after 3 s with its data",
    async ({ server }) => {
      await server.ask("SHUTDOWN").catch(() => {});
      await sleep(OUTAGE_MS);
      await server.restart();
    },
    { redisArgs: KEPT },
  ),
  fault("SIGSTOP for 5 s", async ({ server }) => {
    server.suspend();
    await sleep(5000);
    server.resume();
  }),
  network("500 ms latency for 3 s", (proxy) => proxy.delay(250)),
  network("packets stop for 3 s, no reset", (proxy) => proxy.stall()),
  network("half open for 3 s", (proxy) => proxy.halfOpen(), {
    socketTimeout: 1000,
  }),
  network("connections refused for 3 s", (proxy) => proxy.cut()),
  network("flapping every 300 ms for 5 s", (proxy) => proxy.flap(300), { returns: "often" }, 5000),
  fault(
    "maxmemory reached for 3 s",
    async ({ server }) => {
      await server.ask("CONFIG", "SET", "maxmemory", "1");
      await sleep(OUTAGE_MS);
      await server.ask("CONFIG", "SET", "maxmemory", "0");
    },
    // Redis still answers commands that write nothing
    { returns: "often" },
  ),
  {
    title: "failover that loses the last second",
    costs: { lostSeconds: 1 },
    async prepare({ server, proxies }) {
      const link = await startProxy(server.port);
      const replica = await startReplica(link);
      return {
        async run() {
          await link.stall();
          await sleep(1000);
          await server.kill9();
          await promote(replica);
          await Promise.all(proxies.map((proxy) => proxy.redirect(replica.port)));
        },
        async [Symbol.asyncDispose]() {
          await replica.stop();
          await link.stop();
        },
      };
    },
  },
  fault("2 of 4 cut off for 3 s", async ({ proxies: [, second] }) => {
    await second.stall();
    await sleep(OUTAGE_MS);
    await second.open();
  }),
  fault("1 of 4 processes stopped for 3 s", async ({ pids: [pid = 0] }) => {
    process.kill(pid, "SIGSTOP");
    await sleep(OUTAGE_MS);
    process.kill(pid, "SIGCONT");
  }),
  fault(
    FLAPS,
    async (stage) => {
      for (let flap = 0; flap < 1000; flap++) {
        if (flap % 400 === 200) await settled(stage);
        const before = accepted(stage);
        await both(stage, (proxy) => proxy.cut({ accept: true }));
        for (let i = 0; i < 20 && accepted(stage) < before + stage.pids.length; i++) await sleep(5);
        await sleep(5);
      }
      await settled(stage);
    },
    { returns: "often", retryMs: 1 },
  ),
];

async function settled(stage: Stage): Promise<void> {
  await sleep(1500);
  await stage.mark();
}

function accepted({ proxies }: Stage): number {
  return proxies.reduce((sum, proxy) => sum + proxy.accepted, 0);
}
