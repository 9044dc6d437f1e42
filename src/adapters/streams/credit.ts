/**
 * The permits that one stream has bought from its limiter and not yet used.
 *
 * Asking the limiter for each chunk would cost too much where chunks are small, and would let a big
 * chunk pass in one lump. So a stream buys permits by the piece, and each chunk that passes is a
 * subtraction. A piece is what the limiter grants in `pieceMs`, divided by the number of streams that
 * share the limiter here, so that one turn of all of them takes about `pieceMs`. It is worth at least
 * a millisecond, so that a thousand streams do not buy byte by byte, and never exceeds the limiter's
 * capacity.
 *
 *   chunk of n bytes        n <= piece: passes whole, when the credit covers it
 *                           n > piece: passes in pieces, each when the credit covers it
 *   the credit is short     a piece is available now: buy it
 *                           less is available, but enough for what wants to pass: buy that
 *                           else: order a piece and wait for it
 *
 * Fairness. Every stream that waits waits for the same amount, in the limiter's one queue, so big
 * chunks get no more than small ones. A stream counts from its first purchase until it ends. (Streams
 * of other processes, and of another limiter object for the same key, are not counted, but wait in
 * the same queue.)
 *
 * Delay. A stream never waits for a whole piece where the available permits suffice. Under the smooth
 * limiters a piece is granted as soon as one byte would be, because the next request pays for it.
 * Under the others it takes at most `pieceMs` of the limiter's time.
 *
 * Another pace. Each answer of the limiter says its pace. When a limiter of this process was given
 * other numbers (`timesRenumbered`), a stream looks again before it uses its credit. A lower pace
 * shrinks
 *
 *   an order that is granted    to a piece of the new pace; the excess is refunded
 *   an order that waits         where it now takes more than twice the announced wait: it is dropped,
 *                               and a smaller one is made
 *   what was bought before      to what is worth the same time as before; the rest is lost
 *
 * Elsewhere (on Redis) an order is booked at the pace of that moment, and passes as it was booked.
 *
 * Bound. All that passes was bought before. In any interval a stream passes at most what the limiter
 * grants it in that interval, plus one piece bought before and not yet used (without cutting: one
 * chunk, if that is more). What is left when the stream ends is refunded.
 *
 * Worked example, 8 MiB a second, pieces of 50 ms: 419 430 bytes. Chunks of 65 536: at 0 ms six pass
 * whole and 26 214 bytes are left, which count towards the seventh. It waits: at 50 ms the next piece
 * is granted and it passes, and so on; 64 MiB take 161 purchases.
 */
