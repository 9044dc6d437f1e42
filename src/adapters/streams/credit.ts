/**
 * The permits that one stream has bought from its limiter and not yet used.
 *
 * A request to the limiter for each chunk would cost too much with small chunks, and would let a big
 * chunk pass all at once. So a stream buys permits by the piece, and each chunk that passes is subtracted
 * from them. A piece is the number of permits that the limiter grants in `pieceMs`, divided by the number
 * of streams in this process that share the limiter. So one round of all these streams takes about
 * `pieceMs`. A piece is worth at least a millisecond, so that a thousand streams do not buy byte by byte,
 * and never exceeds the limiter's capacity.
 *
 *   chunk of n bytes        n <= piece: passes whole, when the credit covers it
 *                           n > piece: passes in pieces, each when the credit covers it
 *   the credit is short     a piece is available now: buy it
 *                           less is available, but enough for the next bytes: buy that
 *                           otherwise: order a piece and wait for it
 *
 * Fairness: all waiting streams wait for the same amount, in the limiter's one queue, so big chunks get
 * no more than small ones. A stream counts from its first purchase until it ends. (Streams of other
 * processes, and of another limiter object for the same key, are not counted, but wait in the same
 * queue.)
 *
 * Delay: a stream never waits for a whole piece if the available permits suffice. The smooth limiters
 * grant a piece as soon as they would grant one byte, because the next request pays for it. With the
 * other limiters a piece takes at most `pieceMs` of the limiter's time.
 *
 * Change of pace: each answer of the limiter contains its pace. If the numbers of a limiter in this
 * process were changed (`timesRenumbered`), a stream reads the pace again before it uses its credit. A
 * lower pace has these effects:
 *
 *   an order that is granted    shrinks to a piece at the new pace; the excess is refunded
 *   an order that waits         is dropped if it takes more than twice the announced wait, and replaced
 *                               by a smaller one
 *   permits bought before       shrink to what is worth the same time as before; the rest is lost
 *
 * A remote limiter (on Redis) books an order at the pace of that moment, and the order passes as booked.
 *
 * Bound: every byte that passes was bought before. In any interval a stream passes at most what the
 * limiter grants it in that interval, plus one piece that was bought before and not yet used (if chunks
 * are not cut: one chunk, if that is more). Permits that are left when the stream ends are refunded.
 *
 * Worked example: at 8 MiB a second a piece of 50 ms is 419 430 bytes. With chunks of 65 536, six pass
 * whole at 0 ms, and 26 214 bytes are left for the seventh. It waits until the next piece is granted at
 * 50 ms, and so on. 64 MiB take 161 purchases.
 */

import type { Decision, Limiter, ShareOptions } from "../../api/limiter-api.ts";
import { oncePerProcess } from "../../ground/copies.ts";
import { PermitsExceedCapacityError } from "../../ground/errors.ts";
import { chain, type MaybePromise } from "../../ground/maybe-promise.ts";
import type { Permits } from "../../ground/permits.ts";
import { timesRenumbered } from "../../ground/revision.ts";
import type { CheckedStreamOptions } from "./options.ts";

/** How many streams of this process share a limiter. */
const sharers = /* @__PURE__ */ oncePerProcess("sharers", () => new WeakMap<Limiter, number>());

function share(limiter: Limiter, change: 1 | -1): void {
  sharers.set(limiter, (sharers.get(limiter) ?? 0) + change);
}

/** The shortest time that a piece is worth, however many streams share the limiter, ms. */
const SHORTEST_TURN_MS = 1;

/**
 * Without a limit, permits are bought for that many chunks at a time. If a limit is set later, a stream
 * detects it at once on a limiter in this process, and with its next purchase on a remote one.
 */
const UNLIMITED_CHUNKS = { local: 4096, remote: 64 };

/**
 * After this many dropped orders at one pace, the next order waits without a bound: other requests, not
 * the pace, prolong its wait, and it must keep its place among them.
 */
const MOST_DROPPED = 2;

/** A request to the limiter, with the value of `timesRenumbered()` at that time. */
interface Question {
  readonly amount: number;
  readonly revision: number;
  readonly answer: Decision | Promise<Decision>;
}

export class Credit {
  readonly #limiter: Limiter;
  readonly #pieceMs: number;
  readonly #policy: string | undefined;
  readonly #share: ShareOptions | undefined;
  /** Whether chunks are cut: bytes are, weighed chunks are not. */
  readonly #cuts: boolean;
  #free: number;
  #bought = 0;
  /** The size of a piece in permits; `Infinity` until the limiter has answered. */
  #piece = Infinity;
  /** Permits a millisecond, by the last answer of the limiter. */
  #pace = 0;
  /** Whether it counts among the streams that share the limiter: since its first purchase. */
  #counted = false;
  /** The most that the limiter can ever grant at once, if an error has shown it at this limit. */
  #largest = Infinity;
  #limit: number | undefined;
  /** The value of `timesRenumbered()` when the pace was read. */
  #revision = 0;
  /** Whether the limiter answers without a promise: it is in this process. */
  #isLocal = false;
  #isClosed = false;
  #reason: unknown;
  /** Ends a wait. Created for the first wait: a stream that never waits does without it. */
  #ended: AbortController | undefined;

  constructor(limiter: Limiter, options: CheckedStreamOptions<never>) {
    this.#limiter = limiter;
    this.#pieceMs = options.pieceMs;
    this.#policy = options.policy;
    this.#share = options.share;
    this.#cuts = options.weigh === undefined;
    this.#free = this.#whole(options.freeBytes);
  }

