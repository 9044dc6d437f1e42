/** How a store stood when it last told, and what this process has been given since. */
import { type Amount, combine } from "../../permits.ts";
import type { Standing } from "../../stores/stand-in.ts";
import { type Call, Message } from "./call.ts";

/** A store that is used is asked how it stands that often, ms. */
const EVERY_MS = 50;

export class LastKnown {
  readonly #now: () => number;
  readonly #ask: (call: Call) => void;
  readonly #nothing: Amount;
  #owed: readonly number[] | undefined;
  #toldAt = 0;
  #heldUntil = 0;
  #since: Amount;
  #nextMs = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param now the limiter's clock, microseconds
   * @param ask the store, by a trip of its own
   */
  constructor(shape: Amount, now: () => number, ask: (call: Call) => void) {
    this.#now = now;
    this.#ask = ask;
    this.#nothing = combine(shape, shape, () => 0);
    this.#since = this.#nothing;
  }

  /** Asks the store how it stands, if it has not told a moment ago. */
  inquiry(): Call | undefined {
    return performance.now() < this.#nextMs ? undefined : this.#inquire();
  }

  /** The store has given something to somebody here. */
  took(amount: Amount): void {
    this.#since = combine(this.#since, amount, (sum, permits = 0) => sum + permits);
    // what comes last must be known too
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#ask(this.#inquire()), EVERY_MS);
    this.#timer.unref?.();
  }

  /** Whatever was told is of no use: ask again. */
  outdated(): void {
    this.#nextMs = -Infinity;
  }

  /** No timer is left. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Undefined where it has never told. */
  get standing(): Standing | undefined {
    if (this.#owed === undefined) return undefined;
    const now = this.#now();
    const ago = Math.max(0, now - this.#toldAt);
    const held = Math.max(0, this.#heldUntil - now);
    return { owed: this.#owed, ago, since: this.#since, held };
  }

  #inquire(): Call {
    this.close();
    this.#nextMs = performance.now() + EVERY_MS;
    const message = new Message(
      () => ({ verb: "owed" }),
      () => {},
      true,
      undefined,
      ({ owed, wait }) => {
        this.#toldAt = this.#now();
        this.#owed = owed;
        this.#heldUntil = this.#toldAt + wait;
        this.#since = this.#nothing;
        this.close();
      },
    );
    message.answered.catch(() => {});
    return message;
  }
}
