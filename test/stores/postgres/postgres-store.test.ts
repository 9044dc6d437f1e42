/** `postgresStore` on a real server, through the clients that it accepts. */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import postgres from "postgres";
import * as assert from "uvu/assert";
import { type Policy, slidingLog } from "../../../src/index.ts";
import { type PostgresClient, postgresStore } from "../../../src/postgres.ts";
import { StoreLimiter, StoreRateLimiter, StoreUnavailableError } from "../../../src/store.ts";
import { limiterSuite } from "../../local/limiter.suite.ts";
import { pacedSample } from "../../support/algorithms/samples.ts";
import { RemoteClock, underWayWhile } from "../../support/limiter/remote.ts";
import { failure } from "../../support/limiter/watch.ts";
import { PostgresServer } from "../../support/postgres.ts";
import { suite } from "../../support/suite.ts";

const DAY_MS = 86_400_000;
/** Ten a day: permits do not come back during a test. */
const ten: Policy = slidingLog({ limit: 10, windowMs: DAY_MS });
const patient = { timeoutMs: 20_000 };

let server: PostgresServer;
let pool: pg.Pool;
const pools: pg.Pool[] = [];
let tables = 0;

/** A table that no test has used. It does not exist yet. */
const fresh = () => ({ table: `t${tables++}` });

function open(more: pg.PoolConfig = {}): pg.Pool {
  const opened = new pg.Pool({ connectionString: server.url, idleTimeoutMillis: 0, ...more });
  // pg reports lost connections that are idle
  opened.on("error", () => {});
  pools.push(opened);
  return opened;
}

const opening = suite("PostgreSQL, before", { timeoutMs: 300_000 });
opening("the server starts", async () => {
  server = await PostgresServer.start();
  pool = open();
});
opening.run();

// -- the suite of all limiters --

limiterSuite(
  "StoreRateLimiter on PostgreSQL",
  (clock, { name = `limiter ${tables++}`, ...options } = {}) => {
    const client = {
      query: (text: string, values: unknown[]) => underWayWhile(() => pool.query(text, values)),
    };
    const store = postgresStore(client, { table: "suite" });
    return StoreRateLimiter.create(store, name, 7, { ...patient, ...options, clock });
  },
  {
    policies: pacedSample("bursty")(7),
    faster: pacedSample("bursty")(11),
    slower: pacedSample("bursty")(2),
    together: 1,
    makeClock: () => new RemoteClock(),
  },
);

// -- the store --

const store = suite("postgresStore");

store("calls of two processes for many keys share statements, reads and writes alike", async () => {
  let statements = 0;
  const counted = () => {
    const query = (text: string, values: unknown[]) => {
      statements += 1;
      return pool.query(text, values);
    };
    return postgresStore({ query }, { table: "shared" });
  };
  const limiters = [1, 2].map(() => StoreLimiter.create(counted(), "shared", ten, patient));
  const keys = Array.from({ length: 50 }, (_, i) => `${i}`);
  const round = async () => {
    // one after the other: each finds what the other has written
    for (const limiter of limiters) {
      const granted = await Promise.all(keys.map((key) => limiter.for(key).tryAcquire()));
      assert.ok(granted.every(Boolean));
    }
  };
  await round();
  statements = 0;
  await round();
  assert.ok(statements <= 2 * 4, `${statements} statements for ${2 * keys.length} calls`);
});

/** How many of that many permits are granted, one by one and all at once. */
async function granted(limiters: readonly StoreLimiter[], calls: number): Promise<number> {
  const all = limiters.flatMap((limiter) => Array.from({ length: calls }, () => limiter));
  const answers = await Promise.all(all.map((limiter) => limiter.tryAcquire()));
  return answers.filter(Boolean).length;
}

store("pg's pool and client, and postgres.js", async () => {
  const options = fresh();
  const client = new pg.Client(server.url);
  client.on("error", () => {});
  await client.connect();
  const sql = postgres(server.url);
  const clients: PostgresClient[] = [pool, client, sql];
  const limiters = clients.flatMap((one) =>
    [true, false].map((prepare) =>
      StoreLimiter.create(postgresStore(one, { ...options, prepare }), "shared", ten, patient),
    ),
  );
  for (const [i, limiter] of limiters.entries()) {
    assert.is((await limiter.decide()).remaining, 9 - i);
  }
  const prepared = await client.query("SELECT name FROM pg_prepared_statements");
  assert.ok(prepared.rows.length > 0);
  assert.is(await granted(limiters, 5), 4);
  await client.end();
  await sql.end();
});

