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
 *
 * The numbers are consecutive where nothing is lost, so that a state can show that it went back in time:
 * after a failover to a replica that lags, or from a restored backup, it remembers an earlier batch than the
 * last one that was answered.
 */
export class BatchCounter {
  #caller: CallerRecord;
  #number: number;
  /** The last batch that has changed the state, as far as replies have arrived. */
  #confirmed = 0;

  /** @param caller the id, and how many batches were numbered before */
  constructor(caller = newCaller()) {
    this.#caller = caller;
    this.#number = caller.highest;
  }

  next(): BatchId {
    if (this.#number === LAST_NUMBER) {
      this.#caller = newCaller();
      this.#number = 0;
      this.#confirmed = 0;
    }
    this.#number += 1;
    this.#caller.highest = Math.max(this.#caller.highest, this.#number);
    return { caller: this.#caller.id, number: this.#number };
  }

  /**
   * Processes the reply to a batch.
   *
   * @param remembered as in the reply of the store
   * @returns by how many numbers the state has gone back in time; 0: it has not
   */
  replied({ caller, number }: BatchId, hasChanged: boolean, remembered = Infinity): number {
    if (caller !== this.#caller.id) return 0;
    const lost = Math.max(0, this.#confirmed - remembered);
    if (hasChanged) this.#confirmed = number;
    else if (lost > 0) this.#confirmed = remembered;
    // the state does not contain this number, and the client has the reply: it will not send it again
    if (!hasChanged && number === this.#number) this.#number -= 1;
    return lost;
  }

  /** Forgets which batches have changed the state. */
  forget(): void {
    this.#confirmed = 0;
  }
}

/**
 * The counters for one key. Calls of different scripts may overtake each other, so each call in flight has a
 * counter of its own.
 */
export class BatchCounters {
  readonly #onRollback: (lost: number) => void;
  readonly #callers: CallerRecord[];
  readonly #all: BatchCounter[] = [];
  /** Those that no call uses now. */
  readonly #idle: BatchCounter[] = [];
  /** The counter of the latest change. */
  #latest: BatchCounter | undefined;

  /**
   * @param onRollback called once when the state turns out to have gone back in time
   * @param callers the callers of this process, if the counters for other keys use the same ones
   */
  constructor(onRollback: (lost: number) => void, callers: CallerRecord[] = []) {
    this.#onRollback = onRollback;
    this.#callers = callers;
  }

  /** Returns a counter that no other call uses until it is released. */
  take(): BatchCounter {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    const made = this.#all.length;
    const caller = this.#callers[made] ?? newCaller();
    this.#callers[made] = caller;
    const counter = new BatchCounter(caller);
    this.#all.push(counter);
    return counter;
  }

  /** Processes the reply to a batch, as `replied` of its counter. */
  replied(counter: BatchCounter, batchId: BatchId, hasChanged: boolean, remembered?: number): void {
    if (hasChanged) this.#latest = counter;
    const lost = counter.replied(batchId, hasChanged, remembered);
    if (lost === 0) return;
    // changes of the other counters are missing for the same reason
    for (const other of this.#all) if (other !== counter) other.forget();
    this.#onRollback(lost);
  }

  release(counter: BatchCounter): void {
    // a state that went back in time lacks the latest changes first: their counter is used next
    if (counter === this.#latest) this.#idle.push(counter);
    else this.#idle.unshift(counter);
  }
}

function newCaller(): CallerRecord {
  return { id: randomId(), highest: 0 };
}

function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(CALLER_LENGTH));
  return Array.from(bytes, (byte) => CHARACTERS[byte % CHARACTERS.length]).join("");
}
