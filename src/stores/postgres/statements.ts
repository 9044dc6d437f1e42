/** The statements that read and replace states: one for a single key, and one for several keys. */
import { codeOf, hasChanged, KEY, LOST_RACES, type Runner, Statement } from "./postgres-client.ts";

/** The values of a write: key, new state, lifetime, old state, and the range of times, all in ms. */
export type Write = readonly [string, Uint8Array, number, Uint8Array, number, number];

/** A state, and the server's time, ms. */
export interface Row {
  readonly state: Uint8Array | null;
  readonly now: number;
}

/** The server's time, ms. */
export const NOW = "extract(epoch FROM clock_timestamp())::float8 * 1000";

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Bytes and infinite numbers are no JSON. */
function jsonOf(value: string | number | Uint8Array): string {
  if (typeof value !== "object") return String(value);
  let hex = "";
  for (const byte of value) hex += HEX[byte];
  return hex;
}

/** A number of ms of Unix time as a timestamp. */
const timeOf = (ms: string) => `to_timestamp(${ms}::float8 / 1000)`;

/** `KEY` where the key is another expression. */
const keyOf = (asked: string) => KEY.replaceAll("$1", asked);

/** Reads states. @param run runs a statement */
export class Reads {
  readonly #run: Runner["run"];
  readonly #select: Statement;
  readonly #selectAll: Statement;

  constructor(run: Runner["run"], table: string) {
    this.#run = run;
    this.#select = new Statement(`SELECT state, ${NOW} AS now FROM (SELECT) AS one
      LEFT JOIN ${table} ON key = ${KEY} AND expires > clock_timestamp()`);
    // with OFFSET 0 each key is looked up in the index, whatever the planner knows of the table
    this.#selectAll =
      new Statement(`SELECT state, ${NOW} AS now FROM json_array_elements_text($1::text::json) WITH ORDINALITY
      AS asked (key, i) LEFT JOIN LATERAL (SELECT state FROM ${table} AS known
        WHERE known.key = ${keyOf("asked.key")} AND expires > clock_timestamp() OFFSET 0) AS found ON true ORDER BY i`);
  }

  async run(keys: readonly string[]): Promise<readonly Row[]> {
    const isOne = keys.length === 1;
    const statement = isOne ? this.#select : this.#selectAll;
    const { rows } = await this.#run(statement, isOne ? keys : [JSON.stringify(keys)]);
    return keys.map((_, i) => Object(rows[i]) as Row);
  }
}

/** Replaces states that are known; a write answers whether it has changed its row. */
export class Writes {
  readonly #runner: Runner;
  readonly #update: Statement;
  readonly #updateAll: Statement;

  constructor(runner: Runner, table: string) {
    this.#runner = runner;
    this.#update =
      new Statement(`UPDATE ${table} SET state = $2, expires = clock_timestamp() + $3::float8 * interval '1 millisecond'
      WHERE key = ${KEY} AND state = $4
        AND clock_timestamp() BETWEEN ${timeOf("$5")} AND ${timeOf("$6")} ${runner.returning}`);
    // a row that another process has locked is about to change: to wait for it could cause a deadlock
    this.#updateAll = new Statement(`UPDATE ${table} AS known
      SET state = decode(asked->>2, 'hex'), expires = clock_timestamp() + (asked->>3)::float8 * interval '1 millisecond'
      FROM json_array_elements($1::text::json) AS asked CROSS JOIN LATERAL (
        SELECT ctid AS at FROM ${table} WHERE key = ${keyOf("(asked->>1)")}
          AND state = decode(asked->>4, 'hex')
          AND clock_timestamp() BETWEEN ${timeOf("(asked->>5)")} AND ${timeOf("(asked->>6)")}
        FOR UPDATE SKIP LOCKED) AS held
      WHERE known.ctid = held.at RETURNING (asked->>0)::int AS i`);
  }

  async run(writes: readonly Write[]): Promise<readonly boolean[]> {
    try {
      const [only] = writes;
      if (only !== undefined && writes.length === 1) {
        return [hasChanged(await this.#runner.run(this.#update, only))];
      }
      const listed = writes.map((write, i) => [i, ...write.map(jsonOf)]);
      const { rows } = await this.#runner.run(this.#updateAll, [JSON.stringify(listed)]);
      const written = new Set(rows.map((row) => (row as { i: number }).i));
      return writes.map((_, i) => written.has(i));
    } catch (error) {
      if (LOST_RACES.has(codeOf(error))) return writes.map(() => false);
      throw error;
    }
  }
}
