/**
 * A store in a table of PostgreSQL: `casStore` over a read and a write, with the server's clock.
 *
 * Both address rows by their primary key, so calls for different keys do not wait for each other. A write states
 * the bytes that it replaces, which were read or which this process wrote last, and the times at which it is valid.
 * If another process has written in between, it changes no row, and `casStore` runs the requests again on the
 * newer state. Reads or writes for several keys share a statement (`shared-calls.ts`).
 *
 * The table has no index besides its primary key: an index on `expires` would have to be written with every
 * state. Expired rows are removed as new ones come: each 50th new key checks the next 100 rows in
 * the order of the keys. So the table holds at most about twice as many rows as are in use.
 */
import { checkBoolean, checkOptions, checkText, failCheck } from "../../ground/check.ts";
import type { CasBackend } from "../cas-backend.ts";
import { casStore } from "../cas-store.ts";
import type { Store } from "../store.ts";
import {
  CREATED_TWICE,
  codeOf,
  hasChanged,
  isPermanent,
  KEY,
  LOST_RACES,
  type PostgresClient,
  type Result,
  type Runner,
  runnerOf,
  Statement,
  UNDEFINED_TABLE,
} from "./postgres-client.ts";
import { SharedCalls } from "./shared-calls.ts";
import { NOW, Reads, type Row, type Write, Writes } from "./statements.ts";

/** How many rows a sweep checks, and after how many new keys the next one comes. */
const SWEPT = 100;
const KEYS_A_SWEEP = SWEPT / 2;
/** A sweep that takes longer does not keep later ones from starting: its connection may be lost. */
const SWEEP_HANGS_MS = 60_000;
/** A state with no end is kept for so long, ms: 31 000 years; timestamps end later. */
const LONGEST_LIFE_MS = 1e15;

/** The options of `postgresStore`. */
export interface PostgresStoreOptions {
  /**
   * The table of the states, such as `limits` or `app.limits`. The first call creates it if it does not
   * exist. Default `smooth_limiter`.
   */
  readonly table?: string | undefined;
  /**
   * Whether the server may keep prepared statements for each connection, with `pg` and `postgres`. Set it to
   * `false` behind a pooler that does not support them, such as PgBouncer before 1.21. Default `true`.
   */
  readonly prepare?: boolean | undefined;
}

/**
 * Creates a store for `StoreRateLimiter` and `StoreLimiter` in a table of PostgreSQL 12 or later: every
 * algorithm, for any number of processes, by the server's clock.
 *
 * @param client a pool or client of `pg`, `postgres` or PGlite; it is never closed
 * @param options `table`, default `smooth_limiter`; `prepare`, default `true`
 * @returns the store, for any number of limiters; it sends nothing before their first call
 * @throws TypeError if the client or the name of the table is unusable
 * @example
 * const store = postgresStore(new pg.Pool());
 * const limiter = StoreRateLimiter.create(store, "github", 10);
 * await limiter.acquire();
 */
export function postgresStore(client: PostgresClient, options: PostgresStoreOptions = {}): Store {
  checkOptions("options", options, ["table", "prepare"]);
  const { prepare = true } = options;
  checkBoolean("options.prepare", prepare);
  const table = quoted(options.table ?? "smooth_limiter");
  return casStore(new PostgresBackend(runnerOf(client, prepare), table));
}

function quoted(table: string): string {
  checkText("options.table", table);
  const parts = table.split(".");
  if (parts.length > 2 || parts.some((part) => !/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(part))) {
    failCheck(
      "options.table",
      "a name of letters, digits and _, at most 63, or schema.name",
      table,
    );
  }
  return parts.map((part) => `"${part}"`).join(".");
}

class PostgresBackend implements CasBackend {
  readonly isPermanent = isPermanent;
  readonly #runner: Runner;
  readonly #now = new Statement(`SELECT ${NOW} AS now`);
  readonly #create: Statement;
  readonly #insert: Statement;
  readonly #sweep: Statement;
  readonly #reads: SharedCalls<string, Row>;
  readonly #writes: SharedCalls<Write, boolean>;
  /** New keys since the last sweep, and the key that it has checked last. */
  #newKeys = 0;
  #swept: string | undefined;
  #sweepUnderWay: { readonly sentMs: number } | undefined;

