/**
 * The calls of a fair limiter on a store. They wait in this process, in fair order, and a window of them is with
 * the store (`store-window.ts`).
 *
 * While the store grants at once, its line is empty and a longer window would keep no other process waiting. Then
 * the next calls are tried beside the window: the store grants them now or not at all, so they reserve
 * nothing. Each time all of them are granted, twice as many follow.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { toMillis } from "../../ground/clock.ts";
import { LimiterClosedError, QueueFullError, StoreUnavailableError } from "../../ground/errors.ts";
import { type Amount, sameAmount, sizeOf } from "../../ground/permits.ts";
import { mostWaiting } from "../options.ts";
import type { RemoteQueue } from "../remote/remote-queue.ts";
import { CallLine } from "./call-line.ts";
import type { FairCall, FairRequest } from "./fair-call.ts";
import { StoreWindow } from "./store-window.ts";

/** How long a measured round trip is used, microseconds. */
const MEASURED_EVERY = 1_000_000;
/** How many calls are tried beside the window at first, and at most. */
const FEWEST_TRIES = 16;
const MOST_TRIES = 256;

export class FairQueue {
  readonly line: CallLine;
  /** The calls behind these: they ask the store. */
  readonly #store: RemoteQueue;
  readonly #window = new StoreWindow();
  /** How many calls are tried next. */
  #tries = FEWEST_TRIES;
  #isTrying = false;
  #isMeasuring = false;
  #measuredAt = 0;

  constructor(store: RemoteQueue, ranks: ConstructorParameters<typeof CallLine>[0]) {
    const { clock, meter, stats } = store.parts;
    this.#store = store;
    this.line = new CallLine(ranks, { clock, meter, stats, refusal: false });
  }

  now(): number {
    return this.#store.parts.line.now();
  }

  /** The policies in force, by the last reply. */
  get policies(): readonly Policy[] {
    return this.#store.parts.inForce.policies;
  }

  /** Puts the call into the line, and sends it if the window has room. */
  enter(call: FairCall): void {
    if (this.#store.parts.inForce.isImpossible(call.amount)) {
      // the limiter behind this one knows the error
      this.#ask(call).then(call.resolve, (error) => call.resolve(Promise.reject(error)));
      return;
    }
    if (this.isFull(call.amount)) {
      if (this.line.size === 0) this.#sendAtOnce(call);
      else this.line.refuse(call, "queue-full", () => this.full(call.amount));
      return;
    }
    this.line.append(call);
    this.#fill();
    this.line.limitWait(call);
  }

  /** Whether `maxWaiting`, or a bound of a policy, leaves no room for that many more permits. */
  isFull(amount: Amount): boolean {
    return this.#permits + sizeOf(amount) > this.#most;
  }

  full(amount: Amount): QueueFullError {
    const { name } = this.#store.parts;
    return new QueueFullError(name, sizeOf(amount), this.#permits, this.#most);
  }

  /** Called when the store has granted a call at once. If the limiter is idle, no share owes anything. */
  grantedAtOnce({ turn }: Pick<FairRequest, "turn">): void {
    if (this.line.size === 0 && this.#window.calls === 0) this.line.forget();
    this.line.charge(turn);
  }

  /** Measures how long the store takes for a reply to a call that does not wait. */
  async measure<T>(reply: Promise<T>): Promise<T> {
    const sentAt = this.now();
    const answer = await reply;
    this.#noticed(this.now() - sentAt);
    return answer;
  }

  /** Records how long a reply took, microseconds. If it was slow, the client may have connected: measures again. */
  #noticed(roundTrip: number): void {
    if (!this.#window.isLonger(roundTrip)) this.#window.measured(roundTrip);
    else void this.#measureAgain();
  }

  async #measureAgain(): Promise<void> {
    if (this.#isMeasuring) return;
    this.#isMeasuring = true;
    const sentAt = this.now();
    this.#measuredAt = sentAt;
    const seen = await this.#store.peek(1).catch(() => undefined);
    if (seen !== undefined) this.#window.measured(this.now() - sentAt);
    this.#isMeasuring = false;
  }

  get #permits(): number {
    return this.line.permits + this.#window.permits;
  }

  get #most(): number {
    return mostWaiting(this.#store.parts.maxWaiting, this.policies);
  }

  /** The store may grant it now; the limiter behind this one refuses it otherwise. */
  #sendAtOnce(call: FairCall): void {
    this.line.charge(call.turn);
    this.#send(call);
  }

