import { AbortGroups } from "../../ground/abort-groups.ts";
import { type Clock, toMicros } from "../../ground/clock.ts";
import type { RefusedMessage } from "../../ground/diagnostics.ts";
import { StoreUnavailableError } from "../../ground/errors.ts";
import type { Meter } from "../meter.ts";
import type { OutageStats } from "../remote/outage-stats.ts";
import type { FairCall } from "./fair-call.ts";
import type { Ranks } from "./ranks.ts";
import { ShareLine } from "./share-line.ts";
import type { ShareQueue } from "./share-queue.ts";

export interface CallLineOptions {
  readonly clock: Clock;
  readonly meter: Meter;
  /** The result of a `tryAcquire` that is refused. */
  readonly refusal: false | undefined;
  readonly stats: OutageStats;
}

/** The calls that wait in this process, in fair order, with their timers, signals and counters. */
export class CallLine extends ShareLine<FairCall> {
  readonly #options: CallLineOptions;
  readonly #signals = new AbortGroups<FairCall>((call, reason) => {
    this.#leave(call);
    this.#options.meter.left(call.amount, this.now() - call.asked, reason);
    call.resolve(Promise.reject(reason));
  });

  constructor(ranks: Ranks<FairCall, ShareQueue<FairCall>>, options: CallLineOptions) {
    super(ranks, () => toMicros(options.clock.now()));
    this.#options = options;
  }

  override append(call: FairCall): void {
    this.#options.meter.enqueued();
    super.append(call);
    if (call.signal !== undefined) this.#signals.add(call.signal, call);
  }

  /** Refuses the call when its time is over, unless it has gone already. */
  limitWait(call: FairCall): void {
    if (!this.isWaiting(call) || call.deadline === Infinity) return;
    call.timer = this.#options.clock.wakeAt(call.deadline / 1000, () => this.expire(call));
  }

  isWaiting({ turn }: FairCall): boolean {
    return turn.share !== undefined;
  }

  /** Refuses a waiting call that cannot be granted in time. */
  expire(call: FairCall): void {
    this.#leave(call);
    this.#options.meter.expired(call.amount, this.now() - call.asked);
    call.resolve(this.#options.refusal);
  }

  /** Refuses a call that may not wait. @param full the error of an `acquire`: too many calls wait */
  refuse(call: FairCall, reason: RefusedMessage["reason"], full: () => Error): void {
    this.#options.meter.refused(call.amount, reason);
    call.resolve(call.tries ? this.#options.refusal : Promise.reject(full()));
  }

  /** Removes the next call, which is sent to the store: it no longer counts as waiting here. */
  next(): FairCall {
    const call = this.shift() as FairCall;
    this.#forget(call);
    this.#options.meter.ended();
    return call;
  }

  /** The store is away, or the limiter closed: all waiting calls fail, as if they had been sent, too. */
  failAll(error: unknown): void {
    const { stats, meter } = this.#options;
    while (this.size > 0) {
      const call = this.next();
      if (error instanceof StoreUnavailableError) stats.failed(error);
      else meter.cancelled(call.amount, this.now() - call.asked, error);
      call.resolve(Promise.reject(error));
    }
  }

  /** Removes a call, with its timer and its signal. */
  #leave(call: FairCall): void {
    this.remove(call);
    this.#forget(call);
  }

  #forget(call: FairCall): void {
    call.timer?.cancel();
    if (call.signal !== undefined) this.#signals.delete(call.signal, call);
  }
}
