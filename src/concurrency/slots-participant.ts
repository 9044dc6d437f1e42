/** Concurrency limiters in a combination: each grants a place. */
import type { Decision, TryOptions, WaitOptions } from "../api/limiter-api.ts";
import {
  type HeldPlace,
  type Look,
  localSteps,
  type PlaceQueue,
  type PlacesMember,
  type Steps,
  type Takeable,
} from "../api/participant.ts";

/** What a concurrency limiter offers to its member. */
export interface PlacesAsked {
  /** The number of places, and how many are in use. */
  status(): PlacesStatus;
  /** Takes a place if one is free; does not report a refusal. */
  take(): HeldPlace | undefined;
  refused(): void;
  readonly queue: PlaceQueue;
}

export interface PlacesStatus {
  readonly limit: number;
  readonly active: number;
}

/** The answer for a free or a missing place. When the next place is free cannot be known. */
function lookOf({ limit, active }: PlacesStatus): Look {
  const policy = "concurrency";
  const remaining = Math.max(0, limit - active);
  const allowed = remaining > 0;
  const status = { limit, remaining, resetMs: 0 };
  const decision: Decision = {
    ...{ allowed, waitMs: allowed ? 0 : Infinity, ...status, policy },
    policies: { [policy]: { allowed, ...status, windowMs: 0 } },
  };
  return { decision, passes: allowed };
}

function taken(place: HeldPlace | undefined, status: PlacesStatus): Look {
  const { decision } = lookOf(status);
  // a place that is free now may belong to a caller that goes first
  const refused = { ...decision, allowed: false, waitMs: Infinity };
  if (place === undefined) return { decision: refused, passes: false };
  return { decision, passes: true, taken: { place, undo: () => place.release() } };
}

/** For a limiter in this process. */
export class PlaceMember implements PlacesMember, Takeable {
  readonly steps = localSteps;
  readonly slot = "";
  readonly queue: PlaceQueue;
  readonly #asked: PlacesAsked;

  constructor(asked: PlacesAsked) {
    this.#asked = asked;
    this.queue = asked.queue;
  }

  look(): Look {
    return lookOf(this.#asked.status());
  }

  take(): Look {
    return taken(this.#asked.take(), this.#asked.status());
  }

  refused(): void {
    this.#asked.refused();
  }
}

/**
 * For a limiter on a store elsewhere: looking and taking are two requests. On a fair one the take counts for
 * the share of the call, and is refused while callers of other shares go first.
 */
export class RemotePlaceMember implements PlacesMember {
  readonly steps: Steps;
  readonly slot = "";
  readonly queue: PlaceQueue;

  constructor(
    limiter: {
      peek(): Promise<PlacesStatus>;
      acquire(options: WaitOptions): Promise<HeldPlace>;
      tryAcquire(wait: TryOptions): Promise<HeldPlace | undefined>;
    },
    isFair: boolean,
  ) {
    const look = async () => lookOf(await limiter.peek());
    this.queue = {
      acquire: async (options, held) => held(await limiter.acquire(options)),
      async tryAcquire(wait, held) {
        const place = await limiter.tryAcquire(wait);
        return place && held(place);
      },
      isFair,
      now: () => performance.now(),
    };
    this.steps = {
      look: async () => [await look()],
      async take(parts) {
        const place = await limiter.tryAcquire({ timeoutMs: 0, ...parts[0]?.share });
        const status = place ? { limit: Infinity, active: 0 } : await limiter.peek();
        return [taken(place, status)];
      },
    };
  }

  /** Does nothing: the limiter's own verbs have reported the refusal. */
  refused(): void {}
}
