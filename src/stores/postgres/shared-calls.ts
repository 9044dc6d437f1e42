import { atEndOfTick } from "../../ground/end-of-tick.ts";

/** The most calls in one statement, and the most statements of a kind at a time: few, so that each is worth its cost. */
const MOST_TOGETHER = 64;
const MOST_UNDER_WAY = 1;
/** A statement that takes longer does not keep later ones waiting: its connection may be lost. */
const HANGS_MS = 100;

/** A call that waits for the end of the tick. */
interface Waiting<Call, Answer> {
  readonly call: Call;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

/**
 * Calls of one kind share a statement, because a statement costs far more than a row: those of one tick of the
 * event loop, and those that come while several statements are under way.
 */
export class SharedCalls<Call, Answer> {
  readonly #run: (calls: readonly Call[]) => Promise<readonly Answer[]>;
  readonly #waiting: Waiting<Call, Answer>[] = [];
  /** When each statement under way was sent. */
  readonly #underWay = new Set<{ readonly sentMs: number }>();

  /** @param run runs one statement for all of the calls; resolves to an answer to each */
  constructor(run: (calls: readonly Call[]) => Promise<readonly Answer[]>) {
    this.#run = run;
  }

  add(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject });
      atEndOfTick(this.#flush);
    });
  }

  readonly #flush = (): void => {
    while (this.#waiting.length > 0 && this.#hasRoom) {
      void this.#send(this.#waiting.splice(0, MOST_TOGETHER));
    }
  };

  async #send(together: readonly Waiting<Call, Answer>[]): Promise<void> {
    const statement = { sentMs: performance.now() };
    this.#underWay.add(statement);
    try {
      const answers = await this.#run(together.map(({ call }) => call));
      for (const [i, { resolve }] of together.entries()) resolve(answers[i] as Answer);
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
