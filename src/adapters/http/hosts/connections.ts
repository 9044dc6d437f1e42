/** How many requests of one actor may be under way at once: nginx's `limit_conn`. */
import { checkNumber, checkOptions, checkText, show, wholeAtLeastOne } from "../../../check.ts";
import type { Decision } from "../../../limiter/face.ts";
import type { Actor } from "../actors/actor.ts";
import { fromAddress } from "../actors/address.ts";
import { keyOf } from "../actors/key.ts";
import type { Screen, Screened } from "../answers/screen.ts";
import type { GatewayRequest } from "../request.ts";

export interface ConnectionsOptions {
  /** Whose requests are counted together. Default: the client's address, `fromAddress()`. */
  readonly actor?: Actor | undefined;
  /** What refusals call it: printable ASCII. Default "connections". */
  readonly name?: string | undefined;
}

/** Nobody knows when an answer will be over: a second is as good as any. */
const RETRY_MS = 1000;

const PASSED: Screened = Object.freeze({ allowed: true, retryMs: 0, outcomes: Object.freeze([]) });

/**
 * A filter of how many requests of each actor are under way at once in this process. A place is
 * free again when the answer is over or the client has gone. Nobody waits: who is one too many is
 * refused.
 *
 * @param limit how many, a whole number, 1 or more
 * @param options see `ConnectionsOptions`
 * @returns what the adapters of all servers take in place of a gateway; use it beside one
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * app.use(expressGateway(limitConnections(10)));
 * app.use(expressGateway(gateway));
 */
export function limitConnections(limit: number, options: ConnectionsOptions = {}): Screen {
  checkNumber("limit", limit, wholeAtLeastOne);
  checkOptions("options", options, ["actor", "name"]);
  const { actor = fromAddress(), name = "connections" } = options;
  if (typeof actor !== "function") {
    throw new TypeError(`actor must be a function, got ${show(actor)}`);
  }
  if (!/^[ -~]+$/.test(checkText("name", name))) {
    throw new TypeError(`name must be printable ASCII, got ${show(name)}`);
  }
  const rule = { name, mode: "enforce", cost: 1, quotaUnit: "concurrent-requests" } as const;
  const underWay = new Map<string, number>();

  const enter = (value: string, request: GatewayRequest): Screened => {
    // where nobody tells of the end, nothing can be counted
    if (request.onClose === undefined) return PASSED;
    const key = keyOf(value, "local");
    const others = underWay.get(key) ?? 0;
    if (others >= limit) {
      const outcome = { rule, allowed: false, decision: full(name, limit) };
      return { allowed: false, retryMs: RETRY_MS, outcomes: [outcome] };
    }
    underWay.set(key, others + 1);
    request.onClose(() => {
      const left = (underWay.get(key) ?? 0) - 1;
      if (left > 0) underWay.set(key, left);
      else underWay.delete(key);
    });
    return PASSED;
  };

  return {
    check(request) {
      const told = actor(request);
      return told instanceof Promise
        ? told.then((value = "") => enter(value, request))
        : enter(told ?? "", request);
    },
  };
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
