import { LimiterError } from "../ground/errors.ts";

/**
 * Clients send a command again when the connection breaks before its reply (ioredis does so by
 * itself). A batch to a store therefore carries the id of its caller and a number. The state of a limiter
 * contains the last number of each caller, so a batch that arrives twice is run once.
 */
export interface BatchId {
  /** The caller's unique id: 8 ASCII characters. */
  readonly caller: string;
  /** The number of the batch, 1 to 2^32 - 1: higher for each batch of a caller. */
  readonly number: number;
}

/** The batch was run before and its reply is lost: it is unknown which permits were granted. */
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

/** An id, and the highest number that any counter of it has given. */
export interface CallerRecord {
  readonly id: string;
  highest: number;
}

/**
 * Numbers the batches of a caller to one key. Of two batches on one key the second may be sent only after the
 * first has its reply or has failed: a batch that arrives after a later one counts as already run.
 */
export class BatchCounter {
  #caller: CallerRecord;
  #number: number;

  /** @param caller the id, and how many batches were numbered before */
  constructor(caller = newCaller()) {
    this.#caller = caller;
    this.#number = caller.highest;
  }

  next(): BatchId {
    if (this.#number === LAST_NUMBER) {
      this.#caller = newCaller();
      this.#number = 0;
    }
    this.#number += 1;
    this.#caller.highest = Math.max(this.#caller.highest, this.#number);
    return { caller: this.#caller.id, number: this.#number };
  }
}

/**
 * The counters for one key. Calls of different scripts may overtake each other, so each call in flight has a
 * counter of its own.
 */
export class BatchCounters {
  readonly #callers: CallerRecord[];
  #made = 0;
  /** Those that no call uses now. */
  readonly #idle: BatchCounter[] = [];

  /** @param callers the callers of this process, if the counters for other keys use the same ones */
  constructor(callers: CallerRecord[] = []) {
    this.#callers = callers;
  }

  /** Returns a counter that no other call uses until it is released. */
  take(): BatchCounter {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    const caller = this.#callers[this.#made] ?? newCaller();
    this.#callers[this.#made] = caller;
    this.#made += 1;
    return new BatchCounter(caller);
  }

  release(counter: BatchCounter): void {
    this.#idle.push(counter);
  }
}

function newCaller(): CallerRecord {
  return { id: randomId(), highest: 0 };
}

function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(CALLER_LENGTH));
  return Array.from(bytes, (byte) => CHARACTERS[byte % CHARACTERS.length]).join("");
}
