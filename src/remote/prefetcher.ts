/**
 * Reserves permits before a caller asks for them, so that most calls need no batch. The prefetcher is the link to
 * the store, with a buffer.
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
 * Order: a caller that the buffer cannot serve at once waits with its request in the batcher. When the next batch
 * is about to leave, its callers are served in order, up to the first for which the buffer has too little: that one
 * and all behind it ask the store, and the next refill follows them. So no caller is served while an earlier one
 * waits for its reply.
 */
import { atExit } from "../ground/at-exit.ts";
import type { Timer } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import { type Answer, AT_ONCE, type Store } from "../stores/store.ts";
import type { Receipts } from "./grants.ts";
import { type DrawnPermits, PermitBuffer, permitsOf, receiptsOf } from "./permit-buffer.ts";
import { PermitLink } from "./permit-link.ts";
import { isGranted, NO, type PermitRequest, reserving } from "./permit-request.ts";
import { type RefillOptions, RefillSize } from "./refill-size.ts";
import type { Parts } from "./remote-options.ts";
import { RemoteWaiter } from "./remote-waiter.ts";
import type { ThrowWhenUnavailable } from "./strategy.ts";

/** The request for chunks that are fetched together. In its batch it stands once for each. */
interface Refill extends PermitRequest {
  /** Given up: permits that its replies still grant return to the store. */
  gone: boolean;
}

export class Prefetcher extends PermitLink {
  readonly #maxAge: number;
  readonly #size: RefillSize;
  readonly #buffer = new PermitBuffer();
  /** A lower bound of the permits that a call can use now without overtaking another caller. */
  #ready = 0;
  /** `take` fetches the next refill when the buffer holds no more than this; -1: never. */
  #low = -1;
  /** The refill that is under way. */
  #refill: Refill | undefined;
  /** The reach of the last refill that was cut short: other callers have reserved up to there. */
  #cutAt = -Infinity;
  /** How many callers have no answer yet, so that their instants are not known. */
  #unanswered = 0;
  #expiry: Timer | undefined;
  #forgetExit: (() => void) | undefined;
  #isStopped = false;

  constructor(
    store: Store,
    key: string,
    parts: Parts,
    strategy: ThrowWhenUnavailable,
    { permits, maxAgeMs }: RefillOptions,
  ) {
    super(store, key, parts, strategy);
    this.#maxAge = maxAgeMs * 1000;
    this.#size = new RefillSize(permits);
  }

