/**
 * Permits that are reserved before a caller asks for them, so that most calls need no batch: a
 * decorator around the link to the store.
 *
 * A refill is one batch: so many chunks of so many permits, each granted by the store for an instant
 * of its own, and buffered in that order. A caller is served from the front, and waits where that
 * instant has not come. When half of a refill is used, the next one is fetched.
 *
 * What it promises. A permit from here was granted by the store and is used once, at its instant or
 * later: counted from the limiter's birth, all processes use no more than requests of a chunk's size
 * would be let through. What is buffered and on its way is never more than `permits`: a process that
 * dies loses no more, nor can more be used late. When the first chunk has been usable for `maxAgeMs`,
 * all of it returns to the store. Nothing is reserved further ahead than `maxAgeMs` beyond the last
 * caller that waits here; a refill that is cut short by that, or by a full bucket, is followed by
 * another when half of that time has passed.
 *
 * Worked example, 1000 a second, 100 permits, one caller: the first call is one batch, with its own
 * request and 100 chunks behind it, at 1, 2 … 100 ms. Call by call these are used, one each ms. At 50
 * ms a second batch fetches 50 more, at 101 … 150 ms, and so on: 20 batches a second instead of 1000.
 *
 * Order. A caller is never served while an earlier one still waits for its reply: one that the buffer
 * cannot serve waits for the refill that is under way, or asks the store, ahead of the next refill.
 */
import { atExit } from "../../at-exit.ts";
import type { Clock, Timer } from "../../clock.ts";
import type { Amount } from "../../permits.ts";
import type { PolicyList } from "../../stores/memory.ts";
import type { Answer } from "../../stores/store.ts";
import { Fifo } from "../fifo.ts";
import {
  answerOf,
  BufferGrant,
  type Chunk,
  NO,
  type Part,
  PermitBuffer,
  permitsOf,
} from "./permit-buffer.ts";
import type { PermitLink, PermitSource } from "./permit-link.ts";
import { isGranted, type PermitRequest, reserving } from "./permit-request.ts";
import { type PrefetchOptions, RefillSize } from "./refill-size.ts";
import { RemoteWaiter } from "./remote-waiter.ts";
import type { WaitLine } from "./wait-line.ts";

/** What a prefetcher needs of its limiter. */
export interface PrefetchContext {
  readonly clock: Clock;
  readonly line: WaitLine;
  readonly link: PermitLink;
  readonly policies: PolicyList;
  /** So many of each policy. */
  amountOf(permits: number): Amount;
  /** By our own clock. */
  dueAt(wait: number, sentAt: number): number;
}

/** Chunks that are fetched together. */
interface Refill {
  /** How many have no answer yet, and whether one was refused. */
  open: number;
  cut: boolean;
  readonly permits: number;
  /** Up to which instant it reserves, microseconds. */
  readonly reach: number;
  /** What comes of it now returns to the store. */
  gone: boolean;
}

export class Prefetcher implements PermitSource {
  readonly #context: PrefetchContext;
  readonly #maxAge: number;
  readonly #size: RefillSize;
  readonly #buffer = new PermitBuffer();
  /** How many permits can be used now, as far as is known, and no caller stands before. */
  #ready = 0;
  /** With no more than this in the buffer, the next refill is wanted. */
  #low = -1;
  #refill: Refill | undefined;
  /** Where the last refill that was cut short ended: up to there others have reserved. */
  #cutAt = -Infinity;
  /** Callers that wait for the refill. */
  readonly #expecting = new Fifo<RemoteWaiter>();
  /** Callers that have asked the store and have no answer yet; and those behind the refill. */
  readonly #asked = new Set<RemoteWaiter>();
  #behind = new Set<RemoteWaiter>();
  #expiry: Timer | undefined;
  #forgetExit: (() => void) | undefined;
  #closed = false;

  constructor(context: PrefetchContext, { permits, maxAgeMs }: PrefetchOptions) {
    this.#context = context;
    this.#maxAge = maxAgeMs * 1000;
    this.#size = new RefillSize(permits);
  }