  /** Whether `close` was called. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Aborted by `close`. */
  get ended(): AbortSignal {
    this.#ended ??= new AbortController();
    if (this.#isClosed) this.#ended.abort(this.#reason);
    return this.#ended.signal;
  }

  #throwIfClosed(): void {
    if (this.#isClosed) this.ended.throwIfAborted();
  }

  /**
   * Takes permits for a chunk of that size. Returns how much of it may pass now, a piece or all;
   * `undefined` if permits have to be bought first.
   */
  take(size: number): number | undefined {
    // there is nothing to buy: a limiter refuses to be asked for 0 permits
    if (size === 0) return 0;
    if (this.#free > 0) return this.#takeFree(size);
    const due = size > this.#piece ? this.#due(size) : size;
    if (due > this.#bought || this.#isStale()) return undefined;
    this.#bought -= due;
    return due;
  }

  /** Returns whether the pace may have changed; always false for a limiter that is not in this process. */
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
   * Buys permits until `take(size)` lets something pass.
   *
   * @returns a promise if this takes a wait or a round trip, else undefined
   * @throws (at once or as a rejection) what the limiter throws, or the reason given to `close`
   */
  buy(size: number): Promise<void> | undefined {
    this.#throwIfClosed();
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

  /** @param first a request that was sent already and is not granted yet */
  async #buyPieces(size: number, first?: Question): Promise<void> {
    let question = first;
    let dropped = 0;
    while (this.#short(size) > 0) {
      this.#throwIfClosed();
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
    this.#throwIfClosed();
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

  /** Peeks first: a stream that waits for its turn must not count as a rejection. */
  #takeIfAllowed(permits: Permits): MaybePromise<Decision> {
    return chain(this.#limiter.peek(permits, this.#share), (look) =>
      look.allowed ? this.#limiter.decide(permits, this.#share) : look,
    );
  }

  #granted(decision: Decision, { amount, revision, answer }: Question, size: number): boolean {
    this.#isLocal = decision === answer;
    this.#learn(decision, revision);
    if (decision.allowed) this.#gain(amount, size);
    return decision.allowed;
  }

  /**
   * Buys less than a piece if that suffices.
   *
   * @returns whether there is enough now; nothing is bought if the new pace has reduced what is due
   */
  async #buyRest({ remaining }: Decision, size: number): Promise<boolean> {
    const short = this.#short(size);
    if (short <= 0) return true;
    const available = Math.min(this.#amount(size), this.#whole(remaining));
    if (available < short) return false;
    const { allowed } = await this.#limiter.decide(this.#permits(available), this.#share);
    if (!allowed) return false;
    this.#gain(available, size);
    return true;
  }

  /**
   * Orders a piece and waits for it.
   *
   * @param bounded whether to drop the order if the wait becomes much longer than announced
   * @returns whether the piece was granted
   */
  async #order({ waitMs }: Decision, size: number, bounded: boolean): Promise<boolean> {
    this.#throwIfClosed();
    const amount = this.#amount(size);
    const permits = this.#permits(amount);
    const wait = { signal: this.ended, ...this.#share };
    if (bounded) {
      const timeoutMs = 2 * waitMs + this.#pieceMs;
      if (!(await this.#limiter.tryAcquire(permits, { timeoutMs, ...wait }))) return false;
    } else {
      await this.#limiter.acquire(permits, wait);
    }
    const piece = this.#piece;
    try {
      if (!this.#isClosed) await this.#lookAgain(size);
    } finally {
      // if the pace rose during the wait, this piece passes as it was ordered
      this.#piece = Math.min(piece, this.#piece);
      this.#gain(amount, size);
    }
    return true;
  }

  async #look(size: number): Promise<void> {
    const revision = timesRenumbered();
    this.#learn(await this.#limiter.peek(this.#permits(Math.min(1, size)), this.#share), revision);
  }

  /** @returns whether the numbers of the limiter may have changed */
  async #lookAgain(size: number): Promise<boolean> {
    if (this.#revision === timesRenumbered()) return false;
    await this.#look(size);
    return true;
  }

  /** Returns how many permits are missing for `take`. */
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

  /** Adds granted permits; refunds those beyond a piece at the present pace, or all after the end. */
  #gain(permits: number, size: number): void {
    const kept = Math.min(permits, this.#amount(size));
    this.#bought += kept;
    this.#refund(permits - kept);
    if (this.#isClosed) this.#giveBack();
  }

  /** Reads the pace of the slowest policy from an answer, and computes the size of a piece. */
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
    // without a limit (Infinity, or 0 / 0) no chunk is cut
    this.#piece = Number.isNaN(worth) ? Infinity : this.#sized(Math.min(worth, this.#largest));
  }

  #sized(piece: number): number {
    return this.#cuts ? Math.max(1, this.#whole(piece)) : piece;
  }

  #whole(permits: number): number {
    return this.#cuts ? Math.floor(permits) : permits;
  }

  /** Reduces the piece after an error: it is more than the limiter can ever grant. Throws if it cannot be. */
  #cap(error: unknown, size: number): void {
    if (!(error instanceof PermitsExceedCapacityError)) throw error;
    const { capacity } = error.facts;
    const enough = this.#cuts ? capacity >= 1 : capacity >= size;
    if (!enough || capacity >= this.#largest) throw error;
    this.#largest = capacity;
    this.#piece = this.#sized(Math.min(this.#piece, capacity));
  }

  /**
   * Ends all purchases: ends a wait, and refunds unused permits.
   *
   * @param reason the reason with which `buy` rejects
   */
  close(reason?: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#reason = reason;
    if (this.#counted) share(this.#limiter, -1);
    this.#ended?.abort(reason);
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

/** Refunds permits; ignores errors: the stream does not depend on it. If the store is away, they are lost. */
async function refund(limiter: Limiter, permits: Permits): Promise<void> {
  try {
    await limiter.refund(permits);
  } catch {}
}
