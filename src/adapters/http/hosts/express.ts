import type { Screen } from "../answers/screen.ts";
import { Guard, type HostOptions, type Ruling } from "./guard.ts";
import { carryOut, NodeGatewayRequest, type NodeRequest, type NodeResponse } from "./node.ts";

/** What is needed of an Express request. */
export interface ExpressRequest extends NodeRequest {
  /** `url` is without what the router that this is used in was mounted at. */
  readonly originalUrl?: string | undefined;
}

/**
 * A filter for Express 5 and 4, Connect, Polka and others that call `(req, res, next)`.
 *
 * @param gateway what `createGateway` made, or `limitConnections`
 * @param options see `HostOptions`
 * @returns a middleware: use it before your routes. Rules see the whole URL wherever it is mounted
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml"), trustedProxies: 1 });
 * app.use(expressGateway(gateway));
 */
export function expressGateway(
  gateway: Screen,
  options: HostOptions = {},
): (req: ExpressRequest, res: NodeResponse, next: (error?: unknown) => void) => void {
  const guard = new Guard(gateway, options);
  return (req, res, next) => {
    const go = (ruling: Ruling) => {
      if (carryOut(ruling, res)) next();
    };
    const ruling = guard.ask(new NodeGatewayRequest(req, res, req.originalUrl ?? req.url), req);
    if (ruling instanceof Promise) ruling.then(go, next);
    else go(ruling);
  };
}
