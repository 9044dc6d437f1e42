/**
 * A fair limiter on a store: a decorator in front of a limiter that serves its callers first in, first out.
 * Callers wait in this process, in fair order, and are sent to the store a few at a time (`store-window.ts`).
 */

import type { Policy } from "../../algorithms/algorithm.ts";
import { atLeastZero } from "../../ground/check.ts";
import { toMicros } from "../../ground/clock.ts";
import { asyncDispose } from "../../ground/dispose.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../ground/errors.ts";
import { type Amount, combine, type Permits } from "../../ground/permits.ts";
import { openPolicyState } from "../../stores/joint-policy-state.ts";
import type { Policies, PolicyList } from "../../stores/policies.ts";
import type { PolicyState } from "../../stores/policy-state.ts";
import { type Backlog, type BacklogLimiter, reserveBehind } from "../backlog.ts";
import type {
  Decision,
  RemoteLimiter as Face,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../limiter-api.ts";
import { asMember, isFair, type RateMember, type SharedLimiter, type Taken } from "../member.ts";
import { type Counted, Meter } from "../meter.ts";
import {
  checkShareOptions,
  checkTryOptions,
  checkWaitOptions,
  isTryOptions,
  shareIn,
} from "../options.ts";
import type { Order } from "../order.ts";
import type { RemoteCounts, RemoteStats, StoreState } from "../remote/outage-stats.ts";
import type { RemoteLimiter } from "../remote/remote-limiter.ts";
import type { RemoteOptions } from "../remote/remote-options.ts";
import { correct } from "../reservation.ts";
import { FairCall, type FairRequest } from "./fair-call.ts";
import { FairOutlook } from "./fair-outlook.ts";
import { FairQueue } from "./fair-queue.ts";
import { ChargedReservation, WaitingReservation } from "./fair-remote-reservation.ts";
import type { Turn } from "./turn.ts";

/** The limiter in front of which a fair one stands. */
export const behind: unique symbol = Symbol("behind");

type FairRanks = ConstructorParameters<typeof FairQueue>[1];

/** What a fair limiter needs beside the limiter in front of which it stands. */
export interface FairParts {
  readonly order: Order;
  readonly declared: PolicyList;
  readonly options: Pick<RemoteOptions, "name" | "clock" | "maxWaiting" | "key">;
  /** What is counted here; shared by all keys of a limiter. */
  readonly counts: RemoteCounts;
}

export class FairRemoteLimiter
  implements Face, Counted, BacklogLimiter, SharedLimiter, AsyncDisposable
{
  /** The limiter that asks the store. */
  readonly [behind]: RemoteLimiter;
  readonly [isFair] = true;
  readonly #parts: FairParts;
  readonly #queue: FairQueue;
  readonly #meter: Meter;
  /** The policies' names; the state is in the store. */
  readonly #policyState: PolicyState;
  readonly #outlook: FairOutlook;

  constructor(limiter: RemoteLimiter, parts: FairParts) {
    const { declared, options, counts, order } = parts;
    const { name, key, clock, maxWaiting } = options;
    const meter = new Meter({ limiter: name }, declared.names, counts);
    this[behind] = limiter;
    this.#parts = parts;
    this.#policyState = openPolicyState(declared, 0, 0);
    this.#meter = key === undefined ? meter : meter.of(key);
    this.#queue = new FairQueue(limiter, order.ranks() as FairRanks, {
      ...{ name, clock, maxWaiting, names: declared.names, meter: this.#meter },
      failed: (error) => {
        if (error instanceof StoreUnavailableError) counts.failed += 1;
      },
    });
    this.#outlook = new FairOutlook(limiter, this.#queue, declared.names);
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return new Promise((resolve) => {
      this.#acquire(permits, options, resolve);
    });
  }

  #acquire(
    permits: Permits,
    options: WaitOptions | undefined,
    resolve: (waitedMs: number | PromiseLike<never>) => void,
  ): FairCall {
    const signal = checkWaitOptions(options);
    signal?.throwIfAborted();
    const asked = this.#asked(permits, options);
    this.#checkOpen();
    const call = new FairCall(asked, this.#queue.now(), signal, resolve);
    this.#queue.enter(call);
    return call;
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    return this.#tryWithin(permits, 0);
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const asked = this.#asked(permits, shareIn(wait));
      this.#checkOpen();
      if (micros === 0) {
        resolve(this.#tryNow(asked, signal));
        return;
      }
      const call = new FairCall(asked, this.#queue.now(), signal, resolve, micros);
      this.#queue.enter(call);
      if (micros < Infinity && this.#queue.line.isWaiting(call)) void this.#refuseIfLate(call);
    });
  }

  async #tryNow(asked: FairRequest, signal: AbortSignal | undefined): Promise<boolean> {
    if (!this.#queue.line.isNext(asked.turn)) {
      this.#meter.refused(asked.amount, "too-long");
      return false;
    }
    const tried = this[behind].tryAcquire(asked.permits, { timeoutMs: 0, signal });
    const isGranted = await this.#queue.measure(tried);
    if (isGranted) this.#queue.grantedAtOnce(asked);
    return isGranted;
  }

  /** Refuses a call as soon as it is clear that its time is not enough if no other caller comes. */
  async #refuseIfLate(call: FairCall): Promise<void> {
    const waitMs = await this.#outlook.waitOf(call).catch(() => undefined);
    if (waitMs === undefined || !this.#queue.line.isWaiting(call)) return;
    if (this.#queue.now() + toMicros(waitMs) > call.deadline) this.#queue.line.expire(call);
  }

  async reserve(permits: Permits = 1, options?: ShareOptions): Promise<Reservation> {
    checkShareOptions(options);
    const asked = this.#asked(permits, options);
    const { line } = this.#queue;
    if (line.size > 0 && this.#queue.isFull(asked.amount)) {
      this.#checkOpen();
      this.#meter.refused(asked.amount, "queue-full");
      throw this.#queue.full(asked.amount);
    }
    const refund = () => line.refund(asked.turn);
    // calls that are made before the reply come behind it
    line.charge(asked.turn);
    try {
      const reservation = await this.#queue.measure(this[behind].reserve(permits));
      return new ChargedReservation(reservation, refund);
    } catch (error) {
      refund();
      throw error;
    }
  }

  /** For a caller that waits for the reservation at once: others may overtake it. */
  async [reserveBehind](
    permits: Permits,
    _backlog?: Backlog,
    options?: ShareOptions,
  ): Promise<Reservation> {
    const controller = new AbortController();
    const { signal } = controller;
    let call: FairCall | undefined;
    const granted = new Promise<number>((resolve) => {
      call = this.#acquire(permits, { ...options, signal }, resolve);
    });
    // if the store cannot be asked, the call fails, too
    const seen = call && this.#outlook.waitOf(call).catch(() => granted);
    const waitMs = await Promise.race([granted.then(() => 0), seen ?? granted]);
    let taken = this.#policyState.amount(permits);
    const settle = async (actual: Permits) => {
      const before = taken;
      taken = combine(before, this.#policyState.amount(actual, atLeastZero), (was, is = was) => is);
      const changes: Promise<void>[] = [];
      const change = (verb: "charge" | "refund") => (amount: Amount) => {
        changes.push(this[behind][verb](this.#permitsOf(amount)));
      };
      correct({ charge: change("charge"), refund: change("refund") }, before, taken);
      await Promise.all(changes);
    };
    const refund = () => {
      if (call !== undefined) this.#queue.line.refund(call.turn);
    };
    return new WaitingReservation(permits, waitMs, { granted, controller, settle, refund });
  }

  async decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    checkShareOptions(options);
    const asked = this.#asked(permits, options);
    if (!this.#queue.line.isNext(asked.turn)) {
      const refusal = await this.#outlook.peek(asked);
      if (!refusal.allowed) {
        this.#meter.refused(asked.amount, "too-long", () => refusal);
        return refusal;
      }
    }
    const decided = await this.#queue.measure(this[behind].decide(permits));
    if (decided.allowed) this.#queue.grantedAtOnce(asked);
    return decided;
  }

  async peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    checkShareOptions(options);
    return this.#outlook.peek(this.#asked(permits, options));
  }

  async charge(permits: Permits): Promise<void> {
    await this[behind].charge(permits);
  }

  async refund(permits: Permits): Promise<void> {
    await this[behind].refund(permits);
  }

  async pause(ms: number): Promise<void> {
    await this[behind].pause(ms);
  }

  async reset(): Promise<void> {
    await this[behind].reset();
  }

  async update(policies: Policies): Promise<void> {
    await this.changing(this[behind].update(policies));
  }

  async resetPolicies(): Promise<void> {
    await this.changing(this[behind].resetPolicies());
  }

  close(): Promise<void> {
    return this[behind].close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  get state(): StoreState {
    return this[behind].state;
  }

  get stats(): RemoteStats {
    const { stats } = this[behind];
    const { refused, cancelled, waiting, failed } = this.#parts.counts;
    return {
      ...stats,
      refused: stats.refused + refused,
      cancelled: stats.cancelled + cancelled,
      waiting: stats.waiting + waiting,
      failed: stats.failed + failed,
    };
  }

  get policies(): readonly Policy[] {
    return this[behind].policies;
  }

  /** In a combination all limiters on one server are asked in one step: see `in-order.ts`. */
  [asMember](options?: ShareOptions): RateMember {
    return this[behind][asMember]((permits) => {
      const asked = this.#asked(permits, options);
      return {
        isNext: this.#queue.line.isNext(asked.turn),
        seen: (decision) => this.#outlook.behindOthers(asked, decision),
        charged: (taken) => this.#charged(asked, taken),
      };
    });
  }

  #charged(asked: FairRequest, { reservation, undo }: Taken): Taken {
    const { line } = this.#queue;
    const refund = () => line.refund(asked.turn);
    if (reservation === undefined || reservation.waitMs === 0) this.#queue.grantedAtOnce(asked);
    else line.charge(asked.turn);
    if (reservation !== undefined) {
      const charged = new ChargedReservation(reservation, refund);
      return { reservation: charged, undo: () => charged.undo() };
    }
    return {
      undo: () => {
        refund();
        return undo();
      },
    };
  }

  /** Waits for a change of the policies. */
  protected async changing<T>(change: Promise<T>): Promise<T> {
    const changed = await change;
    this.#queue.outdated();
    return changed;
  }

  #asked(permits: Permits, options: ShareOptions | undefined): FairRequest {
    const amount = this.#policyState.amount(permits);
    const turn = this.#parts.order.turnOf<FairCall>(options, amount) as Turn<FairCall>;
    return { permits, amount, turn };
  }

  /** The permits of a correction, as a caller would write them. */
  #permitsOf(amount: Amount): Permits {
    if (typeof amount === "number") return amount;
    const named = this.#policyState.names.map((name, i) => [name, amount[i] ?? 0] as const);
    return Object.fromEntries(named.filter(([, permits]) => permits > 0));
  }

  /** @throws LimiterClosedError */
  #checkOpen(): void {
    if (this.state === "closed") throw new LimiterClosedError(this.#parts.options.name);
  }
}
