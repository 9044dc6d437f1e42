/**
 * Reserves permits before a caller asks for them, so that most calls need no batch. The prefetcher is a
 * decorator around the link to the store.
 *
 * A refill is one batch. It asks for a number of chunks of equal size. The store grants each chunk for
 * an instant of its own, and the buffer keeps them in that order. A caller gets permits from the front
 * of the buffer, and sleeps if their instant is in the future. When half of a refill is used, the
 * prefetcher fetches the next one.
 *
 * The store has granted each permit, and each is used once, at its instant or later. `permits` bounds what
 * is buffered and under way, `maxAgeMs` how long it stays usable and how far a refill reserves beyond the last
 * caller that waits in this process. If that bound or a full bucket cuts a refill short, the next one follows
 * after half of `maxAgeMs`. What follows from this: docs/prefetch.md.
 *
 * Worked example with 1000 permits a second, `permits: 100` and one caller: the first call sends one
 * batch with its own request and 100 chunks, granted for 1, 2 … 100 ms. The following calls use one
 * chunk each ms. At 50 ms a second batch fetches 50 more, for 101 … 150 ms, and so on: 20 batches a
 * second instead of 1000.
 *
 * Order: a caller is never served while an earlier one still waits for its reply. A caller that the
 * buffer cannot serve waits for the refill that is under way, or asks the store before the next refill.
 */
import { atExit } from "../ground/at-exit.ts";
import type { Timer } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import { Fifo } from "../queue/fifo.ts";
import { type Answer, AT_ONCE } from "../stores/store.ts";
import type { Receipts } from "./grants.ts";
import { type DrawnPermits, PermitBuffer, permitsOf, receiptsOf } from "./permit-buffer.ts";
import type { PermitLink, PermitSource } from "./permit-link.ts";
import { isGranted, NO, type PermitRequest, reserving } from "./permit-request.ts";
import { type RefillOptions, RefillSize } from "./refill-size.ts";
import type { Parts } from "./remote-options.ts";
import { RemoteWaiter } from "./remote-waiter.ts";

/** Chunks that are fetched together. */
interface Refill {
  /** How many chunks have no answer yet, and whether one was rejected. */
  open: number;
  cut: boolean;
  /** The latest instant that it may reserve, microseconds. */
  readonly reach: number;
  /** Given up: permits that its replies still grant return to the store. */
  gone: boolean;
}

export class Prefetcher implements PermitSource {
  readonly #parts: Parts;
  readonly #link: PermitLink;
  readonly #maxAge: number;
  readonly #size: RefillSize;
  readonly #buffer = new PermitBuffer();
  /** A lower bound of the permits that a call can use now without overtaking another caller. */
  #ready = 0;
  /** `take` fetches the next refill when the buffer holds no more than this; -1: never. */
  #low = -1;
  #refill: Refill | undefined;
  /** The reach of the last refill that was cut short: other callers have reserved up to there. */
  #cutAt = -Infinity;
  /** Callers that wait for the refill, or for the answer to an earlier caller. */
  readonly #expecting = new Fifo<RemoteWaiter>();
  /** How many callers wait for an answer of the store. */
  #asked = 0;
  #expiry: Timer | undefined;
  #forgetExit: (() => void) | undefined;
  #closed = false;

  constructor(parts: Parts, link: PermitLink, { permits, maxAgeMs }: RefillOptions) {
    this.#parts = parts;
    this.#link = link;
    this.#maxAge = maxAgeMs * 1000;
    this.#size = new RefillSize(permits);
  }

