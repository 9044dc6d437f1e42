import { FakeClock } from "smooth-limiter/testing";
import {
  createGateway,
  fromHeader,
  type Gateway,
  type GatewayOptions,
  type GatewayRequest,
  type UrlRules,
  type Verdict,
} from "../../src/index.ts";
import { request } from "./http/request.ts";

export type Rules = UrlRules["rules"];

/** Opens a gateway with rules for all paths. */
export const open = (rules: Rules, options: Partial<GatewayOptions> = {}) =>
  createGateway({
    rules: { url: "/", rules },
    clock: new FakeClock(),
    actors: { account: fromHeader("account") },
    ...options,
  });

/** A request, and a function that ends it. */
export function inFlight(
  more: { url?: string; account?: string; remoteAddress?: string; method?: string } = {},
): { request: GatewayRequest; end: () => void } {
  const { url = "/", account, ...rest } = more;
  const listeners: (() => void)[] = [];
  const headers = account === undefined ? undefined : { account };
  const base = request(url, { ...rest, ...(headers && { headers }) });
  return {
    request: { ...base, onClose: (closed) => void listeners.push(closed) },
    end: () => listeners.splice(0).forEach((end) => void end()),
  };
}

export type InFlightPermits = ReturnType<typeof inFlight>;

export const enter = (gateway: Gateway, who: InFlightPermits) =>
  gateway.check(who.request) as Verdict;
