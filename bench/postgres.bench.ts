/**
 * What does a limit in PostgreSQL cost? A real server on loopback and a pool of pg's; the peer is
 * rate-limiter-flexible, the baseline a bare `SELECT 1`. The keys have been used before. Contenders take turns; the
 * medians of all rounds count. The server runs as it is installed: the peer's commits then wait for the disk, those
 * of smooth-limiter do not, because its table is unlogged. With `fsync=off` no commit waits.
 * Then several processes, each of which writes all keys, so that none can rely on what it wrote last.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { RateLimiterPostgres } from "rate-limiter-flexible";
import { fixedWindow } from "smooth-limiter";
import { postgresStore } from "smooth-limiter/postgres";
import { StoreLimiter } from "smooth-limiter/store";
import { PostgresServer } from "../test/support/postgres.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";
import { median } from "./lib/stats.ts";

const ROUNDS = short ? 7 : 31;
const ROUND_MS = 100;
const CALLERS = 64;
const KEYS = 1000;

type Call = (key: string) => Promise<unknown>;

async function contendersOn(pool: pg.Pool): Promise<Record<string, Call>> {
  const limiter = StoreLimiter.create(
    postgresStore(pool),
    "bench",
    fixedWindow({ limit: 1e9, windowMs: 3_600_000 }),
    { timeoutMs: 10_000 },
  );
  const flexible = await new Promise<RateLimiterPostgres>((resolve, reject) => {
    const options = { storeClient: pool, points: 1e9, duration: 3600, tableName: "flexible" };
    const made: RateLimiterPostgres = new RateLimiterPostgres(options, (error) =>
      error ? reject(error) : resolve(made),
    );
  });
  return {
    "SELECT 1": () => pool.query("SELECT 1"),
    "smooth-limiter": (key) => limiter.for(key).tryAcquire(),
    "rate-limiter-flexible": (key) => flexible.consume(key),
  };
}

/** Calls a second of so many callers, each with the key that `keyOf` returns for its next call. */
async function rate(call: Call, callers: number, keyOf: () => string) {
  const start = performance.now();
  let calls = 0;
  const caller = async () => {
    while (performance.now() < start + ROUND_MS) {
      await call(keyOf());
      calls += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return (calls / (performance.now() - start)) * 1000;
}

let next = 0;
const CASES = [
  ["one caller, one key", 1, () => "one"],
  [`${CALLERS} callers, one key`, CALLERS, () => "one"],
  [`${CALLERS} callers, ${KEYS} keys`, CALLERS, () => `${next++ % KEYS}`],
] as const;

async function measure(server: string, contenders: Record<string, Call>): Promise<void> {
  const names = Object.keys(contenders);
  for (const [title, callers, keyOf] of CASES) {
    const found = new Map(names.map((name) => [name, [] as number[]]));
    // the keys are in use: a new key costs more, in both limiters
    for (const call of Object.values(contenders)) {
      for (let i = 0; i < 4; i++) {
        await Promise.all(Array.from({ length: KEYS }, () => call(keyOf())));
      }
    }
    for (let round = 0; round < ROUNDS; round++) {
      for (let i = 0; i < names.length; i++) {
        const name = names[(round + i) % names.length] ?? "";
        const call = contenders[name];
        if (call !== undefined) found.get(name)?.push(await rate(call, callers, keyOf));
      }
    }
    const bare = median(found.get("SELECT 1") ?? []);
    console.log(`\n${title}, ${server}`);
    table(
      ["", "calls a second", "to SELECT 1"],
      names.map((name) => {
        const calls = median(found.get(name) ?? []);
        return [name, Math.round(calls).toLocaleString("en"), times(calls / bare)];
      }),
    );
  }
}

const PROCESSES = [1, 4];
const WARM_UP_MS = short ? 3000 : 10_000;
const MEASURED_MS = short ? 2000 : 10_000;
const SHARED_KEYS = 2000;

/** One of several processes: its callers draw keys at random. */
async function work(url: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  const limiter = StoreLimiter.create(
    postgresStore(pool),
    "processes",
    fixedWindow({ limit: 1e9, windowMs: 3_600_000 }),
    { timeoutMs: 10_000 },
  );
  let granted = 0;
  let endMs = Infinity;
  const caller = async () => {
    while (performance.now() < endMs) {
      const key = `${Math.floor(Math.random() * SHARED_KEYS)}`;
      if (await limiter.for(key).tryAcquire()) granted += 1;
    }
  };
  const callers = Array.from({ length: CALLERS }, caller);
  await once(process, "message");
  granted = 0;
  const startMs = performance.now();
  endMs = startMs + MEASURED_MS;
  await Promise.all(callers);
  process.send?.((granted / (performance.now() - startMs)) * 1000);
  await pool.end();
  process.disconnect();
}

/** Permits a second of so many processes together. */
async function rateOf(processes: number, url: string): Promise<number> {
  const workers: ChildProcess[] = [];
  for (let i = 0; i < processes; i++) {
    workers.push(fork(fileURLToPath(import.meta.url), ["worker", url]));
  }
  await new Promise((resolve) => setTimeout(resolve, WARM_UP_MS));
  const rates = workers.map(async (worker) => {
    worker.send("measure");
    const [rate] = (await once(worker, "message")) as [number];
    return rate;
  });
  return (await Promise.all(rates)).reduce((sum, rate) => sum + rate, 0);
}

async function measureProcesses(url: string): Promise<void> {
  const rates: number[] = [];
  for (const processes of PROCESSES) rates.push(await rateOf(processes, url));
  console.log(`\n${CALLERS} callers in each of several processes, ${SHARED_KEYS} keys`);
  const [one = 0] = rates;
  table(
    ["processes", "permits a second", "to one process"],
    PROCESSES.map((processes, i) => {
      const rate = rates[i] ?? 0;
      return [`${processes}`, Math.round(rate).toLocaleString("en"), times(rate / one)];
    }),
  );
  const ratio = (rates.at(-1) ?? 0) / one;
  target("four processes grant at least as many as one", ratio >= 1, times(ratio));
}

const [, , role, url = ""] = process.argv;
if (role === "worker") await work(url);
else
  for (const fsync of ["on", "off"] as const) {
    const server = await PostgresServer.start(fsync);
    const pool = new pg.Pool({ connectionString: server.url, max: 10 });
    await measure(fsync === "on" ? "server as installed" : "fsync=off", await contendersOn(pool));
    await pool.end();
    if (fsync === "on") await measureProcesses(server.url);
    await server.stop();
  }
