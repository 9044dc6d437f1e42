/** A limiter in this process: every verb is a few lines over the queue's `grant` and `outlook`. */
import type { Policy } from "../algorithms/algorithm.ts";
import { atLeastZero, checkNumber, checkOptions } from "../check.ts";
import { toMillis } from "../clock.ts";
import { QueueFullError } from "../errors.ts";
import { type Amount, type Permits, sizeOf } from "../permits.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/memory.ts";
import { decision } from "./decision.ts";
import type {
  Decision,
  Limiter as Face,
  LocalLimiter,
  LocalReservation,
  TryOptions,
  WaitOptions,
} from "./face.ts";
import {
  checkLimiterOptions,
  checkTryOptions,
  checkWaitOptions,
  LIMITER_OPTIONS,
  type LimiterOptions,
  mostWaiting,
} from "./options.ts";
import { type Account, QueuedReservation } from "./reservation.ts";
import { Waiter } from "./waiter.ts";
import { WaiterQueue } from "./waiter-queue.ts";

export type Limiter = Face;

export const Limiter = {
  /**
   * A limiter in this process, under one policy or under several at once: all let a request pass,
   * or none is charged.
   *
   * @param policies a policy, such as `smoothBursty({ permitsPerSecond: 5 })`, or several by name
   * @param options `{ maxWaiting, clock, name }`
   * @returns the limiter
   * @throws RangeError or TypeError that names the argument, its bound and what it got
   * @example
   * const limiter = Limiter.create({
   *   requests: smoothBursty({ permitsPerSecond: 500 / 60 }),
   *   tokens: smoothBursty({ permitsPerSecond: 30_000 / 60 }),
   * });
   * await limiter.acquire({ requests: 1, tokens: 1200 });
   */
  create(policies: Policies, options: LimiterOptions = {}): LocalLimiter {
    checkOptions("options", options, LIMITER_OPTIONS);
    return new QueueingLimiter(...opened(listPolicies(policies), options));
  },
};

/** What an `acquire` that need not wait answers; one for all, for it never changes. */
export const AT_ONCE = Promise.resolve(0);

/** The queue, the policies and the options of a limiter with a time of its own. */
export function opened(
  policies: PolicyList,
  options: LimiterOptions,
): ConstructorParameters<typeof QueueingLimiter> {
  const checked = checkLimiterOptions(options);
  return [WaiterQueue.open(checked.clock, policies), policies, checked];
}

export class QueueingLimiter implements LocalLimiter {
  readonly #queue: WaiterQueue;
  readonly #account: Account;
  readonly #maxWaiting: number;
  readonly #name: string;
  #policies: PolicyList;

  constructor(
    queue: WaiterQueue,
    policies: PolicyList,
    { maxWaiting, name }: { readonly maxWaiting: number; readonly name: string },
    account: Account = queue,
  ) {
    this.#queue = queue;
    this.#account = account;
    this.#maxWaiting = maxWaiting;
    this.#name = name;
    this.#policies = policies;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    try {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const amount = this.#queue.cell.amount(permits);
      const now = this.#queue.now();
      return this.#queue.grant(now, amount) ? AT_ONCE : this.#wait(now, amount, signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Apart from `acquire`, which would otherwise make room for what the closure holds at every call. */
  #wait(now: number, amount: Amount, signal: AbortSignal | undefined): Promise<number> {
    this.#checkRoom(now, amount);
    return new Promise((resolve) => {
      this.#queue.add(new Acquirer(now, amount, signal, resolve));
    });
  }

