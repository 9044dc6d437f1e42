import type { Breaker } from "../../../src/stores/breaker.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  Listening,
  TicketState,
} from "../../../src/stores/lease-store.ts";
import { isPermanent } from "../../../src/stores/redis/permanent.ts";

/** Does what `concurrency.lua` does, in this process, with faults on demand. */
export class HandLeaseStore implements LeaseStore {
  /** The requests of each batch, abbreviated. */
  readonly batches: string[] = [];
  /** When each lapses, ms; tickets in order. */
  readonly leases = new Map<string, number>();
  readonly tickets = new Map<string, number>();
  /** Replies with this instead of running a batch. */
  away: Error | undefined;
  /** Replies wait for `deliver`; the batches have run nevertheless. */
  held = false;
  /** Messages are lost, or subscribing fails. */
  deaf = false;
  /** The result of a check of the listening connection; undefined: it cannot be checked. */
  check: (() => Promise<unknown>) | undefined;
  /** A listening connection opens when this resolves. */
  opening: Promise<void> = Promise.resolve();
  unheard: Error | undefined;
  breaker: Breaker | undefined;

  breakerOf(): Breaker | undefined {
    return this.breaker;
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  /** How many subscriptions are open now, and how many were opened in all. */
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

  /** Delivers the withheld replies, and from now on all at once. */
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

  /** All state is lost. */
  flush(): void {
    this.leases.clear();
    this.tickets.clear();
  }

  /** Sends a message, whether it is true or not. */
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
      active: this.#active,
      waiting: this.tickets.size,
      lapseMs: this.tickets.size > 0 && soonest < Infinity ? soonest : -1,
      standings,
    };
  }

  get #active(): number {
    return [...this.leases.keys()].reduce((slots, id) => slots + slotsOf(id), 0);
  }

  #fits(id: string, limit: number): boolean {
    return this.#active + slotsOf(id) <= limit || this.#active === 0;
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
        else if (this.tickets.size === 0 && this.#fits(what, limit)) this.leases.set(what, lapse);
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
      if (!this.#fits(id, this.#limit ?? declared)) return;
      this.tickets.delete(id);
      this.leases.set(id, lapse);
      if (!this.deaf) queueMicrotask(() => this.tell(id));
    }
  }
}

/** An id without the part that all ids of a limiter share. */
function short(what: string): string {
  return what.includes(":") ? what.split(":").slice(3).join(":") : what;
}

export function slotsOf(id: string): number {
  return Number(id.split(":")[4] ?? 1);
}

/** Everything that is ready to run has run, except timers. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 50; i++) await Promise.resolve();
}
