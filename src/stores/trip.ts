import { LimiterError } from "../ground/errors.ts";

/**
 * Clients send a command again when the connection breaks before its reply (ioredis does so by
 * itself). A trip to a store therefore carries the id of its caller and a number. The state of a limiter
 * contains the last number of each caller, so a trip that arrives twice is run once.
 */
export interface Trip {
  /** The caller's unique id: 8 ASCII characters. */
  readonly caller: string;
  /** The number of the trip, 1 to 2^32 - 1: higher for each trip of a caller. */
  readonly number: number;
}

/** The trip was run before and its reply is lost: it is unknown which permits were granted. */
export class LostReplyError extends LimiterError {
  static readonly code = "LOST_REPLY";

  constructor() {
    super(
      LostReplyError.code,
      "the connection broke before the reply came, and the store ran the request only once: " +
        "what it granted is not known",
      {},
    );
  }
}

const LAST_NUMBER = 2 ** 32 - 1;
const CALLER_LENGTH = 8;
const CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/**
 * Numbers the trips of a caller. Of two trips on one key the second may be sent only after the first has
 * its reply or has failed, or if the client keeps the order: a trip that arrives after a later one counts
 * as already run.
 */
export class TripCounter {
  #caller = randomCaller();
  #number: number;

  /** @param numbered how many trips were numbered before */
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
