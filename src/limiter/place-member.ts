/** Concurrency limiters in a combination: what is taken is a place. */
import type { Decision, TryOptions } from "./face.ts";
import {
  type HeldPlace,
  type Look,
  localSteps,
  type PlaceQueue,
  type PlacesMember,
  type Steps,
  type Takeable,
} from "./member.ts";

/** What a concurrency limiter does for its member. */
export interface PlacesAsked {
  /** How many places there are, and how many are taken. */
  status(): PlacesStatus;
  /** Takes a place if one is free; a refusal is not reported. */
  take(): HeldPlace | undefined;
  refused(): void;
  readonly queue: PlaceQueue;
}

export interface PlacesStatus {
  readonly limit: number;
  readonly active: number;
}

/** How a request stands where places are counted. Nobody can tell when the next one is free. */
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
  if (place === undefined) return { decision: { ...decision, allowed: false }, passes: false };
  return { decision, passes: true, taken: { place, undo: () => place.release() } };
}

/** In this process. */
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

/** On a store elsewhere: a look and what is taken are two requests. */
export class RemotePlaceMember implements PlacesMember {
  readonly steps: Steps;
  readonly slot = "";
  readonly queue: PlaceQueue;

  constructor(
    limiter: Omit<PlaceQueue, "now"> & {
      peek(): Promise<PlacesStatus>;
      tryAcquire(wait?: TryOptions): Promise<HeldPlace | undefined>;
    },
  ) {
    const look = async () => lookOf(await limiter.peek());
    this.queue = {
      acquire: (options) => limiter.acquire(options),
      tryAcquire: (wait) => limiter.tryAcquire(wait),
      now: () => performance.now(),
    };
    this.steps = {
      look: async () => [await look()],
      async take() {
        const place = await limiter.tryAcquire();
        if (place === undefined) return [{ ...(await look()), passes: false }];
        const decision = { limit: Infinity, active: 0 };
        return [taken(place, decision)];
      },
    };
  }

  /** Its own verbs have reported that. */
  refused(): void {}
}
