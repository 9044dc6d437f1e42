/** A limiter in this process: every verb is a few lines over the queue's `grant` and `look`. */
import type { Policy } from "../algorithms/algorithm.ts";
import { passing } from "../api/decision.ts";
import type {
  Decision,
  LocalReservation,
  PermitsOnly,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import {
  type CheckedOptions,
  checkLimiterOptions,
  checkShareOptions,
  checkTryOptions,
  checkWaitOptions,
  isTryOptions,
  type LimiterOptions,
  mostWaiting,
  type OnFull,
} from "../api/options.ts";
import { asParticipant, type Combinable, type LocalAsked } from "../api/participant.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import { CallStats, type Counted, type LimiterStats } from "../api/stats.ts";
import type { FairEntry } from "../fair/fair-entry.ts";
import { atLeastZero, checkNumber } from "../ground/check.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import { QueueFullError } from "../ground/errors.ts";
import { type Amount, type Permits, sizeOf } from "../ground/permits.ts";
import { LocalCaller } from "../queue/local-caller.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import {
  type AccountedReservation,
  type CheckedAccount,
  GrantedReservation,
  QueuedReservation,
} from "../queue/reservation.ts";
import { UNKNOWN } from "../queue/supply.ts";
import type { Waiter } from "../queue/waiter.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/policies.ts";
import type { PolicyState } from "../stores/state/one.ts";

/**
 * The result of every `acquire` that does not wait. One promise is enough, because it never
 * changes.
 */
export const AT_ONCE = Promise.resolve(0);

/** The queue, the policies and the options of a limiter with a timeline of its own. */
export function opened(
  policies: PolicyList,
  options: LimiterOptions,
  open: (policies: PolicyList, now: number, epoch: number) => PolicyState,
): ConstructorParameters<typeof QueueingLimiter> {
  const checked = checkLimiterOptions(options);
  const time = new MonotonicTime(checked.clock);
  const queue = new PermitQueue(time, open(policies, time.last, time.epoch), orderIn(options));
  return [queue, policies, checked];
}

export type QueueingOptions = Pick<CheckedOptions, "maxWaiting" | "onFull" | "name">;

export class QueueingLimiter implements Combinable, Counted {
  readonly #queue: PermitQueue;
  readonly #options: QueueingOptions;
  readonly #callStats: CallStats;
  #policies: PolicyList;

  constructor(
    queue: PermitQueue,
    policies: PolicyList,
    options: QueueingOptions,
    callStats = new CallStats({ limiter: options.name }, policies.names),
  ) {
    this.#queue = queue;
    this.#policies = policies;
    this.#options = options;
    this.#callStats = callStats;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    try {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const amount = this.#queue.supply.amount(permits);
      const fairEntry = this.#queue.order.entryOf(options, amount);
      if (this.#grants(amount, fairEntry)) return AT_ONCE;
      this.#mayWait(amount, fairEntry, this.#options.onFull);
      return this.#wait(amount, fairEntry, signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** A method of its own, because a closure in `acquire` would be allocated at every call. */
  #wait<Answer extends number | boolean>(
    amount: Amount,
    fairEntry: FairEntry<Waiter> | undefined,
    signal: AbortSignal | undefined,
    deadline?: number,
  ): Promise<Answer> {
    return new Promise((resolve) => {
      this.#queue.add(
        new LocalCaller(
          this.#callStats,
          this.#queue.last,
          amount,
          signal,
          fairEntry,
          resolve,
          deadline,
        ),
      );
    });
  }

  tryAcquire(permits?: PermitsOnly): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(
    permits: Permits | TryOptions = 1,
    wait?: number | TryOptions,
  ): boolean | Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    const amount = this.#queue.supply.amount(permits);
    const fairEntry = this.#queue.order.entryOf(undefined, amount);
    if (this.#grants(amount, fairEntry)) return true;
    this.#refused(amount, fairEntry);
    return false;
  }

