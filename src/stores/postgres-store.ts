/**
 * A store in a table of PostgreSQL: `casStore` over two statements, with the server's clock.
 *
 * Both statements address one row by its primary key, so calls for different keys do not wait for each
 * other. A write names the state that was read; if another process has written in between, it changes no
 * row, and `casStore` runs the requests again on the newer state.
 *
 * The table has no index besides its primary key: an index on `expires` would have to be written with every
 * state. Expired rows are removed as new ones come: each 50th new key checks the next 100 rows in
 * the order of the keys. So the table holds at most about twice as many rows as are in use.
 */
import {
  checkBoolean,
  checkFunction,
  checkOptions,
  checkText,
  failCheck,
} from "../ground/check.ts";
import { casStore } from "./cas-store.ts";
import type { Store } from "./store.ts";

/** How many rows a sweep checks, and after how many new keys the next one comes. */
const SWEPT = 100;
const KEYS_A_SWEEP = SWEPT / 2;
/** A state with no end is kept for so long, ms: 31 000 years; timestamps end later. */
const LONGEST_LIFE_MS = 1e15;

/** The result of a query: rows, or an object with them. */
type Rows = readonly unknown[] | { readonly rows: readonly unknown[] };

/**
 * A client of PostgreSQL: a `Pool` or `Client` of `pg`, a `PGlite`, or the function of `postgres` (postgres.js).
 * Any object with one of these methods will do.
 */
export type PostgresClient =
  | { query(text: string, values: unknown[]): PromiseLike<Rows> }
  | { unsafe(text: string, values: never[], options: { prepare: boolean }): PromiseLike<Rows> };

/** The options of `postgresStore`. */
export interface PostgresStoreOptions {
  /**
   * The table of the states, such as `limits` or `app.limits`; it is created when it is first used and does
   * not exist. Default `smooth_limiter`.
   */
  readonly table?: string | undefined;
  /**
   * Whether the server may keep prepared statements for each connection, with `pg` and `postgres`. Set it to
   * `false` behind a pooler that does not support them, such as PgBouncer before 1.21. Default `true`.
   */
  readonly prepare?: boolean | undefined;
}

/** The client has not returned what `PostgresClient` promises. */
class ClientError extends TypeError {}

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
  const backend = new PostgresBackend(runnerOf(client, prepare), table);
  return casStore({
    get: (key) => backend.get(key),
    compareAndSet: (...args) => backend.compareAndSet(...args),
    now: () => backend.now(),
    getWithTime: (key) => backend.getWithTime(key),
    isPermanent,
  });
}

type RunQuery = (text: string, values: unknown[]) => Promise<readonly unknown[]>;

/**
 * Returns a function that runs a statement. With `prepare`, clients that can do so let the server parse and plan it
 * once for each connection; that takes longer than running it.
 */
function runnerOf(client: PostgresClient, prepare: boolean): RunQuery {
  const { query, unsafe } = Object(client) as { query?: unknown; unsafe?: unknown };
  // a function of postgres.js has both; its `query` is something else
  const method = typeof unsafe === "function" ? unsafe : query;
  checkFunction("client.query (of pg and PGlite) or client.unsafe (of postgres.js)", method);
  const run = method as (...args: unknown[]) => PromiseLike<Rows>;
  // pools and clients of pg
  const isNamed = prepare && ("totalCount" in client || "escapeIdentifier" in client);
  const argsOf = (text: string, values: unknown[]): unknown[] => {
    if (method === unsafe) return [text, values, { prepare }];
    return isNamed ? [{ name: nameOf(text), text, values }] : [text, values];
  };
  return async (text, values) => {
    const result: unknown = await run.apply(client, argsOf(text, values));
    const rows = Array.isArray(result) ? result : (Object(result) as { rows?: unknown }).rows;
    if (Array.isArray(rows)) return rows;
    throw new ClientError(
      "the client's query must return its rows, as those of pg, postgres.js and PGlite do",
    );
  };
}

/** The name of a prepared statement: different for each text (FNV-1a), as the server demands. */
function nameOf(text: string): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return `smooth_limiter_${(hash >>> 0).toString(36)}`;
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

// A key can be longer than an index allows. So a long key is stored as its start, for people who read the table,
// and a hash. That has 501 characters, so no short key can be equal to it.
const KEY = `CASE WHEN length($1::text) > 500
  THEN left($1, 437) || encode(sha256(convert_to($1, 'UTF8')), 'hex') ELSE $1 END`;

/** The server's time, ms. */
const NOW = "extract(epoch FROM clock_timestamp())::float8 * 1000";

interface Row {
  readonly state: Uint8Array | null;
  readonly now: number;
}

class PostgresBackend {
  readonly #run: RunQuery;
  readonly #table: string;
  readonly #select: string;
  readonly #insert: string;
  readonly #update: string;
  readonly #sweep: string;
  /** New keys since the last sweep, and the key that it has checked last. */
  #newKeys = 0;
  #swept: string | undefined;
  #isSweeping = false;

