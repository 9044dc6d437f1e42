import type { Checker } from "../answers/checker.ts";
import { type HostAction, HostFilter, type HostOptions } from "./host-filter.ts";
import { NodeGatewayRequest, type NodeRequest, type NodeResponse } from "./node.ts";

/** The members of a Koa context that the adapter uses. */
export interface KoaContext {
  readonly req: NodeRequest;
  readonly res: NodeResponse;
  readonly originalUrl: string;
  status: number;
  body: unknown;
  respond?: boolean | undefined;
  set(headers: Record<string, string>): void;
}

/**
 * Creates a filter for Koa.
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param options see `HostOptions`
 * @returns a middleware: use it before your routes. Actors get the context as `raw`
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * app.use(koaGateway(gateway));
 */
export function koaGateway(
  gateway: Checker,
  options: HostOptions = {},
): (context: KoaContext, next: () => Promise<unknown>) => Promise<unknown> {
  const guard = new HostFilter(gateway, options);
  return (context, next) => {
    const go = (ruling: HostAction) => (carryOut(ruling, context) ? next() : Promise.resolve());
    const { req, res, originalUrl } = context;
    const ruling = guard.ask(new NodeGatewayRequest(req, res, originalUrl, context), req);
    return ruling instanceof Promise ? ruling.then(go) : go(ruling);
  };
}

function carryOut(ruling: HostAction, context: KoaContext): boolean {
  // the client has disconnected, or other code has responded while the request waited
  if (ruling === undefined || context.res.headersSent) {
    context.respond = false;
    return false;
  }
  if (ruling.answer === undefined) {
    context.set(Object.fromEntries(ruling.fields));
    return true;
  }
  const { status, headers, body } = ruling.answer;
  context.status = status;
  context.set({ ...headers });
  context.body = body;
  return false;
}
