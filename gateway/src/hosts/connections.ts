/** Limits how many requests of one actor are in progress at once: nginx's `limit_conn`. */
import { type AdaptiveLimit, type Clock, systemClock } from "smooth-limiter";
import type { Actor } from "../actors/actor.ts";
import { CLIENT_OPTIONS, type ClientOptions, fromAddress } from "../actors/address.ts";
import { guarded } from "../actors/guarded.ts";
import { keyOf, localKey } from "../actors/key.ts";
import type { Checker } from "../answers/checker.ts";
import {
  aboveZero,
  aboveZeroOrInfinity,
  type Checks,
  checkClock,
  checkFunction,
  checkName,
  checkOptions,
  wholeAtLeastOne,
} from "../ground/check.ts";
import { chain } from "../ground/maybe-promise.ts";
import { LearnedSlots } from "../learned-slots.ts";
import type { SlotLimit } from "../pipeline/limit.ts";
import { checkerOf } from "../pipeline/pipeline.ts";
import { LeasedSlots, OwnSlots, type SharedSlots } from "../slots.ts";

/** The options of `limitConnections`. */
export interface ConnectionsOptions extends ClientOptions {
  /**
   * The actor by which requests are counted. Default: the client's address. Requests without a value
   * are counted by their address, separately from those with one.
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
   * How long a request holds its slot at most, ms, above 0. Default Infinity: until it is over. A
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
  readonly limiter?: ((key: string, limit: number) => SharedSlots) | undefined;
  /** The clock for `maxAgeMs` and `actorTimeoutMs`, for tests. Default: the system's clock. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: Checks<ConnectionsOptions> = {
  actor: checkFunction,
  ...CLIENT_OPTIONS,
  actorTimeoutMs: aboveZero,
  name: checkName,
  maxAgeMs: aboveZeroOrInfinity,
  limiter: checkFunction,
  clock: checkClock,
};

/**
 * Creates a filter that limits how many requests of each actor are in progress at once, in this
 * process or, with `limiter`, in all. A request beyond the limit is refused; it does not wait. A slot
 * becomes free when the request is over, its socket closes or its HTTP/2 stream closes, whichever comes
 * first, whether or not the response body was read; after `maxAgeMs` at the latest. If the server does not report the
 * end of a request, the request is counted for `maxAgeMs`; without `maxAgeMs` it is not counted.
 *
 * @param limit how many, a whole number, 1 or more; or `adaptive({ max })`: all requests of this process are counted
 *   together, and how many may be in progress is learned from how long they take
 * @param options see `ConnectionsOptions`. With an adaptive limit there is no actor and no `limiter`
 * @returns a filter that all server adapters accept in place of a gateway; use it beside one
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * app.use(expressGateway(limitConnections(10)));
 * app.use(expressGateway(gateway));
 * @example
 * app.use(expressGateway(limitConnections(adaptive({ max: 500 })), { status: 503 }));
 */
export function limitConnections(
  limit: number | AdaptiveLimit,
  options: ConnectionsOptions = {},
): Checker {
  checkOptions("options", options, OPTIONS);
  const { name = "connections", maxAgeMs = Infinity, clock = systemClock } = options;
  const all = { ...options, clock, maxAgeMs };
  const counting =
    typeof limit === "object"
      ? allTogether(limit, all)
      : byActor(wholeAtLeastOne("limit", limit), all);
  const rule = { name, mode: "enforce", cost: 1, quotaUnit: "concurrent-requests" } as const;
  const endsByItself = maxAgeMs < Infinity;
  return checkerOf({ slots: [{ rule, order: 0, endsByItself, ...counting }] });
}

/** Where requests are counted, and what each of them takes. */
type Counting = Pick<SlotLimit, "slots" | "slotFor">;

type AllOptions = ConnectionsOptions & { readonly clock: Clock; readonly maxAgeMs: number };

function byActor(limit: number, options: AllOptions): Counting {
  const { clock, maxAgeMs, trustedProxies, ipv6Prefix, actorTimeoutMs = 5000, limiter } = options;
  const address = fromAddress({ trustedProxies, ipv6Prefix });
  const { actor = address } = options;
  const safeActor = guarded("the actor of limitConnections", actor, {
    timeoutMs: actorTimeoutMs,
    clock,
  });
  return {
    slots:
      limiter === undefined
        ? new OwnSlots(clock)
        : new LeasedSlots((key, most) => limiter(keyOf(key, "global"), most), clock),
    slotFor: (call) =>
      chain(safeActor(call), (value) => {
        const key = localKey(value, address, call.request);
        return { actor: key, key, limit, maxAgeMs };
      }),
  };
}

/** The options that have no meaning where the requests of all actors are counted together. */
const OF_ACTORS = ["actor", "trustedProxies", "ipv6Prefix", "actorTimeoutMs", "limiter"] as const;

function allTogether(limit: AdaptiveLimit, options: AllOptions): Counting {
  const ofActors = OF_ACTORS.find((option) => options[option] !== undefined);
  if (ofActors !== undefined) {
    throw new TypeError(`an adaptive limit counts all requests together: leave out ${ofActors}`);
  }
  const { clock, maxAgeMs } = options;
  const slots = new LearnedSlots(limit, clock);
  return {
    slots,
    slotFor: ({ request }) => ({
      actor: "all",
      key: "all",
      limit: slots.limit,
      maxAgeMs,
      onAnswered: request.onAnswered?.bind(request),
    }),
  };
}
