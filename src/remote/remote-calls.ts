/**
 * The calls of one limiter on a store, first in, first out. `acquire`, `tryAcquire` and `reserve` make a waiter,
 * which is sent to the store; when the store has promised its permits, a caller waits in `parts.queue`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { decision } from "../api/decision.ts";
import type {
  Decision,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import {
  checkShareOptions,
  checkSignalOptions,
  checkTryOptions,
  mostWaiting,
  refuseShares,
} from "../api/options.ts";
import { atLeastZero } from "../ground/check.ts";
import { LimiterClosedError, QueueFullError } from "../ground/errors.ts";
import { allEnded, settleInTurn } from "../ground/in-turn.ts";
import { LinkedList } from "../ground/linked-list.ts";
import { type Amount, combine, type Permits, sizeOf } from "../ground/permits.ts";
import { correct, type Payment, unpaid } from "../queue/reservation.ts";
import type { QueueEntry } from "../queue/waiter.ts";
import type { Store } from "../stores/store.ts";
import type { FallbackHost } from "./fallback-limiter.ts";
import { type Receipts, receiptsOfPart } from "./grants.ts";
import { PermitLink } from "./permit-link.ts";
import {
  type CallOptions,
  type ChangeVerb,
  changeOf,
  type PermitRequest,
  pauseOf,
  StoreCall,
} from "./permit-request.ts";
import { Prefetcher } from "./prefetcher.ts";
import type { Parts } from "./remote-options.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import type { Charged, RemoteWaiter, WaiterHost, Wanted } from "./remote-waiter.ts";
import { StoreCaller } from "./store-caller.ts";
import type { ThrowWhenUnavailable } from "./strategy.ts";
import { whenUnavailable } from "./when-unavailable.ts";

type ReservedInStore = Parameters<WaiterHost["reserved"]>[0];

const NO_WAIT = Promise.resolve(0);
const GRANTED = Promise.resolve(true);

export class RemoteCalls implements WaiterHost, FallbackHost {
  readonly parts: Parts;
  readonly strategy: ThrowWhenUnavailable;
  readonly link: PermitLink;
  readonly prefetcher: Prefetcher | undefined;
  /** The waiters without an answer, and reservations that are awaited. */
  readonly #waiters = new LinkedList<QueueEntry>();
  /** Reservations for the count of `maxWaiting`: each counts only as long as it is pending. */
  readonly #reserved = new Set<ReservedInStore>();
  /** The latest end of the pauses of a batch, after which callers ask again. */
  #againUntil: number | undefined;
  #closing: Promise<void> | undefined;

  constructor(store: Store, key: string, parts: Parts) {
    this.parts = parts;
    this.strategy = whenUnavailable(parts, this);
    this.prefetcher =
      parts.prefetch && new Prefetcher(store, key, parts, this.strategy, parts.prefetch);
    this.link = this.prefetcher ?? new PermitLink(store, key, parts, this.strategy);
    parts.queue.open((grant) => {
      // no caller waits for this request: if it fails, the permits are lost
      this.returnToStore(grant.amount, grant, grant.instant).catch(() => {});
    });
  }

  acquire(permits: Permits, options: WaitOptions | undefined): Promise<number> {
    if (options === undefined && this.#isPrefetched(permits)) return NO_WAIT;
    return new Promise((resolve) => {
      const wanted = this.#wanted(permits, undefined, checkSignalOptions(options));
      this.send(new StoreCaller(this, wanted, false, resolve));
    });
  }

  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    if (wait === 0 && this.#isPrefetched(permits)) return GRANTED;
    return new Promise((resolve) => {
      const { micros, signal, share } = checkTryOptions(wait);
      refuseShares(share);
      const wanted = this.#wanted(permits, micros, signal);
      this.send(new StoreCaller(this, wanted, true, resolve));
    });
  }

  reserve(permits: Permits, options?: ShareOptions): Promise<RemoteReservation> {
    return new Promise((resolve) => {
      checkShareOptions(options);
      refuseShares(options);
      const wanted = this.#wanted(permits, undefined, undefined);
      this.send(new RemoteReservation(this, wanted, resolve));
    });
  }

  /** A caller of a limiter that serves all callers in order cannot be overtaken. */
  reserveAwaited(permits: Permits, options?: ShareOptions): Promise<Reservation> {
    return this.reserve(permits, options);
  }

  /** Checks the arguments of a call for permits that can be used within `longest`, microseconds. */
  #wanted(permits: Permits, longest: number | undefined, signal: AbortSignal | undefined): Wanted {
    signal?.throwIfAborted();
    const amount = this.parts.policyState.amount(permits);
    this.checkOpen();
    return { permits, amount, longest: this.hasRoom(amount) ? longest : 0, signal };
  }

  /** Takes prefetched permits, if there are enough and no caller waits; returns whether it has. */
  #isPrefetched(permits: Permits): boolean {
    if (!this.prefetcher?.take(permits)) return false;
    this.parts.callStats.counts.granted += 1;
    return true;
  }

  async decide(permits: Permits, options?: ShareOptions): Promise<Decision> {
    const amount = this.#amount(permits, options);
    const decided = await this.ask("decide", amount);
    const { callStats } = this.parts;
    if (decided.allowed) callStats.granted(amount, 0);
    else callStats.refused(amount, "too-long", () => decided);
    return decided;
  }

  async peek(permits: Permits, options?: ShareOptions): Promise<Decision> {
    return this.ask("peek", this.#amount(permits, options));
  }

  #amount(permits: Permits, options: ShareOptions | undefined): Amount {
    checkShareOptions(options);
    refuseShares(options);
    return this.parts.policyState.amount(permits);
  }

  send(request: PermitRequest): void {
    this.link.send(request);
  }

  /** Sends a request, and counts its error if it fails. Permits may return while the limiter closes. */
  call<T>(options: CallOptions<T>): Promise<T> {
    const failed = (error: unknown) => {
      this.parts.stats.failed(error);
      options.failed?.(error);
    };
    const call = new StoreCall({ ...options, failed });
    this.link.send(call);
    return call.promise;
  }

  /** Prefetched permits decide where possible; quotas always come from the store. */
  ask(verb: "decide" | "peek", amount: Amount): Promise<Decision> {
    this.checkOpen();
    const { policyState, activePolicies } = this.parts;
    const { wait, grant, ready = 0 } = this.prefetcher?.look(amount, verb === "decide") ?? {};
    const asked = wait === undefined ? verb : "peek";
    const returnToStore = (granted: Receipts) =>
      void this.returnToStore(amount, granted).catch(() => {});
    const failed = () => {
      if (grant !== undefined) returnToStore(grant);
    };
    return this.call({
      request: (late) => ({ verb: asked, amount, late }),
      ...(asked === "decide" && { takes: amount, returnToStore }),
      result: (answer) => {
        if (answer.quotas.length === 0) {
          failed();
          throw activePolicies.excess(amount);
        }
        const quotas = answer.quotas.map((each) => {
          const allowed = wait === undefined ? each.allowed : wait === 0;
          // prefetched permits can be used whatever the store has left
          const remaining = Math.max(each.remaining, Math.min(each.limit, ready));
          return { ...each, remaining, allowed };
        });
        const shortest = wait ?? answer.wait;
        const micros = shortest > 0 && !this.hasRoom(amount) ? Infinity : shortest;
        return decision(policyState.names, quotas, amount, micros, answer.slowest);
      },
      here: (here) => {
        failed();
        return here.decide(verb, amount);
      },
      failed,
    });
  }

  /** Returns the amount. @throws PermitsExceedCapacityError if the policies could never let it through */
  #possible(permits: Permits): Amount {
    this.checkOpen();
    const { policyState, activePolicies } = this.parts;
    const amount = policyState.amount(permits);
    if (activePolicies.isImpossible(amount)) throw activePolicies.excess(amount);
    return amount;
  }

  async charge(permits: Permits): Promise<void> {
    await this.change("charge", this.#possible(permits));
  }

  async refund(permits: Permits): Promise<void> {
    await this.change("refund", this.#possible(permits));
  }

  /** @param receipts of the grant that the permits of a refund belong to; absent: that is not known */
  change(verb: ChangeVerb, amount: Amount, receipts?: readonly number[]): Promise<void> {
    return this.call(changeOf(verb, amount, receipts));
  }

  async settle(reservation: Charged, actual: Permits): Promise<void> {
    const amount = this.parts.policyState.amount(actual, atLeastZero);
    await settleInTurn(reservation, amount, (used) => this.pay(reservation, used));
  }

  pay(reservation: Charged, used: Amount): Promise<void> {
    const changes: Promise<void>[] = [];
    const change = (verb: Payment[0], amount: Amount, receipts?: readonly number[]) => {
      if (sizeOf(amount) === 0) return;
      changes.push(
        this.change(verb, amount, receipts).catch((error) => {
          reservation.charged = unpaid(reservation.charged, [verb, amount]);
          throw error;
        }),
      );
    };
    const { charged: before, grant } = reservation;
    const excess = (was: number, granted = 0) => Math.max(0, was - granted);
    const account = {
      charge: (amount: Amount) => change("charge", amount),
      // what was granted comes back to its own window, so that a later one that is promised does not grant it once more
      refund: (amount: Amount) => {
        const later = grant === undefined ? before : combine(before, grant.amount, excess);
        const plain = combine(amount, later, (all, most = 0) => Math.min(all, most));
        change("refund", plain);
        change("refund", combine(amount, plain, excess), grant && receiptsOfPart(grant));
      },
    };
    reservation.charged = correct(account, before, used);
    if (grant !== undefined) {
      const left = combine(grant.amount, reservation.charged, (is, most = 0) => Math.min(is, most));
      reservation.grant = { ...grant, amount: left };
    }
    return allEnded(changes);
  }

  pause(micros: number): Promise<void> {
    const { queue } = this.parts;
    const until = queue.heldFor(micros);
    const held = queue.pause(micros);
    const pause = pauseOf(micros);
    const options: CallOptions<void> = {
      ...pause,
      // callers whose requests were on the way have their promises then, and so have those behind it in its batch
      result: () => {
        queue.confirm(held);
        this.#askAgainAfterBatch(until);
      },
      here: (...args) => {
        queue.confirm(held);
        pause.here?.(...args);
        this.#askAgain(until);
      },
      // callers keep what they were promised
      failed: () => queue.endPauses([held]),
    };
    return this.#retime(options, this.#returnsAll ? Infinity : until);
  }

  /** Whether a caller has no answer yet (true), or a reservation has none or is awaited (false). */
  #hasWaiter(isAwaited: boolean): boolean {
    for (const waiter of this.#waiters) {
      if ((waiter as RemoteWaiter).isAwaited === isAwaited) return true;
    }
    return false;
  }

  /** Whether a pause that defers one caller returns the permits of all. */
  get #returnsAll(): boolean {
    // reservations that are awaited go when the pause ends: no caller may go just after it then
    return this.#hasWaiter(false);
  }

  reset(): Promise<void> {
    this.strategy.outdated();
    const { queue } = this.parts;
    const endPauses = queue.reset();
    return this.#retime({
      request: () => ({ verb: "reset" }),
      result: () => {
        // callers whose requests were on the way have permits of the old state then
        if (queue.forget()) this.#askAgainAfterBatch(0);
        endPauses();
        this.prefetcher?.reset();
      },
    });
  }

  /**
   * Makes a call that moves instants. Returns promised permits, those for before `until` or all, and asks
   * again for the callers that are left without, in the same batch. The permits come before the call, since they belong to
   * the old state. Otherwise all callers with an instant inside a pause would go at once when it ends.
   */
  #retime(options: CallOptions<void>, until?: number): Promise<void> {
    const isAsked = this.#hasWaiter(true);
    let isRefused = false;
    const done = this.call({
      ...options,
      failed: (error) => {
        isRefused = true;
        options.failed?.(error);
      },
    });
    // while the store is away the call may have no effect, and then the callers keep their permits
    if (isRefused) return done;
    // those whose requests are on the way must not come before the callers that ask again: all do so in `result`
    if (isAsked) this.prefetcher?.release();
    else this.#askAgain(until);
    return done;
  }

  /** Asks again once for all pauses of a batch: each time thousands of requests may be queued again. */
  #askAgainAfterBatch(until: number): void {
    if (this.#againUntil === undefined) {
      this.parts.queue.afterBatch(() => {
        const latest = this.#againUntil;
        this.#againUntil = undefined;
        this.link.sendAhead(() => this.#askAgain(latest));
      });
    }
    this.#againUntil = Math.max(this.#againUntil ?? 0, until);
  }

  /** Returns promised permits, those for before `until` or all, and asks again for the callers that are left without. */
  #askAgain(until?: number): void {
    // the queue holds nothing but callers
    const callers = this.parts.queue.empty(until, this.#returnsAll) as readonly StoreCaller[];
    this.prefetcher?.release();
    for (const caller of callers) {
      caller.again();
      this.send(caller);
    }
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /** @throws LimiterClosedError */
  checkOpen(): void {
    if (this.isClosed) throw new LimiterClosedError(this.parts.name);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close(new LimiterClosedError(this.parts.name));
    return this.#closing;
  }

  async #close(error: Error): Promise<void> {
    // a waiter that leaves would let those behind it have prefetched permits
    this.prefetcher?.stop();
    const { queue } = this.parts;
    for (const waiter of queue.empty()) waiter.abort(error, queue.now());
    for (const waiter of [...this.#waiters] as RemoteWaiter[]) {
      // permits that return from one may let another go
      if (this.#waiters.has(waiter)) waiter.abort(error, queue.now());
    }
    this.prefetcher?.release();
    // the queue returns the permits that are left over first
    await Promise.resolve();
    await this.link.close(error);
    const { outageStats, stats } = this.parts;
    // the limiter of a key shares its statistics with the other keys, which go on
    if (outageStats === undefined) stats.end();
  }

  // -- for the waiters and the fallback --

  track(waiter: RemoteWaiter, signals: readonly AbortSignal[]): void {
    // a reservation may be awaited several times, each with a signal
    if (!this.#waiters.has(waiter)) this.#waiters.add(waiter);
    this.parts.queue.heedBeside(waiter, signals);
  }

  untrack(waiter: RemoteWaiter, signals: readonly AbortSignal[]): void {
    if (this.#waiters.has(waiter)) this.#waiters.remove(waiter);
    this.parts.queue.ignore(waiter, signals);
  }

  reserved(reservation: ReservedInStore): void {
    if (this.parts.maxWaiting < Infinity) this.#reserved.add(reservation);
  }

  returnToStore(amount: Amount, granted: Receipts, instant?: number): Promise<void> {
    return this.link.returnToStore(amount, granted, instant);
  }

  /** How many permits callers wait for, in this process. */
  get #waiting(): number {
    let waiting = this.parts.queue.permits + this.strategy.waiting;
    for (const reservation of this.#reserved) {
      if (reservation.isPending) waiting += sizeOf(reservation.amount);
      else this.#reserved.delete(reservation);
    }
    return waiting;
  }

  hasRoom(amount: Amount): boolean {
    const { maxWaiting } = this.parts;
    return maxWaiting === Infinity || this.#waiting + sizeOf(amount) <= maxWaiting;
  }

  full(
    amount: Amount,
    policies: readonly Policy[] = this.parts.activePolicies.policies,
  ): QueueFullError {
    const { name, maxWaiting } = this.parts;
    const most = mostWaiting(maxWaiting, policies);
    return new QueueFullError(name, sizeOf(amount), this.#waiting, most);
  }
}
