/** Limits how many bytes of a response are sent each second: nginx's `limit_rate`. */
import {
  type Clock,
  KeyedLimiter,
  type Limiter,
  RateLimiter,
  smoothBursty,
  systemClock,
} from "smooth-limiter";
import type { Actor } from "../actors/actor.ts";
import { guarded } from "../actors/guarded.ts";
import { keyOf } from "../actors/key.ts";
import type { Checker } from "../answers/checker.ts";
import {
  aboveZero,
  atLeastZero,
  type Checks,
  checkClock,
  checkFunction,
  checkOptions,
  show,
} from "../ground/check.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { PaceLimit } from "../pipeline/limit.ts";
import { checkerOf } from "../pipeline/pipeline.ts";
import type { CheckCall } from "../request.ts";

/** The options of `limitRate`. */
export interface LimitRateOptions {
  /** Bytes per second, above 0. Required unless `limiter` is given. */
  readonly bytesPerSecond?: number | undefined;
  /**
   * How many bytes of each response are sent at once, before the limit applies. 0 or more, default 0.
   */
  readonly afterBytes?: number | undefined;
  /**
   * All responses of one value of this actor share the rate, in this process. Requests without a value
   * share one. Default: each response has the rate for itself, as in nginx.
   */
  readonly actor?: Actor | undefined;
  /**
   * A limiter whose permits are bytes, in place of `bytesPerSecond`: one for all responses, or a
   * function that returns the limiter for a value of the actor.
   */
  readonly limiter?: Limiter | ((actor: string) => Limiter) | undefined;
  /** The clock, for tests. Default: the system's clock. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: Checks<LimitRateOptions> = {
  bytesPerSecond: aboveZero,
  afterBytes: atLeastZero,
  actor: checkFunction,
  limiter(name, limiter) {
    const isLimiter = typeof (Object(limiter) as Partial<Limiter>).acquire === "function";
    if (isLimiter || typeof limiter === "function") return;
    throw new TypeError(`${name} must be a limiter or a function, got ${show(limiter)}`);
  },
  clock: checkClock,
};

/** How long an actor's promise may take, ms. */
const ACTOR_TIMEOUT_MS = 5000;

/**
 * Creates a limit on the bytes per second of responses: of each response, or of all responses of an
 * actor together. It works on whatever a handler sends: texts, files and streams. The header fields
 * are sent at once. Bodies that wait are held in memory if the handler sends them in one piece;
 * streams are read at the pace at which they are sent.
 *
 * @param options see `LimitRateOptions`
 * @returns a filter that all server adapters accept in place of a gateway; use it beside one
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const rate = limitRate({ bytesPerSecond: 100 * 1024, afterBytes: 512 * 1024 });
 * app.use(expressGateway(rate));
 */
export function limitRate(options: LimitRateOptions): Checker {
  checkOptions("options", options, OPTIONS);
  const { afterBytes = 0, clock = systemClock } = options;
  const limiterOf = limiters(options, clock);
  const pace: PaceLimit = {
    pace: (call) => chain(limiterOf(call), (limiter) => ({ limiter, afterBytes })),
  };
  return checkerOf({ paces: [pace] });
}

function limiters(
  { bytesPerSecond, actor, limiter }: LimitRateOptions,
  clock: Clock,
): (call: CheckCall) => MaybePromise<Limiter> {
  if ((bytesPerSecond === undefined) === (limiter === undefined)) {
    throw new TypeError("limitRate needs bytesPerSecond or limiter, and not both");
  }
  const actorOf =
    actor && guarded("the actor of limitRate", actor, { timeoutMs: ACTOR_TIMEOUT_MS, clock });
  const by = (of: (actor: string) => Limiter) => (call: CheckCall) =>
    chain(actorOf?.(call), (value = "") => of(value));
  if (typeof limiter === "function") return by(limiter);
  if (limiter !== undefined) return () => limiter;
  const permitsPerSecond = bytesPerSecond as number;
  if (actorOf === undefined) return () => RateLimiter.create(permitsPerSecond, { clock });
  const keys = KeyedLimiter.create(smoothBursty({ permitsPerSecond }), { clock });
  return by((value) => keys.for(keyOf(value, "local")));
}
