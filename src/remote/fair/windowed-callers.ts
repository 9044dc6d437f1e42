/**
 * The calls of a fair limiter on a store. They wait in this process, in fair order, and a window of them is with
 * the store (`store-window.ts`).
 *
 * While the store grants at once, its queue is empty and a longer window would keep no other process waiting. Then
 * the next calls are also sent, as calls that the store grants now or not at all, so they reserve nothing. Each
 * time all of them are granted, twice as many follow.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { mostWaiting } from "../../api/options.ts";
import { heirOf } from "../../fair/heir-of.ts";
import type { Ranks } from "../../fair/ranks.ts";
import { QueueFullError, StoreUnavailableError } from "../../ground/errors.ts";
import { type Amount, sameAmount, sizeOf } from "../../ground/permits.ts";
import type { RemoteCalls } from "../remote-calls.ts";
import type { Outcome } from "../remote-waiter.ts";
import { type FairRequest, OrderedCaller, type OrderedCallerHost } from "./ordered-caller.ts";
import { StoreWindow } from "./store-window.ts";

/** How many calls are tried beside the window at first, and at most. */
const FEWEST_TRIES = 16;
const MOST_TRIES = 256;

export class WindowedCallers implements OrderedCallerHost {
  /** The calls that have not been sent yet. */
  readonly ranks: Ranks<OrderedCaller>;
  readonly #store: RemoteCalls;
  readonly #window = new StoreWindow();
  /** The calls in the window. */
  readonly #sent = new Set<OrderedCaller>();
  /** How many calls are tried next. */
  #tries = FEWEST_TRIES;
  #isTrying = false;

  constructor(store: RemoteCalls, ranks: Ranks<OrderedCaller>) {
    this.#store = store;
    this.ranks = ranks;
  }

  now(): number {
    return this.#store.parts.queue.now();
  }

  /** The policies in force, by the last reply. */
  get policies(): readonly Policy[] {
    return this.#store.parts.activePolicies.policies;
  }

  /** Puts a new call into the queue, and sends it if the window has room. @param tries see `StoreCaller` */
  enter(request: FairRequest, tries: boolean, resolve: (outcome: never) => void): OrderedCaller {
    const call = new OrderedCaller(this.#store, this, request, tries, resolve);
    const { amount } = call;
    if (this.#store.parts.activePolicies.isImpossible(amount)) {
      // the reply says which policy refuses it
      this.#store.send(call);
    } else if (!this.isFull(amount)) {
      this.ranks.append(call, this.now());
      this.#fill();
      this.#limitWait(call);
    } else if (this.ranks.size > 0) {
      call.decline(() => this.full(amount), "queue-full");
    } else {
      // the store may grant it now
      this.ranks.charge(call.fairEntry, this.now());
      this.#send(call);
    }
    return call;
  }

  /** Refuses the call when its time is over, if it waits in the queue. */
  #limitWait(call: OrderedCaller): void {
    if (!call.isInLine || call.deadline === Infinity) return;
    call.alarm = this.#store.parts.queue.wakeAt(call.deadline, () => this.expire(call));
  }

  /** Refuses a call that cannot be granted in time. */
  expire(call: OrderedCaller): void {
    call.decline(() => this.full(call.amount));
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
  grantedAtOnce({ fairEntry }: Pick<FairRequest, "fairEntry">): void {
    if (this.#isIdle) this.ranks.reset();
    this.ranks.charge(fairEntry, this.now());
  }

  get #isIdle(): boolean {
    return this.ranks.size === 0 && this.#window.calls === 0;
  }

  /** Called when the store has replied to a batch with a call. */
  replied(sentAt: number): void {
    this.#window.replied(sentAt, this.now());
  }

  get #permits(): number {
    return this.ranks.permits + this.#window.permits;
  }

  get #most(): number {
    return mostWaiting(this.#store.parts.maxWaiting, this.policies);
  }

