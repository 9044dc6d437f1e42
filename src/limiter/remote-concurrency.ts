/**
 * How many may run at once, in all processes together. The store keeps a lease for each that runs
 * and a ticket for each that waits; both lapse unless their process keeps them. So a process that
 * dies holds no place for longer than `leaseMs` after it was last heard of.
 *
 * Who waits does not poll. A place that is freed becomes the lease of the first ticket within the
 * store, and the process of that ticket is told by a message. Messages may be lost: every third of
 * `leaseMs`, and when the first of all leases would lapse, a process looks by itself, and with the
 * same trip keeps all that it has.
 *
 * What is safe, and when. A lease that was kept by a trip which left at t lives until t + leaseMs at
 * the least, by the store's clock. By our own clock this is the claim's `deadline`: a holder who
 * has not been able to renew until then is told that the lease is lost, though the store may keep it a
 * little longer. So never more than `limit` run who believe that they may, as long as clocks run
 * equally fast and a holder stops when it is told. (A process that is suspended is told when it
 * wakes up: what it does with others' data should be fenced.)
 */
import { checkNumber, wholeAtLeastOne } from "../check.ts";
import { LONGEST_TIMEOUT_MS } from "../clock.ts";
import { LeaseLostError, LimiterClosedError, QueueFullError } from "../errors.ts";
import {
  type LeaseReply,
  type LeaseStore,
  type LeaseVerb,
  type Listening,
  leaseId,
} from "../stores/lease-store.ts";
import { AbortGroups } from "./abort-groups.ts";
import type { TryOptions, WaitOptions } from "./face.ts";
import { type LeaseAnswer, LeaseTrips } from "./lease-trips.ts";
import type { Counted, Meter } from "./meter.ts";
import { checkTryOptions, checkWaitOptions } from "./options.ts";
import { Outages, type RemoteStats, type StoreState } from "./outages.ts";
import { Claim, type RemoteLease } from "./remote-lease.ts";

/** How a limiter stands, all processes together. */
export interface ConcurrencyStatus {
  readonly limit: number;
  /** How many leases are held, and how many wait for one. */
  readonly active: number;
  readonly waiting: number;
}

export interface RemoteConcurrencyOptions {
  readonly name: string;
  readonly leaseMs: number;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
}

/** How long the connection that listens is kept after the last has waited, ms. */
const LINGER_MS = 1000;
/** A store that is away is asked again after this, ms, or a tenth of the lease. */
const LONGEST_RETRY_MS = 1000;
/** Those who look at the same instant do so a little apart, ms. */
const SPREAD_MS = 20;