store("the table is created once, by whichever process comes first", async () => {
  const options = fresh();
  const limiters = Array.from({ length: 6 }, () =>
    StoreLimiter.create(postgresStore(open({ max: 2 }), options), "new", ten, patient),
  );
  assert.is(await granted(limiters, 4), 10);
});

store("a table in a schema, with upper-case letters", async () => {
  await pool.query('CREATE SCHEMA "Limits"');
  const options = { table: "Limits.Of_Users" };
  const limiter = StoreLimiter.create(postgresStore(pool, options), "a", ten, patient);
  assert.ok(await limiter.tryAcquire());
  const { rows } = await pool.query('SELECT key FROM "Limits"."Of_Users"');
  assert.equal(rows, [{ key: "l:a" }]);
});

store("processes that write at once, with every isolation of transactions", async () => {
  for (const isolation of ["read committed", "repeatable read", "serializable"]) {
    const options = fresh();
    const setting = `-c default_transaction_isolation=${isolation.replace(" ", "\\ ")}`;
    const limiters = Array.from({ length: 4 }, () => {
      const process = postgresStore(open({ options: setting, max: 3 }), options);
      return StoreLimiter.create(process, "busy", ten, patient);
    });
    assert.is(await granted(limiters, 6), 10, isolation);
  }
});

store("the server's clock counts, not that of the process", async () => {
  const options = fresh();
  const { now } = Date;
  const limiter = StoreRateLimiter.create(postgresStore(pool, options), "time", 1, patient);
  assert.ok(await limiter.tryAcquire());
  try {
    Date.now = () => now() + 3_600_000;
    assert.not(await limiter.tryAcquire());
  } finally {
    Date.now = now;
  }
});

/** A pool's statements, by their first words, counted. */
function counting(): { client: PostgresClient; counts: Map<string, number> } {
  const counts = new Map<string, number>();
  const query = (text: string, values: unknown[]) => {
    const [verb = ""] = text.split(" ");
    counts.set(verb, (counts.get(verb) ?? 0) + 1);
    return pool.query(text, values);
  };
  return { client: { query }, counts };
}

store("a call for a key that only this process writes takes one statement", async () => {
  const { client, counts } = counting();
  const options = fresh();
  const limiter = StoreLimiter.create(postgresStore(client, options), "a", ten, patient);
  for (let i = 0; i < 6; i++) assert.ok(await limiter.tryAcquire());
  // two reads, and more only if this machine stands still for seconds
  assert.ok(Number(counts.get("SELECT")) < 6);
  const other = StoreLimiter.create(postgresStore(pool, options), "a", ten, patient);
  assert.is((await other.decide()).remaining, 3);
  assert.is((await limiter.decide()).remaining, 2, "another process came in between");
  await pool.query(`DELETE FROM ${options.table}`);
  assert.is((await limiter.decide()).remaining, 9);
  assert.is((await limiter.decide()).remaining, 8);
  assert.is((await limiter.decide()).remaining, 7);
  await pool.query(`DROP TABLE ${options.table}`);
  assert.is((await limiter.decide()).remaining, 9, "the table is created again");
});

store("calls for many keys share statements, and other processes lose nothing", async () => {
  const { client, counts } = counting();
  const options = fresh();
  const limiters = [client, pool].map((one) =>
    StoreLimiter.create(postgresStore(one, options), "a", ten, patient),
  );
  const keys = [
    "\\",
    "\0",
    "'\"[",
    "x".repeat(2000),
    ...Array.from({ length: 60 }, (_, i) => `${i}`),
  ];
  const takeAll = async (process: number) => {
    const limiter = limiters[process] as StoreLimiter;
    const answers = await Promise.all(keys.map((key) => limiter.for(key).tryAcquire()));
    return answers.filter(Boolean).length;
  };
  for (let i = 0; i < 4; i++) assert.is(await takeAll(0), keys.length);
  assert.ok(Number(counts.get("UPDATE")) < 2 * keys.length, `${counts.get("UPDATE")}`);
  assert.is(await takeAll(1), keys.length);
  // both at once, in opposite orders: 5 permits of each key are left
  const takes = Array.from({ length: 8 }, (_, i) => {
    if (i % 2 > 0) keys.reverse();
    return takeAll(i % 2);
  });
  const granted = await Promise.all(takes);
  assert.is(
    granted.reduce((sum, each) => sum + each),
    5 * keys.length,
  );
});