  /** Takes the next call from the queue. */
  #next(): OrderedCaller {
    const call = this.ranks.shift(this.now()) as OrderedCaller;
    this.#leaveLine(call);
    return call;
  }

  #leaveLine(call: OrderedCaller): void {
    // from now on it is that of the queue of promised instants
    call.alarm?.cancel();
    call.alarm = undefined;
  }

  /** The next call of its share takes the place of one that has left. */
  heirOf(call: OrderedCaller): OrderedCaller | undefined {
    const { fairEntry, amount, sentAt } = call;
    // a share has its charge back if the call left before its reply
    const heir = sentAt === undefined ? undefined : heirOf(fairEntry, this.ranks, this.#sent);
    if (heir === undefined || !sameAmount(heir.amount, amount)) return undefined;
    // its share has been charged for the place already
    this.ranks.remove(heir);
    this.#leaveLine(heir);
    this.#vacate(call);
    this.#occupy(heir);
    heir.sentAt = sentAt;
    call.sentAt = undefined;
    return heir;
  }

  #occupy(call: OrderedCaller): void {
    this.#window.add(call.amount, call.fairEntry.size);
    this.#sent.add(call);
  }

  #vacate(call: OrderedCaller): void {
    this.#window.remove(call.amount, call.fairEntry.size);
    this.#sent.delete(call);
  }

  #fill(): void {
    // a call that is sent now would have its reply later than the calls that are tried
    if (this.#isTrying) return;
    const { activePolicies } = this.#store.parts;
    for (let { head } = this.ranks; head !== undefined; head = this.ranks.head) {
      if (!this.#window.hasRoom(head.amount, activePolicies.policyState)) return;
      this.#send(this.#next());
    }
  }

  /** Sends a call of which the share has been charged. */
  #send(call: OrderedCaller): void {
    call.sentAt = this.now();
    this.#occupy(call);
    this.#store.send(call);
  }

  async ended(call: OrderedCaller, outcome: Outcome): Promise<void> {
    const { fairEntry, isGrantedAtOnce } = call;
    if (call.sentAt === undefined) return;
    this.#vacate(call);
    try {
      if ((await outcome) === false) this.ranks.refund(fairEntry);
      if (isGrantedAtOnce && this.#isIdle) this.grantedAtOnce(call);
    } catch (error) {
      this.ranks.refund(fairEntry);
      if (error instanceof StoreUnavailableError) this.#failAll(error);
    }
    this.#fill();
    if (isGrantedAtOnce) void this.#tryMore();
  }

  /** A call had no answer: all waiting calls fail with it, as if they had been sent in its batch. */
  #failAll(error: StoreUnavailableError): void {
    while (this.ranks.size > 0) this.#next().fail(error);
  }

  /** Tries the next calls that ask for the same amount, as long as the store grants them at once. */
  async #tryMore(): Promise<void> {
    if (this.#isTrying) return;
    this.#isTrying = true;
    for (let { head } = this.ranks; head !== undefined; head = this.ranks.head) {
      const { amount } = head;
      const count = this.#alike(amount);
      const tries = Array.from({ length: count }, () => this.#isFree(amount));
      const granted = (await Promise.all(tries)).filter(Boolean);
      for (const _ of granted) this.#handOut(amount);
      this.#tries = Math.min(MOST_TRIES, 2 * this.#tries);
      if (granted.length < count) break;
    }
    this.#tries = FEWEST_TRIES;
    this.#isTrying = false;
    this.#fill();
  }

  /** Takes permits that can be used now; returns whether there were any. */
  async #isFree(amount: Amount): Promise<boolean> {
    const decided = await this.#store.ask("decide", amount).catch(() => undefined);
    return decided?.allowed === true;
  }

  /** How many of the next calls ask for that amount. */
  #alike(amount: Amount): number {
    let count = 0;
    const now = this.now();
    this.ranks.forecast(undefined, (call) => {
      if (count === this.#tries || !sameAmount(call.amount, amount)) return false;
      count += 1;
      return now;
    });
    return count;
  }

  /** Permits were taken: the next call gets them. They return if it left, or if another one goes before it. */
  #handOut(amount: Amount): void {
    const { head } = this.ranks;
    if (head === undefined || !sameAmount(head.amount, amount)) {
      this.#store.change("refund", amount).catch(() => {});
    } else {
      const now = this.now();
      this.#next().release(now, now);
    }
  }
}