export class RemoteConcurrency implements Counted {
  readonly #store: LeaseStore;
  readonly #key: string;
  readonly #declared: number;
  readonly #options: RemoteConcurrencyOptions;
  readonly #trips: LeaseTrips;
  readonly #outages: Outages;
  readonly #meter: Meter;
  readonly #processId = crypto.randomUUID();
  readonly #signals = new AbortGroups<Claim>((claim, reason) => {
    void this.#leave(claim);
    this.#meter.left(1, claim.waited, reason);
    claim.reject(reason);
  });
  readonly #claims = new Map<string, Claim>();
  /** What the store could not be told is given back, and when it will have lapsed by itself, ms. */
  readonly #debts = new Map<string, number>();
  #limit: number;
  #active = 0;
  #waiting = 0;
  #lastId = 0;
  #listening: Listening | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #closed = false;

  constructor(store: LeaseStore, key: string, declared: number, options: RemoteConcurrencyOptions) {
    this.#store = store;
    this.#key = key;
    this.#declared = declared;
    this.#limit = declared;
    this.#options = options;
    this.#outages = new Outages(options.name);
    this.#meter = this.#outages.meter([], undefined);
    this.#trips = new LeaseTrips(store, key, declared, {
      ...options,
      replied: (reply) => this.#replied(reply),
      late: (id) => this.#giveBack(id, performance.now() + options.leaseMs),
      lost: (cause) => this.#outages.lost(cause),
    });
  }

  /** How many may run at once, as the last reply told; before the first, what was declared. */
  get limit(): number {
    return this.#limit;
  }

  /** How many leases this process holds; `peek` tells of all. */
  get active(): number {
    return this.#active;
  }

  /** How many wait in this process. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether the store answered when it was last asked. */
  get state(): StoreState {
    return this.#outages.state;
  }

  /** The counters of this process, as they are now. */
  get stats(): RemoteStats {
    return this.#outages.stats;
  }

  /**
   * Waits for a place, behind all who wait already, in whichever process. `run` is safer: it cannot
   * forget to release.
   *
   * @param options.signal ends the wait
   * @returns the lease
   * @throws (as a rejection) TypeError on a bad argument, QueueFullError, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.acquire();
   * await work(lease.signal);
   */
  acquire(options?: WaitOptions): Promise<RemoteLease> {
    return new Promise((resolve) => {
      const signal = checkWaitOptions(options);
      signal?.throwIfAborted();
      const claim = this.#claim(true, signal, resolve as Claim["resolve"]);
      this.#ask(claim, this.#hasRoom() ? "acquire" : "try");
    });
  }

  /**
   * A lease if a place is free, else `undefined`; with `wait`, waits for one, but no longer than
   * that.
   *
   * @param wait ms, or `{ timeoutMs, signal }`: `timeoutMs` is 0 or more (below 0 counts as 0), by
   *   default `Infinity`. Absent: 0
   * @returns the lease; `undefined` when the time is over, or at once where `maxWaiting` wait. The
   *   answer of a store that is slow is awaited even when the time is over
   * @throws (as a rejection) RangeError or TypeError on a bad argument, StoreUnavailableError,
   *   LimiterClosedError, or the signal's own reason
   * @example
   * await using lease = await limiter.tryAcquire(250);
   * if (lease) await work();
   * else degrade();
   */
  tryAcquire(wait: number | TryOptions = 0): Promise<RemoteLease | undefined> {
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      signal?.throwIfAborted();
      const claim = this.#claim(false, signal, resolve);
      const waits = micros > 0 && this.#hasRoom();
      if (waits && micros < Infinity) this.#limitWait(claim, micros / 1000);
      this.#ask(claim, waits ? "acquire" : "try");
    });
  }

  /**
   * Runs a function while it holds a place, and gives the place back however it ends.
   *
   * @param fn what to run; it is given the lease, whose `signal` says when to stop
   * @param options.signal ends the wait for the place; `fn`, once it runs, is not interrupted
   * @returns what `fn` returns
   * @throws (as a rejection) what `fn` throws, or what `acquire` does: `fn` has not been called then
   * @example
   * await limiter.run(({ signal }) => fetch(url, { signal }));
   */
  async run<T>(fn: (lease: RemoteLease) => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lease = await this.acquire(options);
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }

  /**
   * Another limit from now on for everyone who was created under this name with the same limit, in
   * whichever process, until it is set again or taken back with `resetLimit`. When it is higher,
   * those who wait go at once, in order; when it is lower, nobody is interrupted. Code that declares
   * another limit is not held to it.
   *
   * @param limit how many, a whole number, 1 or more
   */
  async setLimit(limit: number): Promise<void> {
    await this.#send("limit", String(checkNumber("limit", limit, wholeAtLeastOne)));
  }

  /** The declared limit again. */
  async resetLimit(): Promise<void> {
    await this.#send("limit", String(this.#declared));
  }

  /** How the limiter stands, all processes together. */
  async peek(): Promise<ConcurrencyStatus> {
    const { limit, active, waiting } = (await this.#send("look", "")).reply;
    return { limit, active, waiting };
  }

  /**
   * Ends the limiter in this process: who waits is rejected with a LimiterClosedError, and so is
   * every further call; the connection that listens is closed, timers end. It does not release what
   * is held: that is no longer renewed (so each `lease.signal` is aborted) and comes back when its
   * holder releases it, or after `leaseMs` at the most.
   *
   * @returns when the store knows who does not wait any more, or could not be told
   */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new LimiterClosedError(this.#options.name);
    const left: Promise<void>[] = [];
    for (const claim of this.#claims.values()) {
      if (claim.state === "held") {
        claim.lose(error);
      } else {
        left.push(this.#leave(claim));
        this.#meter.left(1, claim.waited, error);
        claim.reject(error);
      }
    }
    clearTimeout(this.#timer);
    this.#unlisten();
    await Promise.all(left);
  }

  #send(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    if (this.#closed) return Promise.reject(new LimiterClosedError(this.#options.name));
    return this.#trips.send(verb, what);
  }

  #hasRoom(): boolean {
    return this.#waiting < this.#options.maxWaiting;
  }

  #claim(insists: boolean, signal: AbortSignal | undefined, resolve: Claim["resolve"]): Claim {
    if (this.#closed) throw new LimiterClosedError(this.#options.name);
    this.#lastId += 1;
    const id = leaseId(this.#options.leaseMs, this.#declared, this.#processId, this.#lastId);
    const claim = new Claim(id, insists, signal, resolve, (one) => this.#leave(one));
    this.#claims.set(id, claim);
    this.#meter.seat();
    if (signal !== undefined) this.#signals.add(signal, claim);
    return claim;
  }

  #limitWait(claim: Claim, timeoutMs: number): void {
    const end = performance.now() + timeoutMs;
    const look = () => {
      const leftMs = end - performance.now();
      if (leftMs > 0) {
        claim.timer = setTimeout(look, Math.min(LONGEST_TIMEOUT_MS, Math.ceil(leftMs)));
      } else if (claim.state === "asked" && !claim.seated) {
        claim.overdue = true;
      } else {
        void this.#leave(claim);
        this.#meter.expired(1, claim.waited);
        claim.expire();
      }
    };
    look();
  }

  /** Asks the store for a lease, or again: whoever has one, or a ticket, keeps it. */
  #ask(claim: Claim, verb: "acquire" | "try"): void {
    const { leaseMs } = this.#options;
    claim.state = "asked";
    claim.deadline = performance.now() + leaseMs;
    this.#wakeIn(leaseMs / 3);
    this.#trips.send(verb, claim.id).then(
      (answer) => this.#answered(claim, answer),
      (error) => {
        if (claim.state !== "asked") return;
        void this.#leave(claim);
        this.#meter.ended();
        claim.reject(this.#outages.failed(error));
      },
    );
  }

  #answered(claim: Claim, { standing, sentAt, reply }: LeaseAnswer): void {
    claim.deadline = Math.max(claim.deadline, sentAt + this.#options.leaseMs);
    // given up meanwhile, or a message was faster
    if (claim.state !== "asked") return;
    if (standing === "held") {
      this.#granted(claim);
    } else if (standing === "waiting" && !claim.overdue && (claim.seated || this.#hasRoom())) {
      this.#seat(claim);
      this.#wakeAtLapse(reply);
    } else {
      const { name, maxWaiting } = this.#options;
      if (standing === "none") this.#forget(claim);
      else void this.#leave(claim);
      this.#meter.expired(1, claim.waited, claim.refusal);
      claim.refuse(() => new QueueFullError(name, 1, this.#waiting, maxWaiting));
    }
  }

  #seat(claim: Claim): void {
    claim.state = "waiting";
    if (!claim.seated) this.#waiting += 1;
    claim.seated = true;
    this.#listen();
  }

  #granted(claim: Claim): void {
    this.#meter.released(1, claim.seated ? claim.waited : 0);
    this.#settle(claim);
    this.#active += 1;
    claim.grant();
  }

  /** It waits no more. */
  #settle(claim: Claim): void {
    clearTimeout(claim.timer);
    if (claim.waitSignal !== undefined) this.#signals.delete(claim.waitSignal, claim);
    if (!claim.seated) return;
    claim.seated = false;
    this.#waiting -= 1;
    if (this.#waiting > 0 || this.#linger !== undefined) return;
    this.#linger = setTimeout(() => {
      this.#linger = undefined;
      if (this.#waiting === 0) this.#unlisten();
    }, LINGER_MS);
    unref(this.#linger);
  }

  /** The store has nothing of it, as far as we know. */
  #forget(claim: Claim): void {
    if (claim.state === "held") this.#active -= 1;
    else this.#settle(claim);
    claim.state = "gone";
    this.#claims.delete(claim.id);
  }

  /** It gives back whatever it has, or may come to have by a request that is under way. */
  #leave(claim: Claim): Promise<void> {
    if (claim.state === "gone") return Promise.resolve();
    this.#forget(claim);
    return this.#giveBack(claim.id, performance.now() + this.#options.leaseMs);
  }

  async #giveBack(id: string, lapsed: number): Promise<void> {
    try {
      await this.#trips.send("release", id);
    } catch {
      this.#debts.set(id, lapsed);
      this.#wakeIn(this.#retryMs);
    }
  }

  #lose(claim: Claim): void {
    const { name, leaseMs } = this.#options;
    void this.#leave(claim);
    claim.lose(new LeaseLostError(name, leaseMs));
  }

  // -- keeping what we have, and looking whether we have more --

  get #retryMs(): number {
    return Math.min(LONGEST_RETRY_MS, this.#options.leaseMs / 10);
  }

  #wakeIn(ms: number): void {
    const at = performance.now() + ms;
    if (this.#closed || at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => this.#wake(), ms);
    unref(this.#timer);
  }

  #wake(): void {
    this.#timerAt = Infinity;
    const now = performance.now();
    for (const [id, lapsed] of this.#debts) {
      this.#debts.delete(id);
      if (now < lapsed) void this.#giveBack(id, lapsed);
    }
    let firstDeadline = Infinity;
    for (const claim of this.#claims.values()) {
      if (claim.state === "asked") continue;
      if (now < claim.deadline) {
        firstDeadline = Math.min(firstDeadline, claim.deadline);
        this.#keep(claim);
      } else if (claim.state === "held") {
        this.#lose(claim);
      } else {
        this.#ask(claim, "acquire");
      }
    }
    if (this.#waiting > 0) this.#listen();
    if (this.#claims.size === 0) return;
    this.#wakeIn(Math.min(this.#options.leaseMs / 3, firstDeadline - now));
  }

  #keep(claim: Claim): void {
    this.#trips.send("keep", claim.id).then(
      ({ standing, sentAt }) => {
        if (claim.state === "asked" || claim.state === "gone") return;
        if (standing !== "none") {
          claim.deadline = Math.max(claim.deadline, sentAt + this.#options.leaseMs);
          if (standing === "held" && claim.state === "waiting") this.#granted(claim);
        } else if (claim.state === "held") {
          this.#lose(claim);
        } else {
          // its ticket has lapsed: it gets one at the end
          this.#ask(claim, "acquire");
        }
      },
      () => this.#wakeIn(this.#retryMs),
    );
  }

  #replied(reply: LeaseReply): void {
    this.#limit = reply.limit;
    this.#outages.answered();
    if (this.#waiting > 0) this.#wakeAtLapse(reply);
  }

  /** When the first lease lapses, somebody has to look. */
  #wakeAtLapse({ lapseMs }: LeaseReply): void {
    if (lapseMs >= 0) this.#wakeIn(lapseMs + Math.random() * SPREAD_MS);
  }

  // -- being told --

  #listen(): void {
    if (this.#listening !== undefined) return;
    const listening = this.#store.listen(this.#key, this.#processId, (ids) => this.#told(ids));
    this.#listening = listening;
    listening.ready.then(
      // what was granted before is not told again
      () => this.#wakeIn(0),
      () => {
        listening.close();
        if (this.#listening === listening) this.#listening = undefined;
      },
    );
  }

  #told(ids: readonly string[]): void {
    const now = performance.now();
    for (const id of ids) {
      const claim = this.#claims.get(id);
      if (claim === undefined || claim.state === "held" || claim.overdue) continue;
      // what is told so late may have lapsed: the reply to its next question says how it is
      if (now >= claim.deadline || (claim.state === "asked" && claim.seated)) continue;
      this.#granted(claim);
    }
  }

  #unlisten(): void {
    this.#listening?.close();
    this.#listening = undefined;
  }
}

/** Timers of our own keep no process alive; in some runtimes they are numbers. */
function unref(timer: unknown): void {
  (timer as { unref?(): void }).unref?.();
}