store("statements that never end keep no later ones waiting", async () => {
  const options = fresh();
  let hangs = false;
  const client = {
    query: (text: string, values: unknown[]) =>
      hangs && text.startsWith("UPDATE") ? new Promise<never>(() => {}) : pool.query(text, values),
  };
  const quick = { timeoutMs: 500 };
  const limiter = StoreLimiter.create(postgresStore(client, options), "a", ten, quick);
  const keys = Array.from({ length: 8 }, (_, i) => `${i}`);
  for (const key of keys) for (let i = 0; i < 2; i++) await limiter.for(key).tryAcquire();
  hangs = true;
  for (let i = 0; i < 2; i++) {
    await Promise.all(keys.map((key) => failure(() => limiter.for(key).tryAcquire())));
  }
  hangs = false;
  for (
    let tries = 0;
    (await limiter
      .for("0")
      .tryAcquire()
      .catch(() => false)) === false;
    tries++
  ) {
    assert.ok(tries < 200, "back within 20 s");
    await sleep(100);
  }
});

store("a write at a time that the server's clock does not show changes nothing", async () => {
  const { client, counts } = counting();
  const limiter = StoreLimiter.create(postgresStore(client, fresh()), "a", ten, patient);
  for (let i = 0; i < 3; i++) assert.ok(await limiter.tryAcquire());
  const { now } = performance;
  for (const aheadMs of [2000, -2000]) {
    const before = counts.get("SELECT") ?? 0;
    try {
      performance.now = () => now.call(performance) + aheadMs;
      assert.ok(await limiter.tryAcquire());
    } finally {
      performance.now = now;
    }
    assert.ok((counts.get("SELECT") ?? 0) > before);
    assert.ok(await limiter.tryAcquire());
  }
  assert.is((await limiter.peek()).remaining, 3);
});

store("a state that has expired is none", async () => {
  const { table } = fresh();
  const limiter = StoreLimiter.create(postgresStore(pool, { table }), "a", ten, patient);
  assert.is(await granted([limiter], 11), 10);
  const ends = await pool.query(
    `SELECT extract(epoch FROM expires - now()) AS seconds FROM ${table}`,
  );
  assert.ok(Math.abs(Number(ends.rows[0]?.seconds) - DAY_MS / 1000) < 600, "a day");
  await pool.query(`UPDATE ${table} SET expires = now() - interval '1 second'`);
  assert.is((await limiter.decide()).remaining, 9);
  assert.is((await limiter.decide()).remaining, 8);
});

store("a setting has no end", async () => {
  const { table } = fresh();
  const limiter = StoreRateLimiter.create(postgresStore(pool, { table }), "a", 5, patient);
  await limiter.setRate(50);
  const { rows } = await pool.query(
    `SELECT expires > now() + interval '9999 years' AS far FROM ${table}`,
  );
  assert.equal(rows, [{ far: true }]);
});

store("rows that have expired are removed as new keys come", async () => {
  const { table } = fresh();
  const users = StoreLimiter.create(postgresStore(pool, { table }), "users", ten, patient);
  const come = (from: number, to: number) =>
    Promise.all(Array.from({ length: to - from }, (_, i) => users.for(`${from + i}`).tryAcquire()));
  await come(0, 150);
  await pool.query(`UPDATE ${table} SET expires = now() - interval '1 second'`);
  await come(1000, 1400);
  const expired = async () => {
    const { rows } = await pool.query(
      `SELECT count(*)::int AS n FROM ${table} WHERE expires < now()`,
    );
    return rows[0]?.n;
  };
  for (let tries = 0; tries < 200 && (await expired()) > 0; tries++) await sleep(10);
  assert.is(await expired(), 0);
  const { rows } = await pool.query(`SELECT count(*)::int AS n FROM ${table}`);
  assert.equal(rows, [{ n: 400 }], "the others stay");
});

