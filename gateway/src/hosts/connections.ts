/** Limits how many requests of one actor are in progress at once: nginx's `limit_conn`. */
import { type Clock, type Decision, systemClock } from "smooth-limiter";
import type { Actor } from "../actors/actor.ts";
import { canonical, fromAddress } from "../actors/address.ts";
import { guarded } from "../actors/guarded.ts";
import { keyOf } from "../actors/key.ts";
import type { Checker, CheckResult } from "../answers/checker.ts";
import {
  aboveZero,
  aboveZeroOrInfinity,
  checkClock,
  checkFunction,
  checkNumber,
  checkOptions,
  checkText,
  show,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { chain, type Maybe, settled } from "../ground/maybe.ts";
import type { GatewayRequest } from "../request.ts";

export interface ConnectionsOptions {
  /**
   * The actor by which requests are counted. Default: the client's address, `fromAddress()`.
   * Requests without a value are counted by the address of their connection.
   */
  readonly actor?: Actor | undefined;
  /**
   * How long the promise of the actor may take, ms, above 0, default 5000. After that the actor has
   * failed, and the request counts as one without a value.
   */
  readonly actorTimeoutMs?: number | undefined;
  /** The name in refusals: printable ASCII. Default "connections". */
  readonly name?: string | undefined;
  /**
   * How long a request holds its place at most, ms, above 0. Default Infinity: until it is over. A
   * last resort for servers that do not report the end of a request: give a time that no request of
   * yours needs. A longer request goes on, but is no longer counted.
   */
  readonly maxAgeMs?: number | undefined;
  /**
   * Creates the limiter of an actor, where several processes share the limit: a
   * `RedisConcurrencyLimiter`, for example. It is created for the first request of an actor, and
   * closed when none is in progress any more. Default: the requests of this process are counted.
   *
   * @param key the actor's key, a hash
   * @param limit the limit
   */
  readonly limiter?: ((key: string, limit: number) => SharedPlaces) | undefined;
  /** The clock for `maxAgeMs` and `actorTimeoutMs`, for tests. Default: the system's clock. */
  readonly clock?: Clock | undefined;
}

/** What is needed of a `RedisConcurrencyLimiter`, or of a `ConcurrencyLimiter`. */
export interface SharedPlaces {
  tryAcquire(): Maybe<{ release(): Maybe<void> } | undefined>;
  close?(): Promise<void>;
}

/** The retry time of a refusal: when a place becomes free cannot be known, so one second. */
const RETRY_MS = 1000;

const OPTIONS: readonly (keyof ConnectionsOptions)[] = [
  "actor",
  "actorTimeoutMs",
  "name",
  "maxAgeMs",
  "limiter",
  "clock",
];

const PASSED: CheckResult = Object.freeze({
  allowed: true,
  retryMs: 0,
  outcomes: Object.freeze([]),
});

/** Frees a place. Does nothing if it was freed before. */
type Leave = () => void;

/** Counts the requests of each actor that are in progress. */
interface Places {
  /** @returns undefined if the actor has no place left */
  take(key: string): Maybe<Leave | undefined>;
}

/** Counts in this process. */
class OwnPlaces implements Places {
  readonly #limit: number;
  readonly #maxAgeMs: number;
  readonly #clock: Clock;
  readonly #taken = new Map<string, number>();
  /** In the order in which they were taken, so the oldest is the first. */
  readonly #places = new Set<Place>();

  constructor(limit: number, maxAgeMs: number, clock: Clock) {
    this.#limit = limit;
    this.#maxAgeMs = maxAgeMs;
    this.#clock = clock;
  }

  take(key: string): Leave | undefined {
    const nowMs = this.#clock.now();
    for (const place of this.#places) {
      if (place.untilMs > nowMs) break;
      this.#leave(place);
    }
    const others = this.#taken.get(key) ?? 0;
    if (others >= this.#limit) return undefined;
    this.#taken.set(key, others + 1);
    const place = { key, untilMs: nowMs + this.#maxAgeMs };
    this.#places.add(place);
    return () => this.#leave(place);
  }

  #leave(place: Place): void {
    if (!this.#places.delete(place)) return;
    const left = (this.#taken.get(place.key) ?? 0) - 1;
    if (left > 0) this.#taken.set(place.key, left);
    else this.#taken.delete(place.key);
  }
}

interface Place {
  readonly key: string;
  readonly untilMs: number;
}

/** Counts by limiters of the application, one for each actor. */
class LeasedPlaces implements Places {
  readonly #create: (key: string) => SharedPlaces;
  readonly #maxAgeMs: number;
  readonly #clock: Clock;
  readonly #open = new Map<string, { readonly limiter: SharedPlaces; requests: number }>();

  constructor(create: (key: string) => SharedPlaces, maxAgeMs: number, clock: Clock) {
    this.#create = create;
    this.#maxAgeMs = maxAgeMs;
    this.#clock = clock;
  }

  async take(key: string): Promise<Leave | undefined> {
    const open = this.#open.get(key) ?? {
      limiter: this.#create(keyOf(key, "global")),
      requests: 0,
    };
    this.#open.set(key, open);
    open.requests += 1;
    const end = () => {
      open.requests -= 1;
      if (open.requests > 0) return;
      this.#open.delete(key);
      void settled(() => open.limiter.close?.());
    };
    try {
      const lease = await open.limiter.tryAcquire();
      if (lease !== undefined) return this.#leaving(lease, end);
    } catch (error) {
      end();
      throw error;
    }
    end();
    return undefined;
  }

  #leaving(lease: { release(): Maybe<void> }, end: () => void): Leave {
    let isHeld = true;
    const leave = () => {
      if (!isHeld) return;
      isHeld = false;
      timer?.cancel();
      void chain(
        settled(() => lease.release()),
        end,
      );
    };
    const untilMs = this.#clock.now() + this.#maxAgeMs;
    const timer = untilMs < Infinity ? this.#clock.wakeAt(untilMs, leave) : undefined;
    timer?.unref?.();
    return leave;
  }
}

/**
 * Creates a filter that limits how many requests of each actor are in progress at once, in this
 * process or, with `limiter`, in all. A request beyond the limit is refused; it does not wait. A place becomes free when the
 * request is over, its socket closes or its HTTP/2 stream closes, whichever comes first, whether or
 * not the response body was read; after `maxAgeMs` at the latest. If the server does not report the
 * end of a request, the request is counted for `maxAgeMs`; without `maxAgeMs` it is not counted.
 *
 * @param limit how many, a whole number, 1 or more
 * @param options see `ConnectionsOptions`
 * @returns a filter that all server adapters accept in place of a gateway; use it beside one
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * app.use(expressGateway(limitConnections(10)));
 * app.use(expressGateway(gateway));
 */
export function limitConnections(limit: number, options: ConnectionsOptions = {}): Checker {
  checkNumber("limit", limit, wholeAtLeastOne);
  checkOptions("options", options, OPTIONS);
  const { actor = fromAddress(), actorTimeoutMs = 5000, name = "connections" } = options;
  const { maxAgeMs = Infinity, limiter, clock = systemClock } = options;
  if (limiter !== undefined) checkFunction("limiter", limiter);
  if (typeof actor !== "function") {
    throw new TypeError(`actor must be a function, got ${show(actor)}`);
  }
  if (!/^[ -~]+$/.test(checkText("name", name))) {
    throw new TypeError(`name must be printable ASCII, got ${show(name)}`);
  }
  checkNumber("actorTimeoutMs", actorTimeoutMs, aboveZero);
  checkNumber("maxAgeMs", maxAgeMs, aboveZeroOrInfinity);
  const rule = { name, mode: "enforce", cost: 1, quotaUnit: "concurrent-requests" } as const;
  checkClock(clock);
  const places: Places =
    limiter === undefined
      ? new OwnPlaces(limit, maxAgeMs, clock)
      : new LeasedPlaces((key) => limiter(key, limit), maxAgeMs, clock);
  const safeActor = guarded("the actor of limitConnections", actor, actorTimeoutMs, clock);

  const enter = (value: string | undefined, request: GatewayRequest): Maybe<CheckResult> => {
    // the end of the request is never reported, so its place would never be freed
    if (request.onClose === undefined && maxAgeMs === Infinity) return PASSED;
    return chain(places.take(placeKey(value, request)), (leave) => {
      if (leave === undefined) {
        const outcome = { rule, allowed: false, decision: full(name, limit) };
        return { allowed: false, retryMs: RETRY_MS, outcomes: [outcome] };
      }
      request.onClose?.(() => leave());
      return PASSED;
    });
  };

  return {
    check(request, report) {
      const value = safeActor(request, report);
      return value instanceof Promise
        ? value.then((later) => enter(later, request))
        : enter(value, request);
    },
  };
}

/** Prefixes keep an actor's value distinct from an address that stands for a missing value. */
function placeKey(value: string | undefined, { remoteAddress = "" }: GatewayRequest): string {
  return value ? `=${keyOf(value, "local")}` : `@${canonical(remoteAddress) ?? ""}`;
}

function full(policy: string, limit: number): Decision {
  const status = { limit, remaining: 0, resetMs: RETRY_MS, windowMs: 0 };
  return {
    allowed: false,
    waitMs: RETRY_MS,
    ...status,
    policy,
    policies: { [policy]: { allowed: false, ...status } },
  };
}
