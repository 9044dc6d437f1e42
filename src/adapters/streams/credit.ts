/**
 * What one stream has bought of its limiter and not yet passed on.
 *
 * A limiter asked for each chunk would cost too much where chunks are small, and one that is asked
 * for a big chunk lets it go in one lump. So a stream buys permits by the piece, and what passes is
 * taken from that credit, which is a subtraction. A piece is what the limiter lets through in
 * `pieceMs`, divided by the number of streams that share it here, so that a turn of all of them takes
 * about `pieceMs`, but at least a millisecond's worth, so that a thousand streams do not buy byte by
 * byte; and never more than the limiter can hold. A look (`peek`) before each purchase shows the pace, so
 * another rate is followed from the next piece on.
 *
 *   chunk of n bytes        n <= piece: passes whole, when the credit covers it
 *                           n > piece: passes in pieces, each when the credit covers it
 *   the credit is short     a piece can be had now: buy it
 *                           less can, but enough for what wants to pass: buy what there is
 *                           else: wait for a piece
 *
 * Fair. Everybody who waits waits for the same amount, in the limiter's one line: who has big chunks
 * gets no more than who has small ones. (Streams of other processes, and of another limiter object
 * for the same key, are not counted, but stand in the same line.)
 *
 * Not delayed by being joined. Nobody waits for a piece where what is there suffices. Under the smooth
 * limiters a piece is waited for no longer than a byte, for the next one pays. Where the others make
 * one wait anyway, it is for a piece, which takes `pieceMs` of the limiter's time at the most.
 *
 * Bound. All that passes was bought before, so in any interval a stream passes at most what the
 * limiter grants it in that interval and one piece (of what is not cut: one chunk, if that is more),
 * bought before and not yet used. What is left when the stream ends goes back to the limiter.
 *
 * Worked example, 8 MiB a second, pieces of 50 ms: 419 430 bytes. Chunks of 65 536: at 0 ms six pass
 * whole and 26 214 bytes are left, which the seventh will add to. It waits: at 50 ms the next piece
 * is there and it passes, and so on; 64 MiB in 161 purchases.
 */
