/** A limiter whose state lives in a store elsewhere: each verb is a few lines over its desk. */
import type { Policy } from "../../algorithms/algorithm.ts";
import { writePolicies } from "../../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../../check.ts";
import { asyncDispose } from "../../dispose.ts";
import { QueueFullError } from "../../errors.ts";
import type { Permits } from "../../permits.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../../stores/memory.ts";
import type { Store } from "../../stores/store.ts";
import type {
  Decision,
  RemoteLimiter as Face,
  Reservation,
  TryOptions,
  WaitOptions,
} from "../face.ts";
import { AT_ONCE } from "../limiter.ts";
import { asMember, ForeignMember, type RateMember } from "../member.ts";
import type { Counted } from "../meter.ts";
import { checkTryOptions, checkWaitOptions, isTryOptions } from "../options.ts";
import { AcquireAsker, TryAsker } from "./asker.ts";
import { remoteMember } from "./combined-call.ts";
import type { Outages, RemoteStats, StoreState } from "./outages.ts";
import { RemoteDesk, type RemoteOptions } from "./remote-desk.ts";

const GRANTED = Promise.resolve(true);

export class RemoteLimiter implements Face, Counted, AsyncDisposable {
  readonly #declared: PolicyList;
  readonly #desk: RemoteDesk;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    refuseStrict(declared);
    this.#declared = declared;
    this.#desk = new RemoteDesk(store, key, declared, options);
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    if (options === undefined && this.#desk.isHere(permits)) return AT_ONCE;
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const amount = this.#desk.cell.amount(permits);
      this.#desk.checkOpen();
      const longest = this.#desk.hasRoom(amount) ? Infinity : 0;
      this.#desk.ask(
        new AcquireAsker(this.#desk, this.#desk.now(), amount, longest, signal, resolve),
      );
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    return this.#tryWithin(permits, 0);
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    if (wait === 0 && this.#desk.isHere(permits)) return GRANTED;
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const amount = this.#desk.cell.amount(permits);
      this.#desk.checkOpen();
      const longest = this.#desk.hasRoom(amount) ? micros : 0;
      this.#desk.ask(new TryAsker(this.#desk, this.#desk.now(), amount, longest, signal, resolve));
    });
  }

  async reserve(permits: Permits = 1): Promise<Reservation> {
    const amount = this.#desk.cell.amount(permits);
    try {
      const reservation = await this.#desk.orHere(
        amount,
        () => this.#desk.reserve(permits, amount),
        (standIn) => {
          this.#desk.checkLimits(amount);
          return standIn.reserve(permits, amount);
        },
      );
      this.#desk.meter.granted(amount, reservation.waitMs * 1000);
      return reservation;
    } catch (error) {
      if (error instanceof QueueFullError) this.#desk.meter.refused(amount, "queue-full");
      throw error;
    }
  }

  async decide(permits: Permits = 1): Promise<Decision> {
    const amount = this.#desk.cell.amount(permits);
    const decided = await this.#desk.orHere(
      amount,
      () => this.#desk.look("decide", amount),
      (standIn) => this.#desk.shut(amount) ?? standIn.decide(amount),
    );
    if (decided.allowed) this.#desk.meter.granted(amount, 0);
    else this.#desk.meter.refused(amount, "too-long", () => decided);
    return decided;
  }

  async peek(permits: Permits = 1): Promise<Decision> {
    const amount = this.#desk.cell.amount(permits);
    return this.#desk.orHere(
      amount,
      () => this.#desk.look("peek", amount),
      (standIn) => this.#desk.shut(amount) ?? standIn.peek(amount),
    );
  }

  async charge(permits: Permits): Promise<void> {
    await this.#desk.account.charge(this.#desk.possible(permits));
  }

  async refund(permits: Permits): Promise<void> {
    await this.#desk.account.refund(this.#desk.possible(permits));
  }

  /**
   * For everybody who asks from now on, and for those who wait here; what other processes were told
   * before stays.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    await this.#desk.pause(micros);
  }

  /** Holds for everybody, so the store has to be there, whatever `whenUnavailable` says. */
  async update(policies: Policies): Promise<void> {
    await this.setPolicies(policies);
  }

  /** @returns the numbers that were in force at the last write before: see `Answer.writtenUnder` */
  protected async setPolicies(policies: Policies): Promise<string> {
    const { names, list } = renumber(this.#declared, listPolicies(policies));
    refuseStrict({ names, list });
    const numbers = writePolicies(list);
    const { writtenUnder = "" } = await this.#desk.renumber({ verb: "set", numbers });
    return writtenUnder;
  }

  async reset(): Promise<void> {
    await this.#desk.reset();
  }

  async resetPolicies(): Promise<void> {
    await this.#desk.renumber({ verb: "unset" });
  }

  /**
   * Ends the limiter in this process: who waits, in `ready()` too, is rejected with a
   * LimiterClosedError, and so is every further call. What they were promised is given back, and what
   * was reserved ahead. Reservations for which nobody waits stay their holders'.
   *
   * @returns when all that is done and nothing is under way any more, or after `timeoutMs`
   * @example
   * await limiter.close();
   * redis.disconnect();
   */
  close(): Promise<void> {
    return this.#desk.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  [asMember](): RateMember {
    return remoteMember(this.#desk) ?? new ForeignMember(this);
  }

  /** Whether the store answered when it was last asked; or `"closed"`. */
  get state(): StoreState {
    return this.#desk.isClosed ? "closed" : this.#desk.outages.state;
  }

  /** The counters, as they are now; those of a limiter for each key are of all keys together. */
  get stats(): RemoteStats {
    return this.#desk.outages.stats;
  }

  /** The policies in force, as the last reply told. */
  get policies(): readonly Policy[] {
    return this.#desk.policies;
  }

  /** Whether operators have set the limit of a policy to 0, as the last reply told. */
  protected get isShut(): boolean {
    return this.#desk.closedPolicy >= 0;
  }

  /** Shared with the limiters of its keys. */
  protected get outages(): Outages {
    return this.#desk.outages;
  }

  /** @throws LimiterClosedError */
  protected checkOpen(): void {
    this.#desk.checkOpen();
  }
}

/** A store books instants ahead: it cannot move them when a caller starts late. */
function refuseStrict({ names, list }: PolicyList): void {
  const strict = list.findIndex((policy) => policy.strict);
  if (strict < 0) return;
  throw new TypeError(
    `policy "${names[strict]}" must not be strict on a store, which books instants ahead and does not ` +
      "know when callers start; leave out strict, or use Limiter.create, which is in this process",
  );
}
