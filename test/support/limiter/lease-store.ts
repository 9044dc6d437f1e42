import type { Breaker } from "../../../src/stores/breaker.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  Listening,
  TicketState,
} from "../../../src/stores/lease-store.ts";
import { isPermanent } from "../../../src/stores/redis/permanent.ts";

/** What `concurrency.lua` does, in this process, and every fault on demand. */
export class HandLeaseStore implements LeaseStore {
  /** The requests of each batch, in short. */
  readonly batches: string[] = [];
  /** When each lapses, ms; tickets in order. */
  readonly leases = new Map<string, number>();
  readonly tickets = new Map<string, number>();
  /** What it answers instead of doing what it is asked. */
  away: Error | undefined;
  /** Replies wait for `deliver`; what was asked has been done nevertheless. */
  held = false;
  /** Messages are lost, or subscribing fails. */
  deaf = false;
  /** What becomes of a check of the connection that listens; undefined: it cannot be checked. */
  check: (() => Promise<unknown>) | undefined;
  /** A connection that listens opens when this does. */
  opening: Promise<void> = Promise.resolve();
  unheard: Error | undefined;
  breaker: Breaker | undefined;

  breakerOf(): Breaker | undefined {
    return this.breaker;
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  /** How many listen now, and how many did. */
  listening = 0;
  subscriptions = 0;
  #limit: number | undefined;
  readonly #ears = new Map<string, (ids: readonly string[]) => void>();
  readonly #undelivered: (() => void)[] = [];

  async run(
    _key: string,
    declared: number,
    requests: readonly LeaseRequest[],
  ): Promise<LeaseReply> {
    this.batches.push(requests.map(({ verb, what }) => `${verb} ${short(what)}`).join(", "));
    if (this.away !== undefined) throw this.away;
    const reply = this.#runBatch(declared, requests);
    if (!this.held) return reply;
    return new Promise((resolve) => {
      this.#undelivered.push(() => resolve(reply));
    });
  }

  /** The replies that were held back, and from now on all at once. */
  async deliver(): Promise<void> {
    this.held = false;
    for (const resolve of this.#undelivered.splice(0)) resolve();
    await settled();
  }

  listen(_key: string, processId: string, granted: (ids: readonly string[]) => void): Listening {
    this.subscriptions += 1;
    if (this.unheard !== undefined) {
      return { ready: Promise.reject(this.unheard), close: () => {} };
    }
    this.listening += 1;
    this.#ears.set(processId, granted);
    const close = () => {
      this.listening -= 1;
      this.#ears.delete(processId);
    };
    const { check } = this;
    return { ready: this.opening, close, ...(check && { check }) };
  }

  /** Everything is lost. */
  flush(): void {
    this.leases.clear();
    this.tickets.clear();
  }

  /** A message, be it true or not. */
  tell(id: string): void {
    this.#ears.get(String(id.split(":")[2]))?.([id]);
  }

  #runBatch(declared: number, requests: readonly LeaseRequest[]): LeaseReply {
    const now = performance.now();
    for (const all of [this.leases, this.tickets]) {
      for (const [id, lapse] of all) if (lapse <= now) all.delete(id);
    }
    for (const { verb, what } of requests) if (verb === "adopt") this.#adopt(what, now);
    if (requests[0]?.verb !== "probe") this.#grant(declared);
    const standings = requests.map((request) => this.#answer(declared, request));
    const soonest = Math.min(...this.leases.values()) - now;
    return {
      limit: this.#limit ?? declared,
      active: this.leases.size,
      waiting: this.tickets.size,
      lapseMs: this.tickets.size > 0 && soonest < Infinity ? soonest : -1,
      standings,
    };
  }

  #answer(declared: number, { verb, what }: LeaseRequest): TicketState {
    const lapse = performance.now() + Number(what.split(":")[0]);
    const limit = this.#limit ?? declared;
    switch (verb) {
      case "acquire":
      case "try":
      case "keep":
        if (this.leases.has(what)) this.leases.set(what, lapse);
        else if (this.tickets.has(what)) this.tickets.set(what, lapse);
        else if (verb === "keep") return "none";
        else if (this.tickets.size === 0 && this.leases.size < limit) this.leases.set(what, lapse);
        else if (verb === "acquire") this.tickets.set(what, lapse);
        else return "none";
        return this.leases.has(what) ? "held" : "waiting";
      case "release":
        this.leases.delete(what);
        this.tickets.delete(what);
        break;
      case "limit":
        this.#limit = Number(what);
        break;
      case "adopt":
        return "held";
      case "probe":
        return "none";
      case "look":
        break;
    }
    this.#grant(declared);
    return "none";
  }

  #adopt(id: string, now: number): void {
    this.tickets.delete(id);
    this.leases.set(id, now + Number(id.split(":")[0]));
  }

  #grant(declared: number): void {
    for (const [id, lapse] of this.tickets) {
      if (this.leases.size >= (this.#limit ?? declared)) return;
      this.tickets.delete(id);
      this.leases.set(id, lapse);
      if (!this.deaf) queueMicrotask(() => this.tell(id));
    }
  }
}

/** An id without what is the same for all of a limiter. */
function short(what: string): string {
  return what.split(":").at(-1) ?? "";
}

/** Everything that is ready to run has run, timers aside. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 50; i++) await Promise.resolve();
}