  /** Takes the permits if this needs neither a wait nor a batch; returns whether it has. */
  take(permits: unknown): boolean {
    if (typeof permits !== "number" || !(permits > 0)) return false;
    if (permits > this.#ready && !this.#isReady(permits)) return false;
    this.#ready -= permits;
    this.#buffer.draw(permits);
    if (this.#buffer.left <= this.#low) this.#fetchNext();
    return true;
  }

  /** Serves a caller from the buffer, now or after the refill; sends every other request to the store. */
  send(request: PermitRequest): void {
    if (request instanceof RemoteWaiter) this.#ask(request);
    else this.#link.send(request);
  }

  /**
   * Puts permits into the buffer, up to its size. The rest returns to the store, the latest first: only they leave
   * no gap in its schedule.
   */
  async returnToStore(
    amount: Amount,
    { receipts, parts }: Receipts,
    instant?: number,
  ): Promise<void> {
    const size = permitsOf(amount);
    if (parts !== undefined) {
      this.#buffer.putBack(parts);
    } else if (instant !== undefined && size < Infinity) {
      this.#buffer.add({ due: instant, receipts, size, left: size });
    } else {
      await this.#link.returnToStore(amount, { receipts });
      return;
    }
    this.#ready = 0;
    this.#keep(this.#closed ? 0 : this.#size.of(this.#parts.activePolicies.policyState).permits);
  }

  /**
   * Returns how the buffer would answer a request that does not wait.
   *
   * @param takes take the permits, if they can be used now
   * @returns `wait`: the wait for buffered permits, microseconds, if there are enough of them; `grant`:
   *   the permits that were taken; `ready`: how many permits can be used now
   */
  look(amount: Amount, takes: boolean) {
    const permits = permitsOf(amount);
    const isHere = permits <= this.#buffer.left && !this.#isAwaited;
    const wait = isHere ? this.#waitFor(permits) : undefined;
    const grant = takes && wait === 0 ? this.#promise(permits, 0) : undefined;
    if (grant !== undefined) this.#fetchNext();
    return { wait, grant, ready: this.#isReady(0) ? this.#ready : 0 };
  }

  /** Returns all buffered permits to the store. */
  release(): void {
    this.#ready = 0;
    this.#keep(0);
  }

  /** Serves no more callers and fetches no more; permits under way return to the store. */
  stop(): void {
    this.#closed = true;
    if (this.#refill) this.#refill.gone = true;
  }

  #isReady(permits: number): boolean {
    if (permits > this.#buffer.left || this.#isAwaited) return false;
    const { queue } = this.#parts;
    queue.catchUp();
    const now = queue.now();
    this.#ready = queue.end > now ? 0 : this.#buffer.readyAt(now);
    return permits <= this.#ready;
  }

  /** Whether an earlier caller still waits for its answer, so that its instant is not known. */
  get #isAwaited(): boolean {
    return this.#asked + this.#expecting.size > 0;
  }

  #ask(caller: RemoteWaiter): void {
    this.#ready = 0;
    this.#expecting.append(caller);
    this.#serveExpecting();
    // the caller in front is kept until the store is back
    if (this.#expecting.has(caller) && this.#link.isUnavailable) caller.delayed();
    const { policyState } = this.#parts.activePolicies;
    if (this.#size.fits(permitsOf(caller.amount), policyState)) this.#fetchNext();
  }

  #serve(caller: RemoteWaiter): boolean {
    if (this.#closed) return false;
    const answer = this.#promise(permitsOf(caller.amount), caller.accepts);
    if (answer === undefined) return false;
    caller.answer(answer, this.#parts.queue.now());
    return true;
  }

  #promise(permits: number, longest: number): (Answer & Receipts) | undefined {
    if (permits > this.#buffer.left || this.#asked > 0) return undefined;
    const wait = this.#waitFor(permits);
    if (wait > longest) return NO;
    const parts: DrawnPermits[] = [];
    this.#ready = 0;
    this.#buffer.draw(permits, parts);
    return { ...AT_ONCE, wait, parts };
  }

  #waitFor(permits: number): number {
    const { queue } = this.#parts;
    queue.catchUp();
    const now = queue.now();
    return Math.max(0, Math.max(this.#buffer.dueOf(permits), queue.end) - now);
  }

  /** Sends the caller's request to the store. No later caller overtakes it. */
  #askStore(caller: RemoteWaiter, error?: unknown): void {
    this.#asked += 1;
    caller.onAnswered = (isKept) => {
      if (isKept) {
        for (const each of this.#expecting) each.delayed();
        return;
      }
      this.#asked -= 1;
      if (this.#asked > 0 || this.#expecting.size === 0) return;
      this.#serveExpecting();
      this.#fetchNext();
    };
    if (error === undefined) this.#link.send(caller);
    else this.#link.refuse(caller, error);
  }

  /**
   * Serves callers in order, up to the first that has to wait: for the refill, or for the answer to an earlier
   * caller. Those that the buffer cannot serve ask the store.
   */
  #serveExpecting(): void {
    for (let caller = this.#expecting.head; caller !== undefined; caller = this.#expecting.head) {
      const isServed = caller.gone || this.#serve(caller);
      const isInBuffer = permitsOf(caller.amount) <= this.#buffer.left;
      if (!isServed && (this.#refill !== undefined || isInBuffer)) break;
      this.#expecting.remove(caller);
      if (!isServed) this.#askStore(caller);
    }
  }

  /** Fetches the next refill if half of the last one is used. */
  #fetchNext(): void {
    this.#low = -1;
    if (this.#refill !== undefined || this.#closed) return;
    const { queue, activePolicies } = this.#parts;
    const half = this.#size.of(activePolicies.policyState).permits / 2;
    if (this.#buffer.left > half) {
      this.#low = half;
      return;
    }
    const now = queue.now();
    const reach = Math.max(now, queue.end) + this.#maxAge;
    if (reach < this.#cutAt + this.#maxAge / 2) return;
    this.#size.adapt(now, this.#buffer.drawnDue);
    const { permits, chunk } = this.#size.of(activePolicies.policyState);
    const count = Math.floor((permits - this.#buffer.left) / chunk);
    if (count > 0) this.#fetch(count, chunk, reach, reach - now);
  }

  #fetch(count: number, permits: number, reach: number, longest: number): void {
    const refill: Refill = { open: count, reach, cut: false, gone: false };
    this.#refill = refill;
    const amount = this.#parts.policyState.amount(permits);
    const chunk: PermitRequest = {
      get gone() {
        return refill.gone;
      },
      // a chunk that was sent may have been granted already: a second request would grant it twice
      isRepeatable: false,
      toStore: (_late, last) => reserving(amount, longest, 0, last),
      takenBy: (answer) => (isGranted(answer) ? amount : 0),
      answer: (answer, sentAt) => this.#arrive(refill, permits, answer, sentAt),
      returnToStore: (answer) => {
        if (isGranted(answer)) this.#link.returnToStore(amount, answer).catch(() => {});
      },
      fail: (error) => this.#lose(refill, error),
      delayed: () => this.#lose(refill),
    };
    for (let i = 0; i < count && !refill.gone; i++) this.#link.send(chunk);
  }

  #arrive(refill: Refill, permits: number, answer: Answer, sentAt: number): void {
    if (isGranted(answer)) {
      const due = this.#parts.queue.dueAt(answer.wait, sentAt);
      this.#buffer.add({ due, receipts: answer.receipts, size: permits, left: permits });
    } else {
      refill.cut = true;
    }
    refill.open -= 1;
    if (refill.open > 0) return;
    this.#refill = undefined;
    if (refill.cut) this.#cutAt = refill.reach;
    this.#ready = 0;
    this.#serveExpecting();
    this.#fetchNext();
    this.#arm();
  }

  /** The refill has failed or is delayed: callers that wait for it fail with it, or ask the store. */
  #lose(refill: Refill, error?: unknown): void {
    refill.gone = true;
    this.#refill = undefined;
    this.#cutAt = refill.reach;
    const callers = [...this.#expecting];
    for (const caller of callers) this.#expecting.remove(caller);
    for (const caller of callers) if (!caller.gone) this.#askStore(caller, error);
  }

  /** Returns the buffered permits in excess of that number to the store, the latest first. */
  #keep(permits: number): void {
    for (const part of this.#buffer.dropBeyond(permits)) this.#return(part);
    this.#arm();
  }

  #return(part: DrawnPermits): void {
    const { policyState, declared } = this.#parts;
    const amount = policyState.amount(part.permits);
    const receipts = receiptsOf(part, declared);
    this.#link.returnToStore(amount, { receipts }).catch(() => {});
  }

  /** Keeps a timer while permits are buffered; the timer does not keep the process alive. */
  #arm(): void {
    const { head } = this.#buffer;
    if (head === undefined) {
      this.#expiry?.cancel();
      this.#expiry = undefined;
      this.#forgetExit?.();
      this.#forgetExit = undefined;
    } else if (this.#expiry === undefined) {
      this.#expiry = this.#parts.queue.wakeAt(head.due + this.#maxAge, this.#expire);
      this.#expiry.unref?.();
      this.#forgetExit ??= atExit(() => this.release());
    }
  }

  readonly #expire = (): void => {
    this.#expiry = undefined;
    const { head, left } = this.#buffer;
    if (head !== undefined && head.due + this.#maxAge <= this.#parts.queue.now()) {
      this.#size.shrink(left);
      this.release();
    } else {
      this.#arm();
    }
  };
}