import { PermitsExceedCapacityError } from "../../errors.ts";
import type { Decision, Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import type { CheckedOptions } from "./options.ts";

/** How many streams of this process share a limiter. */
const sharers = new WeakMap<Limiter, number>();

function share(limiter: Limiter, change: 1 | -1): void {
  sharers.set(limiter, (sharers.get(limiter) ?? 0) + change);
}

/** However many share it, a turn is worth no less, ms. */
const SHORTEST_TURN_MS = 1;

export class Credit {
  readonly #limiter: Limiter;
  readonly #pieceMs: number;
  readonly #policy: string | undefined;
  /** Bytes may be cut; of what is weighed, nothing is known but its weight. */
  readonly #cuts: boolean;
  readonly #ended = new AbortController();
  #free: number;
  #bought = 0;
  /** As large as a piece may be: unknown until the limiter has been asked. */
  #piece = Infinity;
  /** The most that the limiter can ever let through at once, where it said so at this limit. */
  #largest = Infinity;
  #limit: number | undefined;

  constructor(limiter: Limiter, options: CheckedOptions<never>) {
    this.#limiter = limiter;
    this.#pieceMs = options.pieceMs;
    this.#policy = options.policy;
    this.#cuts = options.weigh === undefined;
    this.#free = this.#whole(options.freeBytes);
    share(limiter, 1);
  }

  /** Aborted when it is closed. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * How much of a chunk of that size may pass now: a piece of it, or all. `undefined`: it has to be
   * bought first.
   */
  take(size: number): number | undefined {
    if (this.#free > 0) return this.#takeFree(size);
    const due = this.#due(size);
    if (due > this.#bought) return undefined;
    this.#bought -= due;
    return due;
  }

  #takeFree(size: number): number {
    const passes = this.#cuts ? Math.min(size, this.#free) : size;
    this.#free = Math.max(0, this.#free - passes);
    return passes;
  }

  #due(size: number): number {
    return this.#cuts ? Math.min(size, this.#piece) : size;
  }

  /**
   * Waits until `take(size)` has something to let pass.
   *
   * @throws (as a rejection) what the limiter throws, or the reason of its end
   */
  async buy(size: number): Promise<void> {
    if (this.#limit === undefined) {
      this.#learn(await this.#limiter.peek(this.#permits(Math.min(1, size))));
    }
    while (this.#short(size) > 0) {
      this.ended.throwIfAborted();
      try {
        await this.#buyPiece(size);
      } catch (error) {
        this.#cap(error, size);
      }
    }
    this.ended.throwIfAborted();
  }

  /**
   * Looks first and takes then: a stream that waits for its turn has not been refused, so it must not
   * count as such. If others take meanwhile what the look has seen, this waits behind them.
   */
  async #buyPiece(size: number): Promise<void> {
    const look = await this.#limiter.peek(this.#permits(this.#amount(size)));
    this.#learn(look);
    // the look may have shown another pace, at which less is due
    const short = this.#short(size);
    if (short <= 0) return;
    this.ended.throwIfAborted();
    const piece = this.#amount(size);
    const there = Math.min(piece, this.#whole(look.remaining));
    const amount = !look.allowed && there >= short ? there : piece;
    await this.#limiter.acquire(this.#permits(amount), { signal: this.ended });
    this.#gain(amount);
  }

  /** What `take` lacks. */
  #short(size: number): number {
    return this.#due(size) - this.#bought;
  }

  #amount(size: number): number {
    return Math.max(this.#short(size), this.#piece < Infinity ? this.#piece : 0);
  }

  #permits(amount: number): Permits {
    return this.#policy === undefined ? amount : { [this.#policy]: amount };
  }

  /** An answer that comes after the end was not used. */
  #gain(permits: number): void {
    this.#bought += permits;
    if (this.ended.aborted) this.#giveBack();
  }

  /** The pace of the slowest policy, and what a piece is at that pace. */
  #learn({ policies }: Decision): void {
    const { [String(this.#policy)]: only } = policies;
    const asked = only === undefined ? Object.values(policies) : [only];
    const limit = Math.min(...asked.map((policy) => policy.limit));
    if (limit !== this.#limit) this.#largest = Infinity;
    this.#limit = limit;
    const perMs = Math.min(...asked.map((policy) => policy.limit / policy.windowMs));
    const turnMs = this.#pieceMs / (sharers.get(this.#limiter) ?? 1);
    const worth = perMs * Math.max(turnMs, Math.min(this.#pieceMs, SHORTEST_TURN_MS));
    // no pace at all (Infinity, or 0 / 0): what wants to pass is bought, and no more
    this.#piece = Number.isNaN(worth) ? Infinity : this.#sized(Math.min(worth, this.#largest));
  }

  #sized(piece: number): number {
    return this.#cuts ? Math.max(1, this.#whole(piece)) : piece;
  }

  #whole(permits: number): number {
    return this.#cuts ? Math.floor(permits) : permits;
  }

  /** More than the limiter can ever let through: smaller pieces are tried, if there are any. */
  #cap(error: unknown, size: number): void {
    if (!(error instanceof PermitsExceedCapacityError)) throw error;
    const { capacity } = error.facts;
    const enough = this.#cuts ? capacity >= 1 : capacity >= size;
    if (!enough || capacity >= this.#largest) throw error;
    this.#largest = capacity;
    this.#piece = this.#sized(Math.min(this.#piece, capacity));
  }

  /**
   * Nothing passes any more: what was bought and not used goes back, who waits gives up.
   *
   * @param reason what `buy` rejects with
   */
  close(reason?: unknown): void {
    if (this.ended.aborted) return;
    share(this.#limiter, -1);
    this.#ended.abort(reason);
    this.#giveBack();
  }

  #giveBack(): void {
    const unused = this.#bought;
    this.#bought = 0;
    if (unused > 0) void refund(this.#limiter, this.#permits(unused));
  }
}

/** A stream has ended well without it: where the store is away, the permits are lost. */
async function refund(limiter: Limiter, permits: Permits): Promise<void> {
  try {
    await limiter.refund(permits);
  } catch {}
}