store("a sweep that never ends does not stop later ones", async () => {
  const { table } = fresh();
  let sweeps = 0;
  const client = {
    query: (text: string, values: unknown[]) => {
      if (text.startsWith("WITH") && ++sweeps === 1) return new Promise<never>(() => {});
      return pool.query(text, values);
    },
  };
  const users = StoreLimiter.create(postgresStore(client, { table }), "users", ten, patient);
  const come = (from: number) =>
    Promise.all(Array.from({ length: 60 }, (_, i) => users.for(`${from + i}`).tryAcquire()));
  await come(0);
  assert.is(sweeps, 1);
  await come(100);
  assert.is(sweeps, 1, "the first may still be under way");
  const { now } = performance;
  try {
    performance.now = () => now.call(performance) + 61_000;
    await come(200);
    assert.ok(sweeps > 1);
  } finally {
    performance.now = now;
  }
});

store("a limit that operators keep in a row", async () => {
  const { table } = fresh();
  const options = { ...patient, limitKey: "limit:a" };
  const limiter = StoreLimiter.create(postgresStore(pool, { table }), "a", ten, options);
  assert.is((await limiter.peek()).limit, 10);
  await pool.query(`INSERT INTO ${table} VALUES ('limit:a', '20', 'infinity')`);
  assert.is((await limiter.peek()).limit, 20);
});

store("any text is a key", async () => {
  const limiter = StoreLimiter.create(postgresStore(pool, fresh()), "keys", ten, patient);
  const long = "x".repeat(20_000);
  const keys = [
    "\0",
    "\\0",
    "\\",
    "\\\\",
    "é€😀",
    "' OR 1=1 --",
    `${long}1`,
    `${long}2`,
    "😀".repeat(5000),
  ];
  for (const key of keys) {
    assert.is((await limiter.for(key).decide()).remaining, 9, key.slice(0, 10));
  }
  for (const key of keys) {
    assert.is((await limiter.for(key).decide()).remaining, 8, key.slice(0, 10));
  }
});

store(
  "without the right to create the table the error is the server's, and is no outage",
  async () => {
    await pool.query("CREATE ROLE guest LOGIN");
    await pool.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    const guest = open({ connectionString: server.url.replace("postgres@", "guest@") });
    const options = { ...patient, whenUnavailable: "allow" } as const;
    const limiter = StoreLimiter.create(postgresStore(guest, fresh()), "a", ten, options);
    const error = await failure(() => limiter.tryAcquire());
    assert.match(String(error), /permission denied for schema public/);
  },
);

store("what a client may be", () => {
  for (const client of [undefined, null, {}, { query: 1 }, "postgres://localhost"]) {
    assert.throws(
      () => postgresStore(client as unknown as PostgresClient),
      /client\.query \(of pg and PGlite\) or client\.unsafe \(of postgres\.js\) must be a function/,
    );
  }
  for (const table of ["", "a b", "a.b.c", 'a"', "1a", "a.", "x".repeat(64), 7]) {
    assert.throws(
      () => postgresStore(pool, { table: table as string }),
      (error: unknown) =>
        error instanceof TypeError && /options\.table must be/.test(error.message),
    );
  }
  assert.throws(() => postgresStore(pool, { prepare: 1 as unknown as boolean }), /true or false/);
  assert.throws(() => postgresStore(pool, { tabel: "a" } as object), /options has no "tabel"/);
});

store("whatever a client answers, the call ends with an error", async () => {
  const answers: (() => unknown)[] = [
    () => undefined,
    () => ({ rows: "none" }),
    () => [{ state: "text", ms: "soon" }],
    () => Promise.resolve({ rows: [null] }),
    () => {
      throw new Error("boom");
    },
  ];
  for (const query of answers) {
    const client = { query } as unknown as PostgresClient;
    const limiter = StoreLimiter.create(postgresStore(client), "a", ten, { timeoutMs: 300 });
    assert.instance(await failure(() => limiter.tryAcquire()), Error);
  }
});

store("a server that crashes: an outage, then an empty table", async () => {
  const options = fresh();
  const limiter = StoreLimiter.create(postgresStore(pool, options), "a", ten, { timeoutMs: 2000 });
  assert.is(await granted([limiter], 11), 10);
  await server.crash();
  assert.instance(await failure(() => limiter.tryAcquire()), StoreUnavailableError);
  await server.restart();
  const answer = async () => {
    try {
      return await limiter.tryAcquire();
    } catch {
      return false;
    }
  };
  for (let tries = 0; !(await answer()); tries++) {
    assert.ok(tries < 200, "back within 20 s");
    await sleep(100);
  }
});

store.run();

const closing = suite("PostgreSQL, after");
closing("the server ends", async () => {
  await Promise.all(pools.map((one) => one.end()));
  await server.stop();
});
closing.run();