  tryAcquire(permits?: Permits): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits = 1, wait?: number | TryOptions): boolean | Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits, wait);
    const queue = this.#queue;
    const amount = queue.cell.amount(permits);
    return queue.grant(queue.now(), amount);
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    try {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const amount = this.#queue.cell.amount(permits);
      const now = this.#queue.now();
      if (this.#queue.grant(now, amount)) return Promise.resolve(true);
      const deadline = now + micros;
      if (micros === 0 || !this.#hasRoom(now, amount)) return Promise.resolve(false);
      if (Math.ceil(this.#queue.instant(now, amount)) > deadline) return Promise.resolve(false);
      return new Promise((resolve) => {
        this.#queue.add(new Trier(now, amount, signal, resolve, deadline));
      });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  reserve(permits: Permits = 1): LocalReservation {
    const amount = this.#queue.cell.amount(permits);
    const now = this.#queue.now();
    if (this.#queue.grant(now, amount)) return this.#reservation(permits, now, amount, 0);
    this.#checkRoom(now, amount);
    const waitMs = toMillis(this.#queue.instant(now, amount) - now);
    return this.#reservation(permits, now, amount, waitMs);
  }

  #reservation(permits: Permits, now: number, amount: Amount, waitMs: number): LocalReservation {
    return new QueuedReservation(this.#queue, this.#account, permits, now, amount, waitMs);
  }

  decide(permits: Permits = 1): Decision {
    const amount = this.#queue.cell.amount(permits);
    const now = this.#queue.now();
    if (this.#queue.grant(now, amount)) {
      const { names } = this.#queue.cell;
      return decision(names, this.#queue.cell.quotas(now), amount, 0, 0);
    }
    return this.#look(now, amount);
  }

  peek(permits: Permits = 1): Decision {
    const amount = this.#queue.cell.amount(permits);
    const now = this.#queue.now();
    return this.#look(now, amount);
  }

  #look(now: number, amount: Amount): Decision {
    const { instant, slowest, quotas } = this.#queue.outlook(now, amount);
    return decision(this.#queue.cell.names, quotas, amount, instant - now, slowest);
  }

  charge(permits: Permits): void {
    this.#queue.charge(this.#queue.possible(permits));
  }

  refund(permits: Permits): void {
    this.#queue.refund(this.#queue.possible(permits));
  }

  pause(ms: number): void {
    this.#queue.pause(Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000));
  }

  update(policies: Policies): void {
    this.#policies = renumber(this.#policies, listPolicies(policies));
    this.#queue.resize(this.#policies);
  }

  /** The policies in force. */
  protected get policies(): readonly Policy[] {
    return this.#policies.list;
  }

  #hasRoom(now: number, amount: Amount): boolean {
    const queue = this.#queue;
    return queue.permits + sizeOf(amount) <= this.#maxWaiting && !queue.overflows(now, amount);
  }

  #checkRoom(now: number, amount: Amount): void {
    if (this.#hasRoom(now, amount)) return;
    const most = mostWaiting(this.#maxWaiting, this.policies);
    throw new QueueFullError(this.#name, sizeOf(amount), this.#queue.permits, most);
  }
}

class Acquirer extends Waiter {
  readonly #resolve: Resolve<number>;

  constructor(
    asked: number,
    amount: Amount,
    signal: AbortSignal | undefined,
    resolve: Resolve<number>,
  ) {
    super(asked, amount, signal);
    this.#resolve = resolve;
  }

  override release(_at: number, now: number): void {
    this.#resolve(toMillis(now - this.asked));
  }

  override abort(reason: unknown): void {
    this.#resolve(Promise.reject(reason));
  }
}

class Trier extends Waiter {
  readonly #deadline: number;
  readonly #resolve: Resolve<boolean>;

  constructor(
    asked: number,
    amount: Amount,
    signal: AbortSignal | undefined,
    resolve: Resolve<boolean>,
    deadline: number,
  ) {
    super(asked, amount, signal);
    this.#deadline = deadline;
    this.#resolve = resolve;
  }

  override get deadline(): number {
    return this.#deadline;
  }

  override release(): void {
    this.#resolve(true);
  }

  override refuse(): void {
    this.#resolve(false);
  }

  override abort(reason: unknown): void {
    this.#resolve(Promise.reject(reason));
  }
}

type Resolve<T> = (answer: T | PromiseLike<T>) => void;