  /** Takes the permits if that needs neither a wait nor a batch. */
  take(permits: unknown): boolean {
    if (typeof permits !== "number" || !(permits > 0)) return false;
    if (permits > this.#ready && !this.#isReady(permits)) return false;
    this.#ready -= permits;
    this.#buffer.draw(permits);
    if (this.#buffer.left <= this.#low) this.#fetchNext();
    return true;
  }

  /** A caller is served from here, now or when the refill is there; other requests by the store. */
  send(request: PermitRequest): void {
    if (request instanceof RemoteWaiter) this.#ask(request);
    else this.#context.link.send(request);
  }

  /** What the buffer has granted lies there again; the rest returns to the store. */
  async returnToStore(amount: Amount, answer: Answer): Promise<void> {
    if (!(answer instanceof BufferGrant)) {
      await this.#context.link.returnToStore(amount, answer);
      return;
    }
    this.#ready = 0;
    this.#buffer.putBack(answer.parts);
    this.#keep(this.#closed ? 0 : this.#size.of(this.#context.link.inForce).permits);
  }

  /**
   * How a request that does not wait would fare.
   *
   * @param takes takes the permits that can be used now
   * @returns `wait`: how long for what lies here, microseconds, if that is enough; `grant`: what was
   *   taken; `ready`: how many permits can be used now
   */
  look(amount: Amount, takes: boolean) {
    const permits = permitsOf(amount);
    const isHere = permits <= this.#buffer.left && !this.#isAwaited;
    const wait = isHere ? this.#waitFor(permits) : undefined;
    let grant: Answer | undefined;
    if (takes && wait === 0) {
      grant = this.#promise(permits, 0);
      this.#fetchNext();
    }
    return { wait, grant, ready: this.#isReady(0) ? this.#ready : 0 };
  }

  /** All that is buffered returns to the store. */
  release(): void {
    this.#ready = 0;
    this.#keep(0);
  }

  /** As `release`; and so does what is on its way. */
  close(): void {
    this.#closed = true;
    if (this.#refill) this.#refill.gone = true;
    this.release();
  }

  #isReady(permits: number): boolean {
    if (permits > this.#buffer.left || this.#isAwaited) return false;
    const { line } = this.#context;
    line.catchUp();
    const now = line.now();
    this.#ready = line.turn > now ? 0 : this.#buffer.readyAt(now);
    return permits <= this.#ready;
  }

  /** A caller has asked before whose instant is not known yet. */
  get #isAwaited(): boolean {
    return this.#asked.size + this.#behind.size + this.#expecting.size > 0;
  }

  #ask(caller: RemoteWaiter): void {
    const permits = permitsOf(caller.amount);
    this.#ready = 0;
    if (this.#expecting.size > 0 || !this.#serve(caller)) {
      if (this.#isWorthAwaiting(permits)) this.#expecting.append(caller);
      else this.#askStore(caller);
    }
    if (this.#size.fits(permits)) this.#fetchNext();
  }

  #serve(caller: RemoteWaiter): boolean {
    const answer = this.#promise(permitsOf(caller.amount), caller.patience);
    if (answer === undefined) return false;
    caller.answer(answer, this.#context.line.now());
    return true;
  }

  #promise(permits: number, longest: number): Answer | undefined {
    if (permits > this.#buffer.left || this.#asked.size + this.#behind.size > 0) return undefined;
    const wait = this.#waitFor(permits);
    if (wait > longest) return NO;
    const grant = new BufferGrant(wait);
    this.#ready = 0;
    this.#buffer.draw(permits, grant.parts);
    return grant;
  }

  #waitFor(permits: number): number {
    const { line } = this.#context;
    line.catchUp();
    const now = line.now();
    return Math.max(0, Math.max(this.#buffer.dueOf(permits), line.turn) - now);
  }

  /** Whether it may be served from here once those before it have their answers. */
  #isWorthAwaiting(permits: number): boolean {
    if (this.#expecting.size > 0) return true;
    if (this.#refill === undefined) return this.#asked.size > 0 && permits <= this.#buffer.left;
    return this.#behind.size === 0 && permits <= this.#buffer.left + this.#refill.permits;
  }

  /** The store answers it: after the refill that is under way, and no caller overtakes it. */
  #askStore(caller: RemoteWaiter, error?: unknown): void {
    const { link } = this.#context;
    (this.#refill === undefined ? this.#asked : this.#behind).add(caller);
    caller.onAnswered = () => this.#answered(caller);
    if (error === undefined) link.send(caller);
    else link.refuse(caller, error);
  }

  #answered(caller: RemoteWaiter): void {
    this.#behind.delete(caller);
    if (!this.#asked.delete(caller) || this.#asked.size > 0 || this.#expecting.size === 0) return;
    this.#serveExpecting();
    this.#fetchNext();
  }

  /** Callers that wait for a refill, in order, as far as it is known what becomes of them. */
  #serveExpecting(): void {
    for (let caller = this.#expecting.head; caller !== undefined; caller = this.#expecting.head) {
      const permits = permitsOf(caller.amount);
      const isServed = caller.gone || this.#serve(caller);
      const waits = this.#refill !== undefined || permits <= this.#buffer.left;
      if (!isServed && waits) break;
      this.#expecting.remove(caller);
      if (!isServed) this.#askStore(caller);
    }
  }

  /** Fetches the next refill, if it is time for it. */
  #fetchNext(): void {
    this.#low = -1;
    if (this.#refill !== undefined || this.#closed) return;
    const { line, link } = this.#context;
    const half = this.#size.of(link.inForce).permits / 2;
    if (this.#buffer.left > half) {
      this.#low = half;
      return;
    }
    const now = line.now();
    const reach = Math.max(now, line.turn) + this.#maxAge;
    if (reach < this.#cutAt + this.#maxAge / 2) return;
    this.#size.adapt(now);
    const { permits, chunk } = this.#size.of(link.inForce);
    const count = Math.floor((permits - this.#buffer.left) / chunk);
    if (count > 0) this.#fetch(count, chunk, reach, reach - now);
  }

  #fetch(count: number, permits: number, reach: number, longest: number): void {
    const all = count * permits;
    const refill: Refill = { open: count, permits: all, reach, cut: false, gone: false };
    this.#refill = refill;
    const amount = this.#context.amountOf(permits);
    const chunk: PermitRequest = {
      get gone() {
        return refill.gone;
      },
      // where it is not known whether it was run, the store may have granted it already
      isRepeatable: false,
      toStore: (_late, last) => reserving(amount, longest, 0, last),
      taken: (answer) => (isGranted(answer) ? amount : 0),
      answer: (answer, sentAt) => this.#arrive(refill, permits, answer, sentAt),
      returnToStore: (answer) => {
        const chunk: Chunk = { due: 0, answer, size: permits, left: 0 };
        if (isGranted(answer)) this.#return({ chunk, permits });
      },
      fail: (error) => this.#lose(refill, error),
      delayed: () => this.#lose(refill),
    };
    for (let i = 0; i < count && !refill.gone; i++) this.#context.link.send(chunk);
  }

  #arrive(refill: Refill, permits: number, answer: Answer, sentAt: number): void {
    if (isGranted(answer)) {
      const due = this.#context.dueAt(answer.wait, sentAt);
      this.#buffer.add({ due, answer, size: permits, left: permits });
    } else {
      refill.cut = true;
    }
    refill.open -= 1;
    if (refill.open > 0) return;
    this.#refill = undefined;
    if (refill.cut) this.#cutAt = refill.reach;
    this.#ready = 0;
    // they asked before the callers that asked the store behind it
    const behind = this.#behind;
    this.#behind = new Set();
    this.#serveExpecting();
    for (const caller of behind) this.#asked.add(caller);
    this.#fetchNext();
    this.#arm();
  }

  /** The refill does not come, or not in time: callers that wait for it share its fate. */
  #lose(refill: Refill, error?: unknown): void {
    if (refill.gone) return;
    refill.gone = true;
    this.#refill = undefined;
    this.#cutAt = refill.reach;
    const callers = [...this.#expecting];
    for (const caller of callers) this.#expecting.remove(caller);
    for (const caller of callers) if (!caller.gone) this.#askStore(caller, error);
  }

  /** What is more than that returns to the store, the last of it first. */
  #keep(permits: number): void {
    for (const part of this.#buffer.dropBeyond(permits)) this.#return(part);
    this.#arm();
  }

  #return(part: Part): void {
    const { amountOf, link, policies } = this.#context;
    link.returnToStore(amountOf(part.permits), answerOf(part, policies)).catch(() => {});
  }

  /** A timer while permits are buffered; it keeps no process alive. */
  #arm(): void {
    const { head } = this.#buffer;
    if (head === undefined) {
      this.#expiry?.cancel();
      this.#expiry = undefined;
      this.#forgetExit?.();
      this.#forgetExit = undefined;
    } else if (this.#expiry === undefined) {
      this.#expiry = this.#context.clock.wakeAt((head.due + this.#maxAge) / 1000, this.#expire);
      this.#expiry.unref?.();
      this.#forgetExit ??= atExit(() => this.release());
    }
  }

  readonly #expire = (): void => {
    this.#expiry = undefined;
    const { head, left } = this.#buffer;
    if (head !== undefined && head.due + this.#maxAge <= this.#context.line.now()) {
      this.#size.shrink(left);
      this.release();
    } else {
      this.#arm();
    }
  };
}
