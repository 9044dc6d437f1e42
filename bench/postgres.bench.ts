/**
 * What does a limit in PostgreSQL cost? A real server on loopback and a pool of pg's; the peer is
 * rate-limiter-flexible, the baseline a bare `SELECT 1`. The keys have been used before. Contenders take turns; the
 * medians of all rounds count. The server runs as it is installed: the peer's commits then wait for the disk, those
 * of smooth-limiter do not, because its table is unlogged. With `fsync=off` no commit waits.
 */
import pg from "pg";
import { RateLimiterPostgres } from "rate-limiter-flexible";
import { fixedWindow } from "smooth-limiter";
import { postgresStore } from "smooth-limiter/postgres";
import { StoreLimiter } from "smooth-limiter/store";
import { PostgresServer } from "../scripts/postgres.ts";
import { short } from "./lib/options.ts";
import { table, times } from "./lib/report.ts";
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

for (const fsync of ["on", "off"] as const) {
  const server = await PostgresServer.start(fsync);
  const pool = new pg.Pool({ connectionString: server.url, max: 10 });
  await measure(fsync === "on" ? "server as installed" : "fsync=off", await contendersOn(pool));
  await pool.end();
  await server.stop();
}
