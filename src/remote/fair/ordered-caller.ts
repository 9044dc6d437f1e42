import type { FairEntry } from "../../fair/fair-entry.ts";
import type { Ranks } from "../../fair/ranks.ts";
import type { Timer } from "../../ground/clock.ts";
import type { Answer } from "../../stores/store.ts";
import type { Grant } from "../grants.ts";
import type { Outcome, WaiterHost, Wanted } from "../remote-waiter.ts";
import { StoreCaller } from "../store-caller.ts";

/** The checked arguments of a call. */
export interface FairRequest extends Wanted {
  readonly fairEntry: FairEntry<OrderedCaller>;
}

/** The part of `WindowedCallers` that its calls use. */
export interface OrderedCallerHost {
  /** The calls that have not been sent yet. */
  readonly ranks: Ranks<OrderedCaller>;
  /** The store has replied to a batch that was sent at `sentAt`. */
  replied(sentAt: number): void;
  /** The call has an outcome. */
  ended(call: OrderedCaller, outcome: Outcome): void;
  /** Returns the call that takes the place with the store of one that has left. */
  heirOf(call: OrderedCaller): OrderedCaller | undefined;
}

/** A caller of `acquire` or `tryAcquire`: first in the queue of its share, then with the store. */
export class OrderedCaller extends StoreCaller {
  declare readonly fairEntry: FairEntry<OrderedCaller>;
  /** Ends its time-out while it is in the queue. */
  alarm: Timer | undefined;
  /** When it was sent to the store, microseconds; `undefined`: it has no place there, or not any more. */
  sentAt: number | undefined;
  /** Whether the store had the permits when it was asked. */
  isGrantedAtOnce = false;
  readonly #queue: OrderedCallerHost;

  constructor(
    host: WaiterHost,
    queue: OrderedCallerHost,
    request: FairRequest,
    tries: boolean,
    resolve: (outcome: never) => void,
  ) {
    super(host, request, tries, resolve);
    this.#queue = queue;
  }

  get isInLine(): boolean {
    return this.fairEntry.share !== undefined;
  }

  override get accepts(): number {
    return this.host.hasRoom(this.amount) ? this.left : 0;
  }

  override answer(answer: Answer, sentAt: number): void {
    this.#queue.replied(sentAt);
    super.answer(answer, sentAt);
  }

  override granted(wait: number, grant?: Grant): void {
    this.isGrantedAtOnce = wait === 0 && !this.isAgain;
    // the time in the queue is a wait; the round trip is not
    if (this.isGrantedAtOnce) this.release(0, this.sentAt ?? this.asked);
    else super.granted(wait, grant);
  }

  heir(): OrderedCaller | undefined {
    const heir = this.#queue.heirOf(this);
    heir?.promised();
    return heir;
  }

  protected override untrack(): void {
    super.untrack();
    this.alarm?.cancel();
    this.#queue.ranks.remove(this);
  }

  protected override settle(outcome: Outcome): void {
    super.settle(outcome);
    this.#queue.ended(this, outcome);
  }
}
