/**
 * The states of the keys of a `KeyedLimiter`. A key takes no more memory than the state of its
 * algorithm. A key with waiters, or one that is paused, is *awake*: it has a queue of its own on
 * the same state, until the queue is idle again.
 */
import { reportUseless } from "../algorithms/never-binds.ts";
import { decisionOn, passing } from "../api/decision.ts";
import type { Decision, ShareOptions, WaitOptions } from "../api/limiter-api.ts";
import {
  checkLimiterOptions,
  checkShareOptions,
  LIMITER_OPTIONS,
  type LimiterOptions,
  mostWaiting,
} from "../api/options.ts";
import { asParticipant } from "../api/participant.ts";
import { type Because, CallStats } from "../api/stats.ts";
import { atLeastOne, type Bound, checkNumber, checkOneOf, checkOptions } from "../ground/check.ts";
import { refusals } from "../ground/diagnostics.ts";
import { QueueFullError, TooManyKeysError } from "../ground/errors.ts";
import { type Amount, type Permits, sizeOf } from "../ground/permits.ts";
import { AT_ONCE, QueueingLimiter, type QueueingOptions } from "../local/queueing-limiter.ts";
import { type HasInstants, MonotonicTime } from "../queue/monotonic-time.ts";
import { FIFO, type Order, orderIn } from "../queue/order.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import { KeyStates } from "../stores/keys.ts";
import { listPolicies, type Policies, renumber } from "../stores/policies.ts";
import { RoundRobin } from "../stores/round-robin.ts";
import type { PolicyState } from "../stores/state/one.ts";
import { policyStateOn } from "../stores/state/several.ts";

/** The options of `KeyedLimiter.create`. */
export interface KeyedLimiterOptions extends LimiterOptions {
  /**
   * How many keys may have a state at one time: 1 or more, default 1 000 000; or a function that returns the
   * present number, called for each new key: if it falls, two keys go for each new one. It bounds the memory:
   * a key takes about 130 bytes, its text included; under `slidingLog` it takes some 20 bytes more for
   * each remembered request.
   */
  readonly maxKeys?: number | (() => number) | undefined;
  /**
   * What happens to a new key when there are `maxKeys`, and none of the few keys that are then
   * checked has its full quota again. `"evict"` (the default): the checked key that has used least
   * is forgotten, so a client that invents keys pushes out its own; a key that has waiters or is
   * paused stays. `"refuse"`: the new key is refused.
   */
  readonly whenFull?: "evict" | "refuse" | undefined;
}

const KEYED_OPTIONS = [...LIMITER_OPTIONS, "maxKeys", "whenFull"] as const;
const MOST_KEYS = 1_000_000;
const howMany: Bound = {
  ...atLeastOne,
  words: `${atLeastOne.words}, or a function that returns one`,
};

/** A key with a queue of its own. */
interface Awake {
  readonly queue: PermitQueue;
  readonly limiter: QueueingLimiter;
}

/** The queue of a key. A reservation may settle when the key has another queue, or none. */
class KeyQueue extends PermitQueue {
  readonly #keys: KeyTable;
  readonly #key: string;

  constructor(keys: KeyTable, key: string, time: MonotonicTime, state: PolicyState, order: Order) {
    super(time, state, order);
    this.#keys = keys;
    this.#key = key;
  }

  override charge(amount: Amount): void {
    this.#keys.charge(this.#key, amount);
  }

  override refund(amount: Amount): void {
    this.#keys.refund(this.#key, amount);
  }
}

type Outcome = "taken" | "refused" | "no room";

export class KeyTable implements HasInstants {
  readonly states: KeyStates;
  readonly callStats: CallStats;
  readonly #awake = new Map<string, Awake>();
  readonly #round = new RoundRobin(this.#awake);
  readonly #time: MonotonicTime;
  readonly #options: QueueingOptions;
  readonly #order: Order;
  readonly #maxKeys: () => number;
  #mayRebase = false;

  constructor(policies: Policies, options: KeyedLimiterOptions) {
    checkOptions("options", options, KEYED_OPTIONS);
    const { maxKeys = MOST_KEYS, whenFull = "evict", ...rest } = options;
    const { clock, ...checked } = checkLimiterOptions(rest);
    if (typeof maxKeys !== "function") checkNumber("maxKeys", maxKeys, howMany);
    checkOneOf("whenFull", whenFull, ["evict", "refuse"]);
    this.#options = checked;
    this.#order = orderIn(options);
    this.#maxKeys = typeof maxKeys === "function" ? maxKeys : () => maxKeys;
    const list = listPolicies(policies);
    reportUseless(list.names, list.list);
    this.states = new KeyStates(list, this.#maxKeys, whenFull, (key) => this.#awake.has(key));
    this.callStats = new CallStats({ limiter: checked.name }, list.names);
    this.#time = new MonotonicTime(clock, this);
  }

  /**
   * The current time. May shift all instants by a constant, but not while a queue is being read.
   */
  #now(): number {
    this.#mayRebase = true;
    const now = this.#time.now();
    this.#mayRebase = false;
    return now;
  }

