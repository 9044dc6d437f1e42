/**
 * Those who ask for leases in one process: they ask the store, wait there with a ticket or, while it
 * is away, here, and leave.
 */
import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import {
  LeaseLostError,
  LimiterClosedError,
  QueueFullError,
  StoreUnavailableError,
} from "../../errors.ts";
import { isPermanent, LONGEST_PAUSE_MS } from "../../stores/breaker.ts";
import { type LeaseStore, type LeaseVerb, leaseId } from "../../stores/lease-store.ts";
import { AbortGroups } from "../abort-groups.ts";
import type { Meter } from "../meter.ts";
import { Outages, type StoreState } from "../remote/outages.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { LeaseNews } from "./lease-news.ts";
import { LeaseStandIn, SHARE_HOLDS_MS } from "./lease-stand-in.ts";
import { type LeaseAnswer, LeaseTrips } from "./lease-trips.ts";
import { Claim } from "./remote-lease.ts";

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
  /**
   * What calls do while the store is away: fail, wait for it, or be let in here: all of them, or as
   * many as this process' share of the limit allows.
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, which `"local"` has to know: 1 or more. */
  readonly instances?: () => number;
}

const WHEN_AWAY = { throw: "fail", wait: "wait", allow: "yield", local: "yield" } as const;

