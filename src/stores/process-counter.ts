/**
 * Counts the live processes that use a limiter, through the store of the limiter. A process registers
 * after replies to its ordinary requests, so an idle limiter costs nothing and an unavailable store gets
 * no such requests. The registration of a process expires if it is not renewed.
 */

/** The first pause between two registrations, ms: short, so that new processes soon count each other. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;
/** With many processes the pause grows with their number, so the store gets at most 20 a second. */
const PAUSE_FOR_EACH_MS = 50;
/** The lifetime of a registration, in pauses. */
const PAUSES_ALIVE = 3;

/**
 * Registers this process for `lifetimeMs`.
 *
 * @returns how many processes are registered, this one included
 */
export type Register = (lifetimeMs: number) => Promise<number>;

export class ProcessCounter {
  readonly #register: Register;
  #count = 1;
  /** The count does not fall before this: after a loss of data the other processes must register first. */
  #heldUntilMs = -Infinity;
  #pauseMs = FIRST_PAUSE_MS;
  #nextMs = -Infinity;

  constructor(register: Register) {
    this.#register = register;
  }

  /** The last count of live processes; 1 before the first count. */
  get count(): number {
    return this.#count;
  }

  /** Called when the store has replied to a call of the limiter. */
  used(): void {
    const now = performance.now();
    if (now < this.#nextMs) return;
    this.#nextMs = now + this.#pauseMs * (0.75 + Math.random() / 4);
    const longestMs = Math.max(LONGEST_PAUSE_MS, this.#count * PAUSE_FOR_EACH_MS);
    this.#pauseMs = Math.min(longestMs, this.#pauseMs * 2);
    this.#register(PAUSES_ALIVE * longestMs).then(
      (count) => this.#counted(count, PAUSES_ALIVE * longestMs),
      // the last count is kept
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