  #tryWithin(permits: unknown, wait: number | TryOptions): Promise<boolean> {
    try {
      const { micros, signal, share } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const amount = this.#queue.supply.amount(permits);
      const fairEntry = this.#queue.order.entryOf(share, amount);
      if (this.#grants(amount, fairEntry)) return Promise.resolve(true);
      const deadline = this.#queue.last + micros;
      const hasRoom = micros === 0 || this.#hasRoom(amount);
      const { instant } = this.#queue.estimate(amount, fairEntry);
      // what is not known may still be in time
      if (hasRoom && (instant <= deadline || (micros > 0 && instant === UNKNOWN)))
        return this.#wait(amount, fairEntry, signal, deadline);
      this.#refused(amount, fairEntry, hasRoom ? "too-long" : "queue-full");
      return Promise.resolve(false);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  reserve(permits: Permits = 1, options?: ShareOptions): LocalReservation {
    checkShareOptions(options);
    return this.#reserve(permits, options);
  }

  [reserveAwaited](
    permits: Permits,
    sequence?: RequestSequence,
    options?: ShareOptions,
    account?: CheckedAccount,
  ): AccountedReservation {
    return this.#reserve(permits, options, sequence, true, account);
  }

  #reserve(
    permits: Permits,
    options: ShareOptions | undefined,
    sequence?: RequestSequence,
    isAwaited = false,
    account: CheckedAccount = this.#queue,
  ): AccountedReservation {
    const amount = this.#queue.supply.amount(permits);
    const fairEntry = this.#queue.order.entryOf(options, amount);
    if (this.#grants(amount, fairEntry, sequence?.since)) {
      return new GrantedReservation(account, permits, amount);
    }
    this.#mayWait(amount, fairEntry);
    if (sequence !== undefined) sequence.since = Math.min(sequence.since, this.#queue.last);
    return new QueuedReservation(
      this.#queue,
      this.#callStats,
      permits,
      amount,
      fairEntry,
      isAwaited,
      account,
    );
  }

  decide(permits: Permits = 1, options?: ShareOptions): Decision {
    checkShareOptions(options);
    return this.#decide(permits, options, true);
  }

  /** @param isReported whether a refusal is counted and published */
  #decide(permits: Permits, options: ShareOptions | undefined, isReported: boolean): Decision {
    const amount = this.#queue.supply.amount(permits);
    const fairEntry = this.#queue.order.entryOf(options, amount);
    if (this.#grants(amount, fairEntry)) {
      const { supply, last } = this.#queue;
      return passing(supply.names, supply.quotas(last), amount);
    }
    const refusal = this.#look(amount, fairEntry);
    // the look has refused those who were in front, and cannot be in time any more
    if (refusal.allowed) return this.#decide(permits, options, isReported);
    if (isReported) this.#callStats.refused(amount, "too-long", () => refusal);
    return refusal;
  }

  peek(permits: Permits = 1, options?: ShareOptions): Decision {
    checkShareOptions(options);
    const amount = this.#queue.supply.amount(permits);
    const fairEntry = this.#queue.order.entryOf(options, amount);
    this.#queue.catchUp();
    return this.#look(amount, fairEntry);
  }

  #look(amount: Amount, fairEntry: FairEntry<Waiter> | undefined): Decision {
    return this.#queue.look(amount, this.#options.maxWaiting, fairEntry);
  }

  charge(permits: Permits): void {
    this.#queue.charge(this.#queue.checked(permits));
  }

  refund(permits: Permits): void {
    this.#queue.refund(this.#queue.checked(permits));
  }

  pause(ms: number): void {
    this.#queue.pause(Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000));
  }

  reset(): void {
    this.#queue.reset();
  }

  update(policies: Policies): void {
    this.#policies = renumber(this.#policies, listPolicies(policies));
    this.#queue.resize(this.policies);
  }

  /** The current counters, as a plain object. `LimiterStats` says what each counts. */
  get stats(): LimiterStats {
    return { ...this.#callStats.counts };
  }

  /** The policies in force. */
  protected get policies(): readonly Policy[] {
    return this.#policies.list;
  }

  [asParticipant](options?: ShareOptions): LocalAsked {
    return {
      isFair: this.#queue.order !== FIFO,
      callStats: () => this.#callStats,
      amount: (permits) => this.#queue.supply.amount(permits),
      decide: (permits) => this.#decide(permits, options, false),
      full: (permits) => this.#full(this.#queue.supply.amount(permits)),
    };
  }

  /** Takes the permits if they can be used now, and counts that. @param since see `WaiterQueue.grant` */
  #grants(amount: Amount, fairEntry: FairEntry<Waiter> | undefined, since?: number): boolean {
    const granted = this.#queue.grant(amount, fairEntry, since);
    if (granted) this.#callStats.counts.granted += 1;
    return granted;
  }

  #hasRoom(amount: Amount, onFull: OnFull = "reject"): boolean {
    const { maxWaiting } = this.#options;
    return this.#queue.hasRoom(amount, maxWaiting, onFull, (each) => this.#full(each, true));
  }

  /** @throws QueueFullError if the permits may not wait */
  #mayWait(amount: Amount, fairEntry: FairEntry<Waiter> | undefined, onFull?: OnFull): void {
    if (this.#hasRoom(amount, onFull)) return;
    this.#refused(amount, fairEntry, "queue-full");
    throw this.#full(amount);
  }

  #full(amount: Amount, dropped = false): QueueFullError {
    const { name, maxWaiting } = this.#options;
    const most = mostWaiting(maxWaiting, this.policies);
    return new QueueFullError(name, sizeOf(amount), this.#queue.permits, most, dropped);
  }

  #refused(
    amount: Amount,
    fairEntry: FairEntry<Waiter> | undefined,
    reason: RefusedMessage["reason"] = "too-long",
  ): void {
    // how long the wait would be if there were room
    this.#callStats.refused(amount, reason, () => this.#queue.look(amount, Infinity, fairEntry));
  }
}