export class LeaseDesk {
  readonly outages: Outages;
  readonly #meter: Meter;
  readonly #declared: number;
  readonly #options: RemoteConcurrencyOptions;
  readonly #trips: LeaseTrips;
  readonly #keeper: LeaseKeeper;
  readonly #news: LeaseNews;
  readonly #processId = crypto.randomUUID();
  readonly #signals = new AbortGroups<Claim>((claim, reason) => {
    void this.#leave(claim);
    this.#meter.left(1, claim.waited, reason);
    claim.reject(reason);
  });
  /** While the store is away, and until all processes are back; none where calls fail then. */
  #standIn: LeaseStandIn | undefined;
  #settled: ReturnType<typeof setTimeout> | undefined;
  #limit: number;
  #active = 0;
  #waiting = 0;
  #lastId = 0;
  #closed = false;

  constructor(store: LeaseStore, key: string, declared: number, options: RemoteConcurrencyOptions) {
    this.#declared = declared;
    this.#limit = declared;
    this.#options = options;
    this.outages = new Outages(options.name);
    this.#meter = this.outages.meter([], undefined);
    this.#trips = new LeaseTrips(store, key, declared, {
      ...options,
      whenAway: WHEN_AWAY[options.whenUnavailable],
      replied: (reply) => {
        this.#limit = reply.limit;
        this.outages.answered();
        if (this.#waiting > 0) this.#keeper.wakeAtLapse(reply);
      },
      late: (id, answer) => this.#late(id, answer),
      lost: () => this.#lost(),
      found: () => {
        this.outages.answered();
        this.#found();
      },
      failed: (cause) => this.outages.lost(cause),
      isAwaited: () => this.#standIn !== undefined && this.#standIn.waiting > 0,
    });
    this.#keeper = new LeaseKeeper(
      this.#trips,
      { leaseMs: options.leaseMs, isStrict: !this.#letsIn },
      {
        granted: (claim) => this.#letIn(claim),
        lost: (claim) => this.#lose(claim),
        lapsed: (claim) => this.#ask(claim),
        looked: () => this.#looked(),
      },
    );
    this.#news = new LeaseNews({
      listen: (told) => store.listen(key, this.#processId, told),
      // what was granted before is not told again
      ready: () => this.#keeper.wakeIn(0),
      told: (ids) => this.#told(ids),
      isNeeded: () => this.#waiting > 0,
    });
  }

  /** As the last reply told; before the first, what was declared. */
  get limit(): number {
    return this.#limit;
  }

  /** How many leases this process holds, and how many wait in it. */
  get active(): number {
    return this.#active;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /**
   * @param insists to be refused is an error
   * @param longestMs the longest wait
   */
  ask(
    insists: boolean,
    longestMs: number,
    signal: AbortSignal | undefined,
    resolve: Claim["resolve"],
  ): void {
    const waits = longestMs > 0 && this.#hasRoom();
    const claim = this.#claim(insists, waits, signal, resolve);
    if (waits && longestMs < Infinity) this.#limitWait(claim, longestMs);
    if (this.#settling === undefined) this.#ask(claim);
    else this.#admit(claim, this.#settling);
  }

  /** Another limit; absent: what was declared. */
  async setLimit(limit = this.#declared): Promise<void> {
    await this.#send("limit", String(limit));
  }

  async status(): Promise<ConcurrencyStatus> {
    try {
      const { limit, active, waiting } = (await this.#send("look", "")).reply;
      return { limit, active, waiting };
    } catch (error) {
      if (!this.#letsIn || this.#standIn === undefined) throw error;
      return { limit: this.#standIn.places, active: this.#active, waiting: this.#waiting };
    }
  }

  get state(): StoreState {
    return this.#closed ? "closed" : this.outages.state;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new LimiterClosedError(this.#options.name);
    const left: Promise<void>[] = [];
    for (const claim of this.#keeper.claims.values()) {
      if (claim.state === "held") {
        claim.lose(error);
      } else {
        left.push(this.#leave(claim));
        this.#meter.left(1, claim.waited, error);
        claim.reject(error);
      }
    }
    clearTimeout(this.#settled);
    this.#keeper.close();
    this.#trips.end(error);
    this.#news.close();
    await Promise.all(left);
    this.outages.end();
  }

  #send(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    if (this.#closed) return Promise.reject(new LimiterClosedError(this.#options.name));
    return this.#trips.send(verb, what);
  }

  #hasRoom(): boolean {
    return this.#waiting < this.#options.maxWaiting;
  }

  #claim(
    insists: boolean,
    waits: boolean,
    signal: AbortSignal | undefined,
    resolve: Claim["resolve"],
  ): Claim {
    if (this.#closed) throw new LimiterClosedError(this.#options.name);
    this.#lastId += 1;
    const id = leaseId(this.#options.leaseMs, this.#declared, this.#processId, this.#lastId);
    const claim = new Claim(id, insists, waits, signal, resolve, (one) => this.#leave(one));
    this.#keeper.claims.set(id, claim);
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
  #ask(claim: Claim): void {
    const { leaseMs } = this.#options;
    claim.state = "asked";
    claim.deadline = performance.now() + leaseMs;
    this.#keeper.wakeIn(leaseMs / 3);
    const asked = this.#trips.send(claim.waits ? "acquire" : "try", claim.id);
    if (!this.#trips.isAway) claim.isKnown = true;
    asked.then(
      (answer) => this.#answered(claim, answer),
      (error) => {
        if (claim.state === "asked") this.#failed(claim, error);
      },
    );
  }

  #answered(claim: Claim, { standing, sentAt, reply }: LeaseAnswer): void {
    this.#keeper.extend(claim, sentAt);
    // given up meanwhile, or a message was faster
    if (claim.state !== "asked") return;
    if (standing === "held") {
      this.#letIn(claim);
    } else if (standing === "waiting" && this.#mayWait(claim)) {
      this.#seat(claim, "waiting");
      this.#news.listen();
      this.#keeper.wakeAtLapse(reply);
    } else {
      this.#refuse(claim, standing !== "none");
    }
  }

  #failed(claim: Claim, error: unknown): void {
    const isAway = error instanceof StoreUnavailableError && !isPermanent(error.cause);
    if (this.#options.whenUnavailable === "throw" || !isAway) {
      void this.#leave(claim);
      this.#meter.ended();
      claim.reject(this.outages.failed(error));
    } else if (this.#standIn === undefined) {
      // it is back already
      this.#ask(claim);
    } else {
      this.#admit(claim, this.#standIn);
    }
  }

  #mayWait(claim: Claim): boolean {
    return claim.waits && !claim.overdue && (claim.seated || this.#hasRoom());
  }

  #refuse(claim: Claim, hasTicket: boolean): void {
    const { name, maxWaiting } = this.#options;
    if (hasTicket) void this.#leave(claim);
    else this.#forget(claim);
    this.#meter.expired(1, claim.waited, claim.refusal);
    claim.refuse(() => new QueueFullError(name, 1, this.#waiting, maxWaiting));
  }

  #seat(claim: Claim, state: "waiting" | "parked"): void {
    claim.state = state;
    if (!claim.seated) this.#waiting += 1;
    claim.seated = true;
  }

  /** By the store; but while this process goes by its share, it holds no more than that. */
  #letIn(claim: Claim): void {
    const standIn = this.#options.whenUnavailable === "local" ? this.#standIn : undefined;
    if (standIn === undefined || this.#active < standIn.places) {
      this.#granted(claim);
    } else {
      void this.#keeper.giveBack(claim.id);
      if (claim.state === "asked") this.#admit(claim, standIn);
    }
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
    this.#standIn?.remove(claim);
    if (!claim.seated) return;
    claim.seated = false;
    this.#waiting -= 1;
    if (this.#waiting === 0) this.#news.linger();
  }

  /** The store has nothing of it, as far as we know. */
  #forget(claim: Claim): void {
    const wasHeld = claim.state === "held";
    if (!wasHeld) this.#settle(claim);
    claim.state = "gone";
    this.#keeper.claims.delete(claim.id);
    if (!wasHeld) return;
    this.#active -= 1;
    this.#grantHere();
  }

  /** It gives back whatever it has, or may come to have by a request that is under way. */
  #leave(claim: Claim): Promise<void> {
    if (claim.state === "gone") return Promise.resolve();
    this.#forget(claim);
    return claim.isKnown ? this.#keeper.giveBack(claim.id) : Promise.resolve();
  }

  #lose(claim: Claim): void {
    const { name, leaseMs } = this.#options;
    void this.#leave(claim);
    claim.lose(new LeaseLostError(name, leaseMs));
  }

  #looked(): void {
    if (this.#waiting === 0) return;
    if (this.#standIn === undefined) {
      this.#news.listen();
    } else {
      // the share may be another by now
      this.#grantHere();
      this.#keeper.wakeIn(SHARE_HOLDS_MS);
    }
  }

  #told(ids: readonly string[]): void {
    const now = performance.now();
    for (const id of ids) {
      const claim = this.#keeper.claims.get(id);
      if (claim === undefined || claim.state === "held" || claim.overdue) continue;
      // what is told so late may have lapsed: the reply to its next question says how it is
      if (now >= claim.deadline || (claim.state === "asked" && claim.seated)) continue;
      this.#letIn(claim);
    }
  }

  // -- while the store is away --

  /** Calls are answered here while the store is away. */
  get #letsIn(): boolean {
    const { whenUnavailable } = this.#options;
    return whenUnavailable === "allow" || whenUnavailable === "local";
  }

  /** The store is back, but not all of those who share the limit may be. */
  get #settling(): LeaseStandIn | undefined {
    return this.#trips.isAway ? undefined : this.#standIn;
  }

  /** How many this process may hold while the store is away. */
  #places(): number {
    const { whenUnavailable, instances = () => 1 } = this.#options;
    if (whenUnavailable === "allow") return Infinity;
    return whenUnavailable === "local" ? Math.max(1, Math.floor(this.#limit / instances())) : 0;
  }

  #lost(): void {
    if (this.#options.whenUnavailable === "throw") return;
    clearTimeout(this.#settled);
    this.#standIn ??= new LeaseStandIn(() => this.#places());
    for (const claim of this.#keeper.claims.values()) {
      if (claim.state === "waiting") {
        claim.state = "parked";
        this.#standIn.append(claim);
      } else if (claim.state === "held" && this.#letsIn) {
        claim.verb = "adopt";
      }
    }
    this.#looked();
  }

  /** The store cannot be asked for it. */
  #admit(claim: Claim, standIn: LeaseStandIn): void {
    this.#grantHere();
    if (this.#active < standIn.places) {
      this.#grantOne(claim);
    } else if (this.#mayWait(claim)) {
      this.#seat(claim, "parked");
      standIn.append(claim);
      this.#trips.awaited();
      this.#keeper.wakeIn(SHARE_HOLDS_MS);
    } else {
      this.#refuse(claim, true);
    }
  }

  #grantHere(): void {
    for (;;) {
      const claim = this.#standIn?.next(this.#active);
      if (claim === undefined) return;
      this.#grantOne(claim);
    }
  }

  #grantOne(claim: Claim): void {
    if (this.#trips.isAway) this.outages.granted(1);
    this.#granted(claim);
    this.#keeper.adopt(claim);
  }

  /**
   * The store is told what is held, then what is given back. Other processes may find it a pause
   * later: until all have told what they hold, each goes on with its share, and without tickets.
   */
  #found(): void {
    const { whenUnavailable, instances = () => 1 } = this.#options;
    const standIn = this.#standIn;
    if (standIn === undefined || whenUnavailable !== "local" || instances() === 1) {
      this.#retire();
      return;
    }
    this.#keeper.wake();
    for (const claim of standIn) {
      if (claim.isKnown) void this.#keeper.giveBack(claim.id);
    }
    this.#settled = setTimeout(() => this.#retire(), LONGEST_PAUSE_MS);
    this.#settled.unref?.();
  }

  /** Those who wait ask the store, in order. */
  #retire(): void {
    const line = [...(this.#standIn ?? [])];
    this.#standIn = undefined;
    for (const claim of line) claim.state = "asked";
    this.#keeper.wake();
    for (const claim of line) this.#ask(claim);
  }

  /** An answer that nobody waits for any more. */
  #late(id: string, { standing, sentAt }: LeaseAnswer): void {
    const claim = this.#keeper.claims.get(id);
    if (claim === undefined) {
      void this.#keeper.giveBack(id);
      return;
    }
    this.#keeper.extend(claim, sentAt);
    const isValid = standing === "held" && performance.now() < sentAt + this.#options.leaseMs;
    if (isValid && claim.state !== "held" && !claim.overdue) this.#letIn(claim);
  }
}
