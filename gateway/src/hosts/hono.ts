import type { Checker } from "../answers/checker.ts";
import { checkFunction } from "../ground/check.ts";
import {
  CLIENT_GONE,
  FetchGatewayRequest,
  peerOf,
  responseOf,
  SWITCHING_PROTOCOLS,
} from "./fetch.ts";
import { HostFilter, type HostOptions } from "./host-filter.ts";

/** The members of a Hono context that the adapter uses. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  readonly env: unknown;
  res: Response;
  header(name: string, value: string): void;
}

export interface HonoGatewayOptions extends HostOptions {
  /**
   * Returns the client's address. By default the adapter reads it where @hono/node-server, Deno and
   * Bun provide it; elsewhere pass your platform's `getConnInfo`.
   *
   * @example
   * remoteAddress: (c) => getConnInfo(c).remote.address
   */
  readonly remoteAddress?: ((context: HonoContext) => string | null | undefined) | undefined;
}

/**
 * Creates a filter for Hono.
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param options see `HonoGatewayOptions`
 * @returns a middleware: use it before your routes. Actors get the context as `raw`
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * app.use(honoGateway(gateway));
 */
export function honoGateway(
  gateway: Checker,
  options: HonoGatewayOptions = {},
): (context: HonoContext, next: () => Promise<void>) => Promise<Response | undefined> {
  const guard = new HostFilter(gateway, options, ["remoteAddress"]);
  const { remoteAddress = ({ req, env }) => peerOf(req.raw, env, Object(env).server) } = options;
  checkFunction("remoteAddress", remoteAddress);
  return async (context, next) => {
    const { req, env } = context;
    const peer = () => remoteAddress(context);
    const seen = new FetchGatewayRequest(req.raw, peer, context, [env, Object(env).server]);
    const ruling = await guard.ask(seen, context);
    if (ruling === undefined) return new Response(null, { status: CLIENT_GONE });
    if (ruling.answer !== undefined) return responseOf(ruling.answer);
    try {
      await next();
    } catch (error) {
      seen.close();
      throw error;
    }
    // set afterwards, because a handler may have returned a Response of its own
    if (context.res.status !== SWITCHING_PROTOCOLS) {
      for (const [name, value] of ruling.fields) context.header(name, value);
    }
    const closing = seen.closing(context.res);
    if (closing !== context.res) context.res = closing;
    return undefined;
  };
}