  constructor(run: RunQuery, table: string) {
    const expires = "clock_timestamp() + $3::float8 * interval '1 millisecond'";
    this.#run = run;
    this.#table = table;
    this.#select = `SELECT state, ${NOW} AS now FROM (SELECT) AS one
      LEFT JOIN ${table} ON key = ${KEY} AND expires > clock_timestamp()`;
    this.#insert = `INSERT INTO ${table} AS known (key, state, expires) VALUES (${KEY}, $2, ${expires})
      ON CONFLICT (key) DO UPDATE SET state = excluded.state, expires = excluded.expires
      WHERE known.expires <= clock_timestamp() RETURNING 1`;
    this.#update = `UPDATE ${table} SET state = $2, expires = ${expires}
      WHERE key = ${KEY} AND state = $4 RETURNING 1`;
    this.#sweep = `WITH next AS (SELECT key FROM ${table} WHERE key > $1 ORDER BY key LIMIT ${SWEPT}),
      gone AS (DELETE FROM ${table} USING next WHERE ${table}.key = next.key AND expires <= clock_timestamp())
      SELECT CASE WHEN count(*) = ${SWEPT} THEN max(key) END AS key FROM next`;
  }

  async get(key: string): Promise<Uint8Array | null> {
    return (await this.getWithTime(key)).bytes;
  }

  async now(): Promise<number> {
    const [row] = (await this.#run(`SELECT ${NOW} AS now`, [])) as Partial<Row>[];
    return Number(row?.now);
  }

  async getWithTime(key: string): Promise<{ bytes: Uint8Array | null; nowMs: number }> {
    const rows = await this.#orCreate(() => this.#run(this.#select, [textOf(key)]));
    const { state, now } = Object(rows[0]) as Row;
    return { bytes: state, nowMs: Number(now) };
  }

  async compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean> {
    const values = [textOf(key), after, Math.min(lifeMs, LONGEST_LIFE_MS)];
    try {
      if (before !== undefined) {
        return (await this.#run(this.#update, [...values, before])).length > 0;
      }
      const rows = await this.#orCreate(() => this.#run(this.#insert, values));
      if (rows.length > 0) void this.#countNew(textOf(key));
      return rows.length > 0;
    } catch (error) {
      // under stricter isolation a conflict is an error
      if (LOST_RACES.has(codeOf(error))) return false;
      throw error;
    }
  }

  async #orCreate(run: () => Promise<readonly unknown[]>): Promise<readonly unknown[]> {
    try {
      return await run();
    } catch (error) {
      if (codeOf(error) !== UNDEFINED_TABLE) throw error;
      await this.#create();
      return run();
    }
  }

  /**
   * Creates the table. It is unlogged: a write need not wait for the disk. After a crash of the server it is
   * empty, and the limits begin anew.
   */
  async #create(): Promise<void> {
    const text = `CREATE UNLOGGED TABLE IF NOT EXISTS ${this.#table}
      (key text PRIMARY KEY, state bytea NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 50)`;
    try {
      await this.#run(text, []);
    } catch (error) {
      // another process created it at the same time
      if (!CREATED_TWICE.has(codeOf(error))) throw error;
    }
  }

  /** Sweeps if it is time. Callers do not wait for it; a later one makes up for a failure. */
  async #countNew(key: string): Promise<void> {
    this.#newKeys += 1;
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    try {
      while (this.#newKeys >= KEYS_A_SWEEP) {
        this.#newKeys -= KEYS_A_SWEEP;
        const [row] = await this.#run(this.#sweep, [this.#swept ?? key]);
        this.#swept = (row as { key?: string } | undefined)?.key ?? "";
      }
    } catch {
      // the server is away, or the rights do not suffice
    } finally {
      this.#isSweeping = false;
    }
  }
}

const UNDEFINED_TABLE = "42P01";
const LOST_RACES: ReadonlySet<string> = new Set(["40001", "40P01"]);
const CREATED_TWICE: ReadonlySet<string> = new Set(["23505", "42P07", "42710"]);
/** Classes of errors that a retry does not fix: bad data, rights, names, syntax, limits of the server. */
const PERMANENT: ReadonlySet<string> = new Set(["0A", "22", "23", "28", "3D", "3F", "42", "54"]);

function isPermanent(error: unknown): boolean {
  return error instanceof ClientError || PERMANENT.has(codeOf(error).slice(0, 2));
}

/** The SQLSTATE of an error of the server: five characters. Others have codes such as "ECONNREFUSED". */
function codeOf(error: unknown): string {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "string" && code.length === 5 ? code : "";
}

/** A text of PostgreSQL cannot contain a NUL. */
function textOf(key: string): string {
  return key.replaceAll("\\", "\\\\").replaceAll("\0", "\\0");
}
