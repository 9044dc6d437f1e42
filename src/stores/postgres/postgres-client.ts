/** Statements on the clients of PostgreSQL that are accepted, and the errors of the server. */
import { checkFunction } from "../../ground/check.ts";

/** The result of a query: rows, or an object with them. */
type Rows = readonly unknown[] | { readonly rows: readonly unknown[] };

/**
 * A client of PostgreSQL: a `Pool` or `Client` of `pg`, a `PGlite`, or the function of `postgres` (postgres.js).
 * Any object with one of these methods will do.
 */
export type PostgresClient =
  | { query(text: string, values: unknown[]): PromiseLike<Rows> }
  | { unsafe(text: string, values: never[], options: { prepare: boolean }): PromiseLike<Rows> };

/** The client has not returned what `PostgresClient` promises. */
class ClientError extends TypeError {}

/** A statement with the name under which a server keeps it: different for each text, as the server demands. */
export class Statement {
  readonly text: string;
  readonly name: string;

  constructor(text: string) {
    this.text = text;
    let hash = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    this.name = `smooth_limiter_${(hash >>> 0).toString(36)}`;
  }
}

// A key can be longer than an index allows. So a long key is stored as its start, for people who read the table,
// and a hash. That has 501 characters, so no short key can be equal to it.
export const KEY = `CASE WHEN length($1::text) > 500
  THEN left($1, 437) || encode(sha256(convert_to($1, 'UTF8')), 'hex') ELSE $1 END`;

export interface Result {
  readonly rows: readonly unknown[];
  /** How many rows a write has changed; absent: as many as it returns. */
  readonly rowCount?: number;
}

/** Returns whether a write has changed its row. */
export function hasChanged({ rows, rowCount = rows.length }: Result): boolean {
  return rowCount > 0;
}

export interface Runner {
  /** What a write returns, so that the changed rows can be counted. To return rows takes a sixth of its time. */
  readonly returning: "" | "RETURNING 1";
  run(statement: Statement, values: readonly unknown[]): Promise<Result>;
}

/**
 * Returns an object that runs statements. With `prepare`, clients that can do so let the server parse and plan a
 * statement once for each connection; that takes longer than running it.
 */
export function runnerOf(client: PostgresClient, prepare: boolean): Runner {
  const { query, unsafe } = Object(client) as { query?: unknown; unsafe?: unknown };
  // a function of postgres.js has both; its `query` is something else
  const method = typeof unsafe === "function" ? unsafe : query;
  checkFunction("client.query (of pg and PGlite) or client.unsafe (of postgres.js)", method);
  const run = method as (...args: unknown[]) => PromiseLike<Rows>;
  const isPg = "totalCount" in client || "escapeIdentifier" in client;
  const argsOf = ({ name, text }: Statement, values: readonly unknown[]): unknown[] => {
    if (method === unsafe) return [text, values, { prepare }];
    return isPg && prepare ? [{ name, text, values }] : [text, values];
  };
  return {
    returning: isPg ? "" : "RETURNING 1",
    async run(statement, values) {
      const result: unknown = await run.apply(client, argsOf(statement, values));
      if (Array.isArray(result)) return { rows: result };
      if (Array.isArray((Object(result) as Partial<Result>).rows)) return result as Result;
      throw new ClientError(
        "the client's query must return its rows, as those of pg, postgres.js and PGlite do",
      );
    },
  };
}

/** The codes (SQLSTATE) of errors that are expected. */
export const UNDEFINED_TABLE = "42P01";
/** Under stricter isolation a conflict is an error. Without the table there is nothing to replace. */
export const LOST_RACES: ReadonlySet<string> = new Set(["40001", "40P01", UNDEFINED_TABLE]);
export const CREATED_TWICE: ReadonlySet<string> = new Set(["23505", "42P07", "42710"]);
/** Classes of errors that a retry does not fix: bad data, rights, names, syntax, limits of the server. */
const PERMANENT: ReadonlySet<string> = new Set(["0A", "22", "23", "28", "3D", "3F", "42", "54"]);

export function isPermanent(error: unknown): boolean {
  return error instanceof ClientError || PERMANENT.has(codeOf(error).slice(0, 2));
}

/** The SQLSTATE of an error of the server: five characters. Others have codes such as "ECONNREFUSED". */
export function codeOf(error: unknown): string {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "string" && code.length === 5 ? code : "";
}
