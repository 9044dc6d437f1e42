/**
 * What does one key take on a store with compare-and-set? Each client of the store stands for a process:
 * it has a `casStore` of its own, on a connection of its own, and 64 callers that call again as soon as
 * they are answered. The stores: the memory of this process, with replies after 0.2 ms and after 1 ms,
 * and a real redis-server on loopback with `GET` and a script that compares and sets. There is no peer.
 * What counts is the best tenth of a second, as other programs may use the machine, too.
 */
import { Redis } from "ioredis";
import { type CasBackend, casStore, StoreRateLimiter } from "smooth-limiter/store";
import { startRedis } from "../test/support/redis/server.ts";
import { short } from "./lib/options.ts";
import { table } from "./lib/report.ts";

const CALLERS = 64;
const FOR_MS = short ? 500 : 5000;
const SLICE_MS = 100;

/** Counts the writes of a backend, and the races that it has lost. */
class Counted implements CasBackend {
  readonly #backend: CasBackend;
  writes = 0;
  lost = 0;

  constructor(backend: CasBackend) {
    this.#backend = backend;
  }

  get(key: string): ReturnType<CasBackend["get"]> {
    return this.#backend.get(key);
  }

  async compareAndSet(...call: Parameters<CasBackend["compareAndSet"]>): Promise<boolean> {
    const written = await this.#backend.compareAndSet(...call);
    if (written) this.writes += 1;
    else this.lost += 1;
    return written;
  }
}

/** Keeps values in a map; each reply takes so long. */
function memoryBackend(replyMs: number): CasBackend {
  const values = new Map<string, Uint8Array>();
  return {
    async get(key) {
      await delay(replyMs / 2);
      const value = values.get(key);
      await delay(replyMs / 2);
      return value;
    },
    async compareAndSet(key, before, after) {
      await delay(replyMs / 2);
      const isSame = values.get(key) === before;
      if (isSame) values.set(key, after);
      await delay(replyMs / 2);
      return isSame;
    },
  };
}

/** Waits by turns of the event loop: a timer takes a whole millisecond. */
async function delay(ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (performance.now() < end) await new Promise(setImmediate);
}

const COMPARE_AND_SET = `
  local value = redis.call("GET", KEYS[1])
  if (value or "") ~= ARGV[1] then return 0 end
  redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
  return 1`;

function redisBackend(redis: Redis): CasBackend {
  return {
    async get(key) {
      return (await redis.getBuffer(key)) ?? undefined;
    },
    async compareAndSet(key, before, after, lifeMs) {
      const [from, to] = [Buffer.from(before ?? []), Buffer.from(after)];
      return (await redis.eval(COMPARE_AND_SET, 1, key, from, to, Math.ceil(lifeMs))) === 1;
    },
  };
}

/** Runs the callers of all clients, and returns a row: clients, writes and permits a second, lost races. */
async function measure(name: string, backends: readonly CasBackend[]): Promise<string[]> {
  const counted = backends.map((backend) => new Counted(backend));
  const limiters = counted.map((backend) =>
    StoreRateLimiter.create(casStore(backend), "one key", 1e9, { timeoutMs: 5000 }),
  );
  const slices: { writes: number; permits: number }[] = [];
  let permits = 0;
  let failed = 0;
  const start = performance.now();
  const end = start + FOR_MS;
  const call = async (limiter: StoreRateLimiter) => {
    while (performance.now() < end) {
      await limiter.acquire().then(
        () => {
          permits += 1;
          const slice = Math.floor((performance.now() - start) / SLICE_MS);
          slices[slice] = { writes: writesOf(counted), permits };
        },
        () => {
          failed += 1;
        },
      );
    }
  };
  await Promise.all(limiters.flatMap((each) => Array.from({ length: CALLERS }, () => call(each))));
  const best = { writes: 0, permits: 0 };
  let before = { writes: 0, permits: 0 };
  for (const slice of slices) {
    if (slice === undefined) continue;
    best.writes = Math.max(best.writes, slice.writes - before.writes);
    best.permits = Math.max(best.permits, slice.permits - before.permits);
    before = slice;
  }
  const lost = counted.reduce((sum, each) => sum + each.lost, 0);
  const perSecond = (count: number) => ((count / SLICE_MS) * 1000).toLocaleString("en");
  const share = `${((lost / (lost + writesOf(counted))) * 100).toFixed(0)} %`;
  const [writes, granted] = [perSecond(best.writes), perSecond(best.permits)];
  return [name, `${backends.length}`, writes, granted, share, `${failed}`];
}

function writesOf(backends: readonly Counted[]): number {
  return backends.reduce((sum, { writes }) => sum + writes, 0);
}

await using server = await startRedis();
const rows: string[][] = [];
for (const clients of [1, 2, 8]) {
  for (const ms of [0.2, 1]) {
    const backend = memoryBackend(ms);
    const backends = Array.from({ length: clients }, () => backend);
    rows.push(await measure(`in memory, a reply takes ${ms} ms`, backends));
  }
  const connections = Array.from({ length: clients }, () => new Redis(server.url));
  rows.push(await measure("Redis, GET and a script", connections.map(redisBackend)));
  for (const connection of connections) connection.disconnect();
}
rows.sort(([one = ""], [other = ""]) => one.localeCompare(other));
console.log(`\nOne key, ${CALLERS} callers in each client`);
table(["", "clients", "writes a second", "permits a second", "lost races", "failed"], rows);