import { PermitsExceedCapacityError } from "../../errors.ts";
import type { Decision, Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import { timesRenumbered } from "../../revision.ts";
import type { CheckedOptions } from "./options.ts";

/** How many streams of this process share a limiter. */
const sharers = new WeakMap<Limiter, number>();

function share(limiter: Limiter, change: 1 | -1): void {
  sharers.set(limiter, (sharers.get(limiter) ?? 0) + change);
}

/** The least that a turn is worth, however many streams share the limiter, ms. */
const SHORTEST_TURN_MS = 1;

/**
 * Where there is no limit, permits are bought for so many chunks at a time. Of a limiter in this process
 * a stream learns at once when one is set; of others with its next purchase.
 */
const UNLIMITED_CHUNKS = { local: 4096, remote: 64 };

/**
 * After so many dropped orders at one pace, the next waits without a bound: other requests, not the
 * pace, prolong its wait, and it must keep its place among them.
 */
const MOST_DROPPED = 2;

/** An amount that the limiter was asked for, and `timesRenumbered()` when it was. */
interface Question {
  readonly amount: number;
  readonly revision: number;
  readonly answer: Decision | Promise<Decision>;
}

export class Credit {
  readonly #limiter: Limiter;
  readonly #pieceMs: number;
  readonly #policy: string | undefined;
  /** Bytes can be cut; weighed chunks cannot. */
  readonly #cuts: boolean;
  readonly #ended = new AbortController();
  #free: number;
  #bought = 0;
  /** The largest piece; unknown until the limiter has been asked. */
  #piece = Infinity;
  /** Permits a millisecond, as the limiter said last. */
  #pace = 0;
  /** It shares the limiter since its first purchase. */
  #counted = false;
  /** The most that the limiter can ever grant at once, where an error said so at this limit. */
  #largest = Infinity;
  #limit: number | undefined;
  /** `timesRenumbered()` when the limiter said its pace. */
  #revision = 0;
  /** The limiter answers without a promise: it is in this process. */
  #isLocal = false;

  constructor(limiter: Limiter, options: CheckedOptions<never>) {
    this.#limiter = limiter;
    this.#pieceMs = options.pieceMs;
    this.#policy = options.policy;
    this.#cuts = options.weigh === undefined;
    this.#free = this.#whole(options.freeBytes);
  }

  /** Aborted when it is closed. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * Takes as much of a chunk of that size as may pass now: a piece of it, or all. `undefined`: it has
   * to be bought first.
   */
  take(size: number): number | undefined {
    if (this.#free > 0) return this.#takeFree(size);
    const due = size > this.#piece ? this.#due(size) : size;
    if (due > this.#bought || this.#isStale()) return undefined;
    this.#bought -= due;
    return due;
  }

  /** The pace of a limiter in this process may have changed: its credit is to be valued anew. */
  #isStale(): boolean {
    return this.#isLocal && this.#revision !== timesRenumbered();
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
   * Buys until `take(size)` has something to let pass.
   *
   * @returns a promise where that takes a wait or a round trip, else undefined
   * @throws (at once or as a rejection) what the limiter throws, or the reason of its end
   */
  buy(size: number): Promise<void> | undefined {
    this.ended.throwIfAborted();
    if (!this.#counted || this.#isStale()) return this.#lookAndBuy(size);
    const question = this.#ask(size);
    const { answer } = question;
    if (answer instanceof Promise) return this.#buyPieces(size, question);
    if (!this.#granted(answer, question, size)) return this.#buyPieces(size, question);
    return this.#short(size) > 0 ? this.#buyPieces(size) : undefined;
  }

  async #lookAndBuy(size: number): Promise<void> {
    if (!this.#counted) share(this.#limiter, 1);
    this.#counted = true;
    await this.#look(size);
    await this.#buyPieces(size);
  }

  /** @param first a question that was not granted yet */
  async #buyPieces(size: number, first?: Question): Promise<void> {
    let question = first;
    let dropped = 0;
    while (this.#short(size) > 0) {
      this.ended.throwIfAborted();
      try {
        question ??= this.#ask(size);
        const asked = question;
        question = undefined;
        const decision = await asked.answer;
        const enough =
          this.#granted(decision, asked, size) || (await this.#buyRest(decision, size));
        if (enough) continue;
        if (await this.#order(decision, size, dropped < MOST_DROPPED)) continue;
        dropped = (await this.#lookAgain(size)) ? 0 : dropped + 1;
      } catch (error) {
        this.#cap(error, size);
        await this.#lookAgain(size);
      }
    }
    this.ended.throwIfAborted();
  }

  #ask(size: number): Question {
    const amount = this.#amount(size);
    const revision = timesRenumbered();
    try {
      return { amount, revision, answer: this.#takeIfAllowed(this.#permits(amount)) };
    } catch (error) {
      return { amount, revision, answer: Promise.reject(error) };
    }
  }

  /** Looks first: a stream that waits for its turn has not been refused and must not count as such. */
  #takeIfAllowed(permits: Permits): Decision | Promise<Decision> {
    const take = (look: Decision) => (look.allowed ? this.#limiter.decide(permits) : look);
    const look = this.#limiter.peek(permits);
    return look instanceof Promise ? look.then(take) : take(look);
  }

  #granted(decision: Decision, { amount, revision, answer }: Question, size: number): boolean {
    this.#isLocal = decision === answer;
    this.#learn(decision, revision);
    if (decision.allowed) this.#gain(amount, size);
    return decision.allowed;
  }

  /**
   * Buys less than a piece where that suffices.
   *
   * @returns whether there is enough now; nothing needs buying where the limiter said a pace at which
   *   less is due
   */
  async #buyRest({ remaining }: Decision, size: number): Promise<boolean> {
    const short = this.#short(size);
    if (short <= 0) return true;
    const available = Math.min(this.#amount(size), this.#whole(remaining));
    if (available < short) return false;
    if (!(await this.#limiter.tryAcquire(this.#permits(available)))) return false;
    this.#gain(available, size);
    return true;
  }

  /**
   * Waits for a piece.
   *
   * @param bounded whether to drop the order where the wait becomes much longer than announced
   * @returns whether it was granted
   */
  async #order({ waitMs }: Decision, size: number, bounded: boolean): Promise<boolean> {
    this.ended.throwIfAborted();
    const amount = this.#amount(size);
    const permits = this.#permits(amount);
    const signal = this.ended;
    if (bounded) {
      const timeoutMs = 2 * waitMs + this.#pieceMs;
      if (!(await this.#limiter.tryAcquire(permits, { timeoutMs, signal }))) return false;
    } else {
      await this.#limiter.acquire(permits, { signal });
    }
    const piece = this.#piece;
    try {
      if (!signal.aborted) await this.#lookAgain(size);
    } finally {
      // where the pace rose during the wait, this piece passes as it was ordered
      this.#piece = Math.min(piece, this.#piece);
      this.#gain(amount, size);
    }
    return true;
  }

  async #look(size: number): Promise<void> {
    const revision = timesRenumbered();
    this.#learn(await this.#limiter.peek(this.#permits(Math.min(1, size))), revision);
  }

  /** @returns whether the numbers of the limiter may have changed */
  async #lookAgain(size: number): Promise<boolean> {
    if (this.#revision === timesRenumbered()) return false;
    await this.#look(size);
    return true;
  }

  /** What `take` lacks. */
  #short(size: number): number {
    return this.#due(size) - this.#bought;
  }

  #amount(size: number): number {
    const short = this.#short(size);
    if (this.#piece < Infinity) return Math.max(short, this.#piece);
    return short * (this.#isLocal ? UNLIMITED_CHUNKS.local : UNLIMITED_CHUNKS.remote);
  }

  #permits(amount: number): Permits {
    return this.#policy === undefined ? amount : { [this.#policy]: amount };
  }

  /** Permits were granted: those beyond a piece of today's pace go back, or all after the end. */
  #gain(permits: number, size: number): void {
    const kept = Math.min(permits, this.#amount(size));
    this.#bought += kept;
    this.#refund(permits - kept);
    if (this.ended.aborted) this.#giveBack();
  }

  /** Learns the pace of the slowest policy, and what a piece is at that pace. */
  #learn({ policies }: Decision, revision: number): void {
    this.#revision = revision;
    const { [String(this.#policy)]: only } = policies;
    let limit = Infinity;
    let pace = Infinity;
    for (const policy of only === undefined ? Object.values(policies) : [only]) {
      limit = Math.min(limit, policy.limit);
      pace = Math.min(pace, policy.limit / policy.windowMs);
    }
    if (limit !== this.#limit) this.#largest = Infinity;
    this.#limit = limit;
    if (pace < this.#pace) this.#bought = this.#whole((this.#bought * pace) / this.#pace);
    this.#pace = pace;
    const turnMs = this.#pieceMs / (sharers.get(this.#limiter) ?? 1);
    const worth = pace * Math.max(turnMs, Math.min(this.#pieceMs, SHORTEST_TURN_MS));
    // no limit (Infinity, or 0 / 0): nothing is cut
    this.#piece = Number.isNaN(worth) ? Infinity : this.#sized(Math.min(worth, this.#largest));
  }

  #sized(piece: number): number {
    return this.#cuts ? Math.max(1, this.#whole(piece)) : piece;
  }

  #whole(permits: number): number {
    return this.#cuts ? Math.floor(permits) : permits;
  }

  /** More than the limiter can ever grant: smaller pieces are tried, if there are any. */
  #cap(error: unknown, size: number): void {
    if (!(error instanceof PermitsExceedCapacityError)) throw error;
    const { capacity } = error.facts;
    const enough = this.#cuts ? capacity >= 1 : capacity >= size;
    if (!enough || capacity >= this.#largest) throw error;
    this.#largest = capacity;
    this.#piece = this.#sized(Math.min(this.#piece, capacity));
  }

  /**
   * Ends the purchases: a wait ends, and what was bought and not used is refunded.
   *
   * @param reason what `buy` rejects with
   */
  close(reason?: unknown): void {
    if (this.ended.aborted) return;
    if (this.#counted) share(this.#limiter, -1);
    this.#ended.abort(reason);
    this.#giveBack();
  }

  #giveBack(): void {
    const unused = this.#bought;
    this.#bought = 0;
    this.#refund(unused);
  }

  #refund(permits: number): void {
    if (permits > 0) void refund(this.#limiter, this.#permits(permits));
  }
}

/** The stream goes on, or has ended well, without it: where the store is away, the permits are lost. */
async function refund(limiter: Limiter, permits: Permits): Promise<void> {
  try {
    await limiter.refund(permits);
  } catch {}
}
