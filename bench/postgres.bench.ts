/**
 * What does a limit in PostgreSQL cost? A real server on loopback and a pool of pg's; the peer is
 * rate-limiter-flexible, the baseline a bare `SELECT 1`. The keys have been used before. Contenders take turns; the
 * medians of all rounds count.
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

const server = await PostgresServer.start();
const pool = new pg.Pool({ connectionString: server.url, max: 10 });
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

const contenders: Record<string, (key: string) => Promise<unknown>> = {
  "SELECT 1": () => pool.query("SELECT 1"),
  "smooth-limiter": (key) => limiter.for(key).tryAcquire(),
  "rate-limiter-flexible": (key) => flexible.consume(key),
};
const names = Object.keys(contenders);

/** Calls a second of so many callers, each with the key that `keyOf` returns for its next call. */
async function rate(call: (key: string) => Promise<unknown>, callers: number, keyOf: () => string) {
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
for (const [title, callers, keyOf] of [
  ["one caller, one key", 1, () => "one"],
  [`${CALLERS} callers, one key`, CALLERS, () => "one"],
  [`${CALLERS} callers, ${KEYS} keys`, CALLERS, () => `${next++ % KEYS}`],
] as const) {
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
  console.log(`\n${title}`);
  table(
    ["", "calls a second", "to SELECT 1"],
    names.map((name) => {
      const calls = median(found.get(name) ?? []);
      return [name, Math.round(calls).toLocaleString("en"), times(calls / bare)];
    }),
  );
}
await pool.end();
await server.stop();
