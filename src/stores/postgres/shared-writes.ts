import { atEndOfTurn } from "../../ground/end-of-turn.ts";
import { codeOf, hasChanged, KEY, LOST_RACES, type Runner, Statement } from "./postgres-client.ts";

/** The most writes in one statement, and the most statements of writes at a time. */
const MOST_TOGETHER = 32;
const MOST_UNDER_WAY = 4;
/** A statement that takes longer does not keep later ones waiting: its connection may be lost. */
const HANGS_MS = 100;

/** The values of a write: key, new state, lifetime, old state, and the range of times, all in ms. */
type Write = readonly [string, Uint8Array, number, Uint8Array, number, number];

/** A write that waits for the end of the turn. */
interface Waiting {
  readonly write: Write;
  resolve(isWritten: boolean): void;
  reject(error: unknown): void;
}

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

/**
 * Replaces states that are known. Writes share a statement, because a statement costs far more than a row: those
 * of one turn of the event loop, and those that come while several statements are under way.
 */
export class SharedWrites {
  readonly #runner: Runner;
  readonly #update: Statement;
  readonly #updateAll: Statement;
  readonly #waiting: Waiting[] = [];
  /** When each statement under way was sent. */
  readonly #underWay = new Set<{ readonly sentMs: number }>();

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
        SELECT ctid AS at FROM ${table} WHERE key = ${KEY.replaceAll("$1", "(asked->>1)")}
          AND state = decode(asked->>4, 'hex')
          AND clock_timestamp() BETWEEN ${timeOf("(asked->>5)")} AND ${timeOf("(asked->>6)")}
        FOR UPDATE SKIP LOCKED) AS held
      WHERE known.ctid = held.at RETURNING (asked->>0)::int AS i`);
  }

  /** Returns whether the write has changed its row. */
  add(...write: Write): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ write, resolve, reject });
      atEndOfTurn(this.#flush);
    });
  }

  readonly #flush = (): void => {
    while (this.#waiting.length > 0 && this.#hasRoom) {
      void this.#send(this.#waiting.splice(0, MOST_TOGETHER));
    }
  };

  async #send(together: readonly Waiting[]): Promise<void> {
    const statement = { sentMs: performance.now() };
    const [only] = together;
    this.#underWay.add(statement);
    try {
      if (only !== undefined && together.length === 1) {
        only.resolve(hasChanged(await this.#runner.run(this.#update, only.write)));
      } else {
        const listed = together.map(({ write }, i) => [i, ...write.map(jsonOf)]);
        const { rows } = await this.#runner.run(this.#updateAll, [JSON.stringify(listed)]);
        const written = new Set(rows.map((row) => (row as { i: number }).i));
        for (const [i, { resolve }] of together.entries()) resolve(written.has(i));
      }
    } catch (error) {
      for (const { resolve, reject } of together) {
        if (LOST_RACES.has(codeOf(error))) resolve(false);
        else reject(error);
      }
    }
    this.#underWay.delete(statement);
    this.#flush();
  }

  get #hasRoom(): boolean {
    if (this.#underWay.size < MOST_UNDER_WAY) return true;
    const now = performance.now();
    const quick = [...this.#underWay].filter(({ sentMs }) => now - sentMs < HANGS_MS);
    return quick.length < MOST_UNDER_WAY;
  }
}