  constructor(runner: Runner, table: string) {
    const { returning } = runner;
    const expires = "clock_timestamp() + $3::float8 * interval '1 millisecond'";
    this.#runner = runner;
    // unlogged: a write need not wait for the disk; after a crash of the server the limits begin anew
    this.#create = new Statement(`CREATE UNLOGGED TABLE IF NOT EXISTS ${table}
      (key text PRIMARY KEY, state bytea NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 50)`);
    this.#insert =
      new Statement(`INSERT INTO ${table} AS known (key, state, expires) VALUES (${KEY}, $2, ${expires})
      ON CONFLICT (key) DO UPDATE SET state = excluded.state, expires = excluded.expires
      WHERE known.expires <= clock_timestamp() ${returning}`);
    const reads = new Reads((...args) => this.#orCreate(...args), table);
    const writes = new Writes(runner, table);
    this.#reads = new SharedCalls((keys) => reads.run(keys));
    this.#writes = new SharedCalls((all) => writes.run(all));
    this.#sweep =
      new Statement(`WITH next AS (SELECT key FROM ${table} WHERE key > $1 ORDER BY key LIMIT ${SWEPT}),
      gone AS (DELETE FROM ${table} USING next WHERE ${table}.key = next.key AND expires <= clock_timestamp())
      SELECT CASE WHEN count(*) = ${SWEPT} THEN max(key) END AS key FROM next`);
  }

  async get(key: string): Promise<Uint8Array | null> {
    return (await this.getWithTime(key)).bytes;
  }

  async now(): Promise<number> {
    const { rows } = await this.#runner.run(this.#now, []);
    return Number((Object(rows[0]) as Row).now);
  }

  async getWithTime(key: string): Promise<{ bytes: Uint8Array | null; nowMs: number }> {
    const { state, now } = await this.#reads.add(textOf(key));
    return { bytes: state, nowMs: Number(now) };
  }

  async compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean> {
    if (before !== undefined) {
      return this.compareAndSetWithin(key, before, after, lifeMs, -Infinity, Infinity);
    }
    const values = [textOf(key), after, Math.min(lifeMs, LONGEST_LIFE_MS)];
    try {
      const isNew = hasChanged(await this.#orCreate(this.#insert, values));
      if (isNew) void this.#countNew(textOf(key));
      return isNew;
    } catch (error) {
      if (LOST_RACES.has(codeOf(error))) return false;
      throw error;
    }
  }

  compareAndSetWithin(
    key: string,
    before: Uint8Array,
    after: Uint8Array,
    lifeMs: number,
    fromMs: number,
    untilMs: number,
  ): Promise<boolean> {
    const life = Math.min(lifeMs, LONGEST_LIFE_MS);
    return this.#writes.add([textOf(key), after, life, before, fromMs, untilMs]);
  }

  async #orCreate(statement: Statement, values: readonly unknown[]): Promise<Result> {
    try {
      return await this.#runner.run(statement, values);
    } catch (error) {
      if (codeOf(error) !== UNDEFINED_TABLE) throw error;
    }
    try {
      await this.#runner.run(this.#create, []);
    } catch (error) {
      // another process created it at the same time
      if (!CREATED_TWICE.has(codeOf(error))) throw error;
    }
    return this.#runner.run(statement, values);
  }

  /** Sweeps if it is time. Callers do not wait for it; a later one makes up for a failure. */
  async #countNew(key: string): Promise<void> {
    this.#newKeys += 1;
    const sentMs = performance.now();
    if (this.#sweepUnderWay && sentMs - this.#sweepUnderWay.sentMs < SWEEP_HANGS_MS) return;
    const sweep = { sentMs };
    this.#sweepUnderWay = sweep;
    try {
      while (this.#newKeys >= KEYS_A_SWEEP && this.#sweepUnderWay === sweep) {
        this.#newKeys -= KEYS_A_SWEEP;
        const { rows } = await this.#runner.run(this.#sweep, [this.#swept ?? key]);
        this.#swept = (Object(rows[0]) as { key?: string }).key ?? "";
      }
    } catch {
      // the server is away, or the rights do not suffice
    } finally {
      if (this.#sweepUnderWay === sweep) this.#sweepUnderWay = undefined;
    }
  }
}

/** A text of PostgreSQL cannot contain a NUL. */
function textOf(key: string): string {
  return key.replaceAll("\\", "\\\\").replaceAll("\0", "\\0");
}
