/** What a message costs the home: its work and its bytes grow with the members, because a reply has a row for each. */
import { Redis } from "ioredis";
import { exchange, WHOLE } from "../../src/stores/ledger.ts";
import { writeMessage } from "../../src/stores/ledger-text.ts";
import { adapterOf } from "../../src/stores/redis/client.ts";
import { redisLedger } from "../../src/stores/redis/redis-ledger.ts";
import { startRedis } from "../../test/support/redis/server.ts";
import { short } from "../lib/options.ts";

const HOUR_MS = 3_600_000;
/** Rows read or written in a measurement. */
const ROWS = short ? 2000 : 20_000;

export interface HomeCost {
  readonly members: number;
  readonly bytes: number;
  /** Milliseconds of the processor for a message: in a process (`casStore`, PostgreSQL), and in Redis. */
  readonly inProcessMs: number;
  readonly inRedisMs: number;
}

export async function homeCosts(sizes: readonly number[]): Promise<readonly HomeCost[]> {
  await using server = await startRedis();
  const redis = new Redis(server.url);
  const ledger = redisLedger(adapterOf(redis).runner);
  const costs: HomeCost[] = [];
  for (const members of sizes) {
    const message = (i: number, number: number) => messageOf(i, number, members);
    const now = Date.now();
    let text: string | undefined;
    for (let i = 0; i < members; i++) text = exchange(text, message(i, 1), now).record;
    const times = Math.ceil(ROWS / members);
    const inProcess = process.cpuUsage();
    for (let k = 0; k < times; k++) {
      text = exchange(text, message(k % members, 2 + k), now + 2000).record;
    }
    const { user, system } = process.cpuUsage(inProcess);
    await redis.set("key", text ?? "");
    await ledger("key", message(0, times + 2));
    const before = await busyMs(redis);
    for (let k = 0; k < times; k++) await ledger("key", message(k % members, times + 3 + k));
    const inRedisMs = ((await busyMs(redis)) - before) / times;
    costs.push({
      members,
      bytes: text?.length ?? Number.NaN,
      inProcessMs: (user + system) / times / 1000,
      inRedisMs,
    });
  }
  redis.disconnect();
  return costs;
}

/** The processor time of the server so far, ms. */
async function busyMs(redis: Redis): Promise<number> {
  const cpu = await redis.info("cpu");
  const seconds = [...cpu.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)];
  return 1000 * seconds.reduce((sum, [, text]) => sum + Number(text), 0);
}

function messageOf(i: number, number: number, members: number): readonly string[] {
  return writeMessage({
    id: `member${`${i}`.padStart(6, "0")}`,
    region: `region-${i % 20}`,
    number,
    answered: 0,
    since: 0,
    sent: 0,
    waitedMs: 0,
    held: 0,
    claim: 0,
    want: Math.floor((0.9 * WHOLE) / members),
    demand: Math.floor(WHOLE / members),
    leaseMs: HOUR_MS,
    gapMs: HOUR_MS,
    keepMs: 1000,
    pool: 0.9 * WHOLE,
    rests: 0,
    released: [],
  });
}