  rearm(): void {
    for (const { queue } of this.#awake.values()) queue.rearm();
  }

  /** Shifts all instants down by `by`, unless a caller waits. */
  rebase(by: number): boolean {
    if (!this.#mayRebase) return false;
    this.#mayRebase = false;
    for (const [key, { queue }] of this.#awake) if (queue.isIdle) this.#awake.delete(key);
    return this.#awake.size === 0 && this.states.shift(-by);
  }

  acquire(key: string, permits: Permits, options: WaitOptions | undefined): Promise<number> {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) return awake.limiter.acquire(permits, options);
    if (options === undefined) {
      const amount = this.states.policyState.amount(permits);
      if (this.#take(key, this.#now(), amount) === "taken") return AT_ONCE;
    }
    return this.wake(key, permits).acquire(permits, options);
  }

  tryAcquire(key: string, permits: Permits): boolean {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) return awake.limiter.tryAcquire(permits);
    const amount = this.states.policyState.amount(permits);
    const now = this.#now();
    const outcome = this.#take(key, now, amount);
    if (outcome === "taken") return true;
    const because = () => this.#look(this.#policyStateOf(key, now), now, amount);
    this.#refused(key, amount, outcome, because);
    return false;
  }

  /** @param isReported whether a refusal is counted and published */
  decide(key: string, permits: Permits, options?: ShareOptions, isReported = true): Decision {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) {
      if (isReported) return awake.limiter.decide(permits, options);
      return awake.limiter[asParticipant](options).decide(permits);
    }
    const { policyState } = this.states;
    const amount = policyState.amount(permits);
    const now = this.#now();
    const outcome = this.#take(key, now, amount);
    if (outcome === "taken") return passing(policyState.names, policyState.quotas(now), amount);
    const look = this.#look(policyState, now, amount);
    // other keys decide when there is room again
    const refusal = outcome === "refused" ? look : { ...look, allowed: false, waitMs: Infinity };
    if (isReported) this.#refused(key, amount, outcome, () => refusal);
    return refusal;
  }

  peek(key: string, permits: Permits, options?: ShareOptions): Decision {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) return awake.limiter.peek(permits, options);
    const amount = this.states.policyState.amount(permits);
    const now = this.#now();
    return this.#look(this.#policyStateOf(key, now), now, amount);
  }

  #look(policyState: PolicyState, now: number, amount: Amount): Decision {
    const wait = this.#possible(policyState.earliest(now, amount), amount) - now;
    const full = wait > 0 ? policyState.overflowing(now, amount) : -1;
    const isFull = full >= 0 || (wait > 0 && sizeOf(amount) > this.#options.maxWaiting);
    return decisionOn(policyState, now, now, amount, isFull ? Infinity : wait, full);
  }

