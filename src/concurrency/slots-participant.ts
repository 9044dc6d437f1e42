/** Concurrency limiters in a combination: each grants slots. */
import type { Decision, ShareOptions, TryOptions, WaitOptions } from "../api/limiter-api.ts";
import {
  type AtomicStep,
  type Check,
  type ConcurrencyParticipant,
  endLease,
  type HeldSlots,
  localStep,
  type SlotsQueue,
  type Subrequest,
  type Takeable,
} from "../api/participant.ts";
import type { StepOptions } from "../api/timeout.ts";
import type { Permits } from "../ground/permits.ts";

/** What a concurrency limiter offers to its participant. */
export interface SlotsAsked {
  /** The number of slots, how many are in use, and whether a call for that many would get them now. */
  status(slots: number, share?: ShareOptions): SlotsStatus & { readonly isFree: boolean };
  /** Takes slots if they are free; does not report a refusal. */
  take(slots: number, share?: ShareOptions): HeldSlots | undefined;
  refused(slots: number): void;
  /** Checks a number of slots. */
  amount(slots: unknown): number;
  readonly queue: SlotsQueue;
}

export interface SlotsStatus {
  readonly limit: number;
  readonly active: number;
}

/** When the next slot is free cannot be known. */
function checkOf({ limit, active }: SlotsStatus, allowed: boolean): Check {
  const policy = "concurrency";
  const status = { limit, remaining: Math.max(0, limit - active), resetMs: 0 };
  const decision: Decision = {
    ...{ allowed, waitMs: allowed ? 0 : Infinity, ...status, policy },
    policies: { [policy]: { allowed, ...status, windowMs: 0 } },
  };
  return { decision, passes: allowed };
}

function taken(lease: HeldSlots | undefined, status: SlotsStatus): Check {
  const check = checkOf(status, lease !== undefined);
  if (lease === undefined) return check;
  return { ...check, taken: { held: lease, undo: () => endLease(lease, "ignore") } };
}

/** For a limiter in this process. */
export class SlotsParticipant implements ConcurrencyParticipant, Takeable {
  readonly steps = localStep;
  readonly slot = "";
  readonly queue: SlotsQueue;
  readonly #asked: SlotsAsked;

  constructor(asked: SlotsAsked) {
    this.#asked = asked;
    this.queue = asked.queue;
  }

  check(permits: Permits, _longestMs: number, share?: ShareOptions): Check {
    const status = this.#asked.status(this.#asked.amount(permits), share);
    return checkOf(status, status.isFree);
  }

  take(permits: Permits, _longestMs: number, share?: ShareOptions): Check {
    const slots = this.#asked.amount(permits);
    const lease = this.#asked.take(slots, share);
    return taken(lease, this.#asked.status(slots, share));
  }

  refused(permits: Permits): void {
    this.#asked.refused(this.#asked.amount(permits));
  }
}

/** The store of a concurrency limiter. */
interface SlotsStore {
  /** See `Participant`. */
  readonly answerMs: number;
  /** @throws WaitTimeoutError, or the signal's own reason, if the store is away for longer */
  status(options: StepOptions): Promise<SlotsStatus>;
}

/**
 * For a limiter on a store elsewhere: looking and taking are two requests. On a fair one the take counts for
 * the share of the call, and is refused while callers of other shares go first.
 */
export class RemoteSlotsParticipant implements ConcurrencyParticipant {
  readonly steps: AtomicStep;
  readonly slot = "";
  readonly queue: SlotsQueue;
  readonly #store: SlotsStore;

  constructor(
    limiter: {
      acquire(slots: number, options: WaitOptions): Promise<HeldSlots>;
      tryAcquire(slots: number, wait: TryOptions): Promise<HeldSlots | undefined>;
    },
    store: SlotsStore,
    isFair: boolean,
    rank: string,
  ) {
    this.#store = store;
    this.queue = {
      acquire: async (slots, options, held) => held(await limiter.acquire(slots, options)),
      async tryAcquire(slots, wait, held) {
        const lease = await limiter.tryAcquire(slots, wait);
        return lease && held(lease);
      },
      isFair,
      rank,
      now: () => performance.now(),
    };
    // every such limiter has steps of its own, so there is exactly one part
    this.steps = {
      async check([subrequest], options) {
        const status = await store.status(options);
        return [
          checkOf(
            status,
            status.active + Number((subrequest as Subrequest).permits) <= status.limit,
          ),
        ];
      },
      async take([subrequest], { signal, timeoutMs = Infinity }) {
        const { permits, share } = subrequest as Subrequest;
        const endMs = performance.now() + timeoutMs;
        const lease = await limiter.tryAcquire(Number(permits), { timeoutMs: 0, signal, ...share });
        if (lease !== undefined) return [taken(lease, { limit: Infinity, active: 0 })];
        const left = { signal, timeoutMs: endMs - performance.now() };
        return [taken(undefined, await store.status(left))];
      },
    };
  }

  get answerMs(): number {
    return this.#store.answerMs;
  }

  /** Does nothing: the limiter's own verbs have reported the refusal. */
  refused(): void {}
}
