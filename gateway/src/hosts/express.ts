import type { Checker } from "../answers/checker.ts";
import { type HostAction, HostFilter, type HostOptions } from "./host-filter.ts";
import { carryOut, NodeGatewayRequest, type NodeRequest, type NodeResponse } from "./node.ts";

/** The members of an Express request that the adapter uses. */
export interface ExpressRequest extends NodeRequest {
  /** The whole URL; `url` lacks the part at which the router is mounted. */
  readonly originalUrl?: string | undefined;
}

/**
 * Creates a filter for Express 5 and 4, Connect, Polka and others that call `(req, res, next)`.
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param options see `HostOptions`
 * @returns a middleware: use it before your routes. Rules see the whole URL wherever it is mounted
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml"), trustedProxies: 1 });
 * app.use(expressGateway(gateway));
 */
export function expressGateway(
  gateway: Checker,
  options: HostOptions = {},
): (req: ExpressRequest, res: NodeResponse, next: (error?: unknown) => void) => void {
  const guard = new HostFilter(gateway, options);
  return (req, res, next) => {
    const go = (ruling: HostAction) => {
      if (carryOut(ruling, res)) next();
    };
    const ruling = guard.ask(new NodeGatewayRequest(req, res, req.originalUrl ?? req.url), req);
    if (ruling instanceof Promise) ruling.then(go, next);
    else go(ruling);
  };
}
