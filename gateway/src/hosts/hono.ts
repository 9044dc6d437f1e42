import type { Limiter } from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import { FETCH, type FetchCall, SWITCHING_PROTOCOLS, served } from "./fetch.ts";
import { FetchGatewayRequest, peerOf } from "./fetch-request.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import { pacedBody } from "./paced-response.ts";

/** The members of a Hono context that the adapter uses. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  readonly env: unknown;
  res: Response;
  header(name: string, value: string): void;
}

/** The options of `honoGateway`. */
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
  return middleware(gatewayFilter(HOST, gateway, options), options);
}

/** See `HonoGatewayOptions`. */
export interface HonoLimitOptions<Context>
  extends HostLimitOptions<Context>,
    Pick<HonoGatewayOptions, "remoteAddress"> {}

/**
 * Creates a middleware for Hono that limits requests by a limiter, without rules. Used in several
 * places, it is one limit: a request that passes two of them is counted once.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param options see `LimitOptions` and `HonoGatewayOptions`. Handlers find the verdict as
 *   `context.get("rateLimit")`
 * @returns a middleware
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * app.use("/api/*", honoLimit(users, { key: (context: Context) => context.get("user")?.id }));
 */
export function honoLimit<Context extends HonoContext = HonoContext>(
  limiter: Limiter | LimiterByKey,
  options: HonoLimitOptions<Context> = {},
): (context: HonoContext, next: () => Promise<void>) => Promise<Response | undefined> {
  return middleware(limitFilter(HOST, limiter, options), options);
}

interface Call extends FetchCall {
  readonly context: HonoContext;
}

const HOST: Host<Call, Response | undefined> = {
  ...FETCH,
  async pass({ context, seen, next }, { fields, paces }) {
    await next();
    // set afterwards, because a handler may have returned a Response of its own
    if (context.res.status !== SWITCHING_PROTOCOLS) {
      for (const [name, value] of fields) context.header(name, value);
    }
    const closing = seen.closing(pacedBody(context.res, paces));
    if (closing !== context.res) context.res = closing;
    return undefined;
  },
  attach({ context }, verdict) {
    (context as HonoContext & { set(name: string, value: unknown): void }).set(
      "rateLimit",
      verdict,
    );
  },
};

function middleware(
  filter: HostFilter<Call, Response | undefined>,
  options: Pick<HonoGatewayOptions, "remoteAddress">,
) {
  const { remoteAddress = ({ req, env }) => peerOf(req.raw, env, Object(env).server) } = options;
  return (context: HonoContext, next: () => Promise<void>): Promise<Response | undefined> => {
    const { req, env } = context;
    const peer = () => remoteAddress(context);
    const seen = new FetchGatewayRequest(req.raw, peer, context, [env, Object(env).server]);
    return served(filter, { context, seen, next });
  };
}
