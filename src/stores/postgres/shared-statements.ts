import { atEndOfTurn } from "../../ground/end-of-turn.ts";

/** The most writes in one statement, and the most statements of writes at a time. */
const MOST_TOGETHER = 32;
const MOST_UNDER_WAY = 4;
/** A statement that takes longer does not keep later ones waiting: its connection may be lost. */
const HANGS_MS = 100;

/** A write that waits for the end of the turn. */
interface Waiting<Write> {
  readonly write: Write;
  resolve(isWritten: boolean): void;
  reject(error: unknown): void;
}

/**
 * Lets writes share a statement, because a statement costs far more than a row: those of one turn of the event
 * loop, and those that come while several statements are under way.
 */
export class SharedStatements<Write> {
  /** Runs a statement. Returns for each write whether it has changed its row. */
  readonly #run: (writes: readonly Write[]) => Promise<readonly boolean[]>;
  readonly #waiting: Waiting<Write>[] = [];
  /** When each statement under way was sent. */
  readonly #underWay = new Set<{ readonly sentMs: number }>();

  constructor(run: (writes: readonly Write[]) => Promise<readonly boolean[]>) {
    this.#run = run;
  }

  add(write: Write): Promise<boolean> {
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

  async #send(together: readonly Waiting<Write>[]): Promise<void> {
    const statement = { sentMs: performance.now() };
    this.#underWay.add(statement);
    try {
      const written = await this.#run(together.map(({ write }) => write));
      for (const [i, { resolve }] of together.entries()) resolve(written[i] === true);
    } catch (error) {
      for (const { reject } of together) reject(error);
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
