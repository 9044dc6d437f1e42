/**
 * Clients send a command again when the connection breaks before its reply (ioredis does so by
 * itself). A trip to a store therefore carries who sent it and a number: the state of a limiter
 * remembers the last number of each caller, and a trip that arrives twice is run once.
 */
export interface Trip {
  /** 8 ASCII characters, which no other caller has. */
  readonly caller: string;
  /** Each trip of a caller has a higher one: 1 to 2^32 - 1. */
  readonly number: number;
}

/** The trip was run before, and the reply to that is lost: what was granted is not known. */
export class LostReplyError extends Error {
  override readonly name = "LostReplyError";

  constructor() {
    super(
      "the connection broke before the reply came, and the store ran the request only once: " +
        "what it granted is not known",
    );
  }
}

const LAST_NUMBER = 2 ** 32 - 1;
const CALLER_LENGTH = 8;
const CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/**
 * Numbers trips. Of two trips on one key the second may leave only when the first has been answered
 * or has failed, or where the client keeps the order: a trip that arrives after a later one is taken
 * for one that was run.
 */
export class TripCounter {
  #caller = randomCaller();
  #number: number;

  /** @param numbered how many trips it has numbered before */
  constructor(numbered = 0) {
    this.#number = numbered;
  }

  next(): Trip {
    if (this.#number === LAST_NUMBER) {
      this.#caller = randomCaller();
      this.#number = 0;
    }
    this.#number += 1;
    return { caller: this.#caller, number: this.#number };
  }
}

function randomCaller(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(CALLER_LENGTH));
  return Array.from(bytes, (byte) => CHARACTERS[byte % CHARACTERS.length]).join("");
}