  #fill(): void {
    // a call that is sent now would have its reply later than the calls that are tried
    if (this.#isTrying) return;
    const { inForce } = this.#store.parts;
    for (let { head } = this.line; head !== undefined; head = this.line.head) {
      if (!this.#window.hasRoom(head.amount, inForce.policyState)) return;
      this.#send(this.line.next());
    }
  }

  #ask({ permits, signal, tries, deadline }: FairCall): Promise<number | boolean> {
    if (!tries) return this.#store.acquire(permits, signal && { signal });
    const timeoutMs = Math.max(0, deadline - this.now()) / 1000;
    return this.#store.tryAcquire(permits, { timeoutMs, signal });
  }

  #send(call: FairCall): void {
    const { amount, turn } = call;
    const sentAt = this.now();
    this.#window.add(amount, turn.size);
    // a window that is longer than it must be takes permits from other processes
    const isOld = sentAt - this.#measuredAt > MEASURED_EVERY;
    if (isOld && !this.#window.isShortest) void this.#measureAgain();
    this.#ask(call).then(
      (granted) => {
        this.#window.remove(amount, turn.size);
        call.resolve(
          typeof granted === "number" ? granted + toMillis(sentAt - call.asked) : granted,
        );
        if (granted === false) this.line.refund(turn);
        if (granted === 0) {
          this.#noticed(this.now() - sentAt);
          if (this.line.size === 0) this.grantedAtOnce(call);
        }
        this.#fill();
        if (granted === 0) void this.#tryMore();
      },
      (error: unknown) => {
        this.#window.remove(amount, turn.size);
        this.line.refund(turn);
        call.resolve(Promise.reject(error));
        if (error instanceof StoreUnavailableError || error instanceof LimiterClosedError) {
          this.line.failAll(error);
        }
        this.#fill();
      },
    );
  }

  /** Tries the next calls that ask for the same amount, as long as the store grants them at once. */
  async #tryMore(): Promise<void> {
    if (this.#isTrying) return;
    this.#isTrying = true;
    for (let { head } = this.line; head !== undefined; head = this.line.head) {
      const { amount } = head;
      const count = this.#alike(amount);
      const tries = Array.from({ length: count }, () =>
        this.#store.takeQuietly(amount).catch(() => false),
      );
      const granted = (await Promise.all(tries)).filter(Boolean);
      for (const _ of granted) this.#handOut(amount);
      this.#tries = Math.min(MOST_TRIES, 2 * this.#tries);
      if (granted.length < count) break;
    }
    this.#tries = FEWEST_TRIES;
    this.#isTrying = false;
    this.#fill();
  }

  /** How many of the next calls ask for that amount. */
  #alike(amount: Amount): number {
    let count = 0;
    for (const call of this.line.upcoming()) {
      if (count === this.#tries || !sameAmount(call.amount, amount)) break;
      count += 1;
    }
    return count;
  }

  /** Permits were taken: the next call gets them. They return if it left, or if another one goes before it. */
  #handOut(amount: Amount): void {
    const { head } = this.line;
    if (head === undefined || !sameAmount(head.amount, amount)) {
      this.#store.change("refund", amount).catch(() => {});
      return;
    }
    const call = this.line.next();
    call.resolve(call.tries ? true : toMillis(this.now() - call.asked));
  }
}
