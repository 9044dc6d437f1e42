/**
 * Counts the live processes that use a limiter, through the store of the limiter. A process registers
 * with the replies to its ordinary trips, so an idle limiter costs nothing and a store that is away
 * is not asked. Whoever does not register again falls out by itself.
 */

/** The first pauses between two registrations, ms: processes that start together soon see each other. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;
/** With many processes the pause grows with their number, so that the store runs 20 a second at most. */
const PAUSE_FOR_EACH_MS = 50;
/** A registration outlives so many pauses. */
const PAUSES_ALIVE = 3;

/**
 * Registers this process for so many ms.
 *
 * @returns how many processes are registered, this one included
 */
export type Register = (lifetimeMs: number) => Promise<number>;

export class ProcessCounter {
  readonly #register: Register;
  #count = 1;
  /** Until then the count does not fall: a store that has lost its data is told of the others first. */
  #heldUntilMs = -Infinity;
  #pauseMs = FIRST_PAUSE_MS;
  #nextMs = -Infinity;

  constructor(register: Register) {
    this.#register = register;
  }

  /** How many live processes there are, as last counted; 1 before that. */
  get count(): number {
    return this.#count;
  }

  /** The store has answered a call of the limiter. */
  used(): void {
    const now = performance.now();
    if (now < this.#nextMs) return;
    this.#nextMs = now + this.#pauseMs * (0.75 + Math.random() / 4);
    const longestMs = Math.max(LONGEST_PAUSE_MS, this.#count * PAUSE_FOR_EACH_MS);
    this.#pauseMs = Math.min(longestMs, this.#pauseMs * 2);
    this.#register(PAUSES_ALIVE * longestMs).then(
      (count) => this.#counted(count, PAUSES_ALIVE * longestMs),
      // the last number stays
      () => {},
    );
  }

  #counted(count: number, lifetimeMs: number): void {
    const now = performance.now();
    if (!(count >= 1) || (count < this.#count && now < this.#heldUntilMs)) return;
    this.#count = count;
    this.#heldUntilMs = now + lifetimeMs;
  }
}