  /** Takes the permits if they can be used now, and stores the key's new state. */
  #take(key: string, now: number, amount: Amount): Outcome {
    this.states.tend(now);
    const known = this.states.find(key);
    const policyState = this.states.policyStateOf(known, now, this.#time);
    if (this.#possible(policyState.earliest(now, amount), amount) > now) return "refused";
    policyState.take(now, amount);
    if (
      known === undefined &&
      !this.states.admit(key, policyState.state, this.states.usage(now), now)
    ) {
      this.states.policyStateOf(undefined, now, this.#time);
      return "no room";
    }
    this.callStats.counts.granted += 1;
    return "taken";
  }

  /** The error to throw where `look` finds no room. */
  full(key: string, permits: Permits): QueueFullError {
    const size = sizeOf(this.states.policyState.amount(permits));
    const awake = this.#awakeOf(key);
    const most = mostWaiting(this.#options.maxWaiting, this.states.policies.list);
    return new QueueFullError(this.#options.name, size, awake?.queue.permits ?? 0, most);
  }

  /** The stats of one key; that of all keys where no message would name the key. */
  statsOf(key: string): CallStats {
    return refusals.hasSubscribers ? this.callStats.of(key) : this.callStats;
  }

  #refused(key: string, amount: Amount, outcome: Outcome, because?: Because): void {
    const callStats = this.statsOf(key);
    if (outcome === "no room") callStats.refused(amount, "too-many-keys");
    else callStats.refused(amount, "too-long", because);
  }

  /** Returns the instant; throws if it will never come. */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.states.policyState.excess(this.#time.last, amount);
  }

  #policyStateOf(key: string, now: number): PolicyState {
    return this.states.policyStateOf(this.states.find(key), now, this.#time);
  }

  /**
   * The key's policy state, which is kept from now on; undefined where there is no room.
   *
   * @param amount the permits that the key is about to take: keys that have used less are evicted
   *   first
   */
  #kept(key: string, now: number, amount: Amount | undefined): PolicyState | undefined {
    const known = this.states.find(key);
    if (known !== undefined) return this.states.policyStateOf(known, now, this.#time);
    const trial = this.states.policyStateOf(undefined, now, this.#time);
    if (amount !== undefined) trial.take(now, amount);
    const used = this.states.usage(now);
    const policyState = this.states.policyStateOf(undefined, now, this.#time);
    return this.states.admit(key, policyState.state, used, now) ? policyState : undefined;
  }

  #tooMany(): TooManyKeysError {
    return new TooManyKeysError(this.#options.name, this.#maxKeys());
  }

  /** The key's queue, if it has one. Removes a queue that is idle. */
  #awakeOf(key: string): Awake | undefined {
    if (this.#awake.size === 0) return undefined;
    this.#now();
    const awake = this.#awake.get(key);
    if (awake === undefined || !awake.queue.isIdle) return awake;
    this.#awake.delete(key);
    return undefined;
  }

  /**
   * The key's limiter, with a queue of its own.
   *
   * @param permits the permits of the caller's request
   */
  wake(key: string, permits?: Permits): QueueingLimiter {
    // each call checks one other key, so idle queues are removed in turn
    const [other] = this.#round.next() ?? [];
    if (other !== undefined) this.#awakeOf(other);
    const awake = this.#awakeOf(key);
    if (awake !== undefined) return awake.limiter;
    const amount = permits === undefined ? undefined : this.states.policyState.amount(permits);
    const policyState = this.#kept(key, this.#now(), amount);
    if (policyState === undefined) {
      if (amount !== undefined) this.#refused(key, amount, "no room");
      throw this.#tooMany();
    }
    const { policies } = this.states;
    const state = policyStateOn(policies, policyState.state);
    const queue = new KeyQueue(this, key, this.#time, state, this.#order);
    const limiter = new QueueingLimiter(queue, policies, this.#options, this.callStats.of(key));
    this.#awake.set(key, { queue, limiter });
    return limiter;
  }

  get isFair(): boolean {
    return this.#order !== FIFO;
  }

  /** Checks the options that name the share of a call. */
  checkShare(permits: Permits, options: ShareOptions | undefined): void {
    if (options === undefined) return;
    checkShareOptions(options);
    this.#order.entryOf(options, this.states.policyState.amount(permits));
  }

  possible(permits: Permits): Amount {
    const { policyState } = this.states;
    const amount = policyState.amount(permits);
    this.#possible(policyState.earliest(this.#now(), amount), amount);
    return amount;
  }

  charge(key: string, amount: Amount): void {
    this.#change(key, (policyState, now) => policyState.take(now, amount), amount);
  }

  refund(key: string, amount: Amount): void {
    this.#change(key, (policyState, now) => policyState.giveBack(now, amount));
  }

  /** @param amount see `#kept` */
  #change(
    key: string,
    apply: (policyState: PolicyState, now: number) => void,
    amount?: Amount,
  ): void {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) {
      awake.queue.change(apply);
      return;
    }
    const now = this.#now();
    const policyState = this.#kept(key, now, amount);
    if (policyState === undefined) throw this.#tooMany();
    apply(policyState, now);
  }

  update(policies: Policies): void {
    const next = renumber(this.states.policies, listPolicies(policies));
    const now = this.#now();
    for (const { limiter } of this.#awake.values()) limiter.update(policies);
    this.states.resize(next, now, this.#time.epoch, this.#awake.keys());
  }

  reset(key: string): void {
    const awake = this.#awakeOf(key);
    if (awake !== undefined) awake.limiter.reset();
    else this.states.forget(key);
  }

  forget(key: string): boolean {
    return this.#awakeOf(key) === undefined && this.states.forget(key);
  }
}