  /** Takes the permits if this needs neither a wait nor a batch; returns whether it has. */
  take(permits: unknown): boolean {
    if (typeof permits !== "number" || !(permits > 0)) return false;
    if (permits > this.#ready && !this.#isReady(permits)) return false;
    this.#ready -= permits;
    this.#buffer.draw(permits);
    if (this.#buffer.left <= this.#low) this.#fetch();
    return true;
  }

  /** Serves a caller from the buffer, or else sends its request; sends every other request. */
  override send(request: PermitRequest): void {
    if (!(request instanceof RemoteWaiter)) {
      super.send(request);
      return;
    }
    this.#ready = 0;
    if (this.#unanswered > 0 || !this.#serve(request)) {
      this.#await(request);
      super.send(request);
    }
    const { policyState } = this.parts.activePolicies;
    if (this.#size.fits(permitsOf(request.amount), policyState)) this.#fetch();
  }

  /**
   * Serves the callers of a batch that is about to leave, in order, up to the first for which the buffer has too
   * little. Refills follow them, so that the store gives the callers the earlier instants.
   */
  override prepare(requests: readonly PermitRequest[]): readonly PermitRequest[] {
    let isServing = true;
    const left = requests.filter((request) => {
      if (!(request instanceof RemoteWaiter)) return true;
      isServing = isServing && this.#serve(request);
      return !isServing;
    });
    const all = left.filter((request) => request !== this.#refill);
    for (const request of left) if (request === this.#refill) all.push(request);
    if (left.length < requests.length) all.push(...this.#nextRefill());
    return all.length === 0 ? all : super.prepare(all);
  }

  /**
   * Puts permits into the buffer, up to its size. The rest returns to the store, the latest first: only they leave
   * no gap in its schedule.
   */
  override async returnToStore(
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
      await super.returnToStore(amount, { receipts });
      return;
    }
    this.#ready = 0;
    this.#keep(this.#isStopped ? 0 : this.#sizes.permits);
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
    const isHere = permits <= this.#buffer.left && this.#unanswered === 0;
    const wait = isHere ? this.#waitFor(permits) : undefined;
    const grant = takes && wait === 0 ? this.#draw(permits, 0) : undefined;
    if (grant !== undefined) this.#fetch();
    return { wait, grant, ready: this.#isReady(0) ? this.#ready : 0 };
  }

  /** Returns all permits to the store: those in the buffer at once, those under way when they come. */
  release(): void {
    this.#ready = 0;
    if (this.#refill) this.#refill.gone = true;
    this.#refill = undefined;
    this.#keep(0);
  }

  /** Called when the store has run a reset: no other callers have reserved anything now. */
  reset(): void {
    this.#cutAt = -Infinity;
  }

  /** Serves no more callers and fetches no more. */
  stop(): void {
    this.#isStopped = true;
  }

  #isReady(permits: number): boolean {
    if (permits > this.#buffer.left || this.#unanswered > 0) return false;
    const { queue } = this.parts;
    queue.catchUp();
    const now = queue.now();
    this.#ready = queue.end > now ? 0 : this.#buffer.readyAt(now);
    return permits <= this.#ready;
  }

  #await(caller: RemoteWaiter): void {
    if (caller.onAnswered === undefined) this.#unanswered += 1;
    caller.onAnswered = this.#answered;
  }

  readonly #answered = (): void => {
    this.#unanswered -= 1;
  };

  #serve(caller: RemoteWaiter): boolean {
    const permits = permitsOf(caller.amount);
    if (this.#isStopped || permits > this.#buffer.left) return false;
    const wait = this.#waitFor(permits);
    const answer = wait > caller.accepts ? NO : this.#draw(permits, wait);
    caller.answer(answer, this.now());
    return true;
  }

  #draw(permits: number, wait: number): Answer & Receipts {
    const parts: DrawnPermits[] = [];
    this.#ready = 0;
    this.#buffer.draw(permits, parts);
    return { ...AT_ONCE, wait, parts };
  }

  #waitFor(permits: number): number {
    const { queue } = this.parts;
    queue.catchUp();
    const now = queue.now();
    return Math.max(0, Math.max(this.#buffer.dueOf(permits), queue.end) - now);
  }

  // -- refills --

  get #sizes() {
    return this.#size.of(this.parts.activePolicies.policyState);
  }

  /** Sends the requests for the next refill behind those that wait for the next batch. */
  #fetch(): void {
    for (const chunk of this.#nextRefill()) if (!chunk.gone) super.send(chunk);
  }

  /** Returns the requests for the next refill, if half of the last one is used: one for each chunk. */
  #nextRefill(): readonly Refill[] {
    this.#low = -1;
    if (this.#refill !== undefined || this.#isStopped) return [];
    const half = this.#sizes.permits / 2;
    if (this.#buffer.left > half) {
      this.#low = half;
      return [];
    }
    const now = this.now();
    const reach = Math.max(now, this.parts.queue.end) + this.#maxAge;
    if (reach < this.#cutAt + this.#maxAge / 2) return [];
    this.#size.adapt(now, this.#buffer.drawnDue);
    const { permits, chunk } = this.#sizes;
    const chunks = chunk > 0 ? Math.floor((permits - this.#buffer.left) / chunk) : 0;
    if (chunks <= 0) return [];
    const refill = this.#refillOf(chunks, chunk, reach, reach - now);
    this.#refill = refill;
    return Array.from({ length: chunks }, () => refill);
  }

  #refillOf(chunks: number, permits: number, reach: number, longest: number): Refill {
    const amount = this.parts.policyState.amount(permits);
    let open = chunks;
    let isCut = false;
    const lost = () => {
      refill.gone = true;
      this.#refill = undefined;
      this.#cutAt = reach;
    };
    const refill: Refill = {
      gone: false,
      // a chunk that was sent may have been granted already: a second request would grant it twice
      isRepeatable: false,
      toStore: (_late, last) => reserving(amount, longest, 0, last),
      takenBy: (answer) => (isGranted(answer) ? amount : 0),
      answer: (answer, sentAt) => {
        if (isGranted(answer)) {
          const due = this.parts.queue.dueAt(answer.wait, sentAt);
          this.#buffer.add({ due, receipts: answer.receipts, size: permits, left: permits });
        } else {
          isCut = true;
        }
        open -= 1;
        if (open > 0) return;
        this.#refill = undefined;
        if (isCut) this.#cutAt = reach;
        this.#ready = 0;
        this.#fetch();
        this.#arm();
      },
      returnToStore: (answer) => {
        if (isGranted(answer)) super.returnToStore(amount, answer).catch(() => {});
      },
      fail: lost,
      delayed: lost,
    };
    return refill;
  }

  /** Returns the buffered permits in excess of that number to the store, the latest first. */
  #keep(permits: number): void {
    for (const part of this.#buffer.dropBeyond(permits)) this.#return(part);
    this.#arm();
  }

  #return(part: DrawnPermits): void {
    const { policyState, declared } = this.parts;
    const amount = policyState.amount(part.permits);
    const receipts = receiptsOf(part, declared);
    super.returnToStore(amount, { receipts }).catch(() => {});
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
      this.#expiry = this.parts.queue.wakeAt(head.due + this.#maxAge, this.#expire);
      this.#expiry.unref?.();
      this.#forgetExit ??= atExit(() => this.release());
    }
  }

  readonly #expire = (): void => {
    this.#expiry = undefined;
    const { head, left } = this.#buffer;
    if (head !== undefined && head.due + this.#maxAge <= this.parts.queue.now()) {
      this.#size.shrink(left);
      this.release();
    } else {
      this.#arm();
    }
  };
}
