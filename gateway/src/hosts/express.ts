import type { Limiter } from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import type { RateLimited } from "./limit-verdict.ts";
import { NODE, prepare } from "./node.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";
import { NodeGatewayRequest } from "./node-request.ts";

declare global {
  namespace Express {
    // merged with the requests of @types/express, if the application has them
    interface Request extends RateLimited {}
  }
}

/** The members of an Express request that the adapter uses. */
export interface ExpressRequest extends NodeRequest {
  /** The whole URL; `url` lacks the part at which the router is mounted. */
  readonly originalUrl?: string | undefined;
}

/**
 * What functions such as `key` know of a request if their parameter has no type: what Express adds to Node's
 * request, and what the application has added to `Express.Request`. In other frameworks some of it is absent.
 */
export interface ExpressRequestLike extends ExpressRequest, Express.Request {
  /** The client's address as Express sees it: see its setting "trust proxy". */
  readonly ip?: string | undefined;
  readonly ips: readonly string[];
  readonly hostname: string;
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
  get(name: string): string | undefined;
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
  return middleware(gatewayFilter(HOST, gateway, options));
}

/**
 * Creates a middleware for Express and its relatives that limits requests by a limiter, without rules.
 * Used in several places, it is one limit: a request that passes two of them is counted once.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param options see `LimitOptions` and `HostOptions`. Handlers find the verdict as `req.rateLimit`
 * @returns a middleware, for the application, a router or a route
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * app.use("/api", expressLimit(users, { key: (req) => req.get("x-api-key") }));
 */
export function expressLimit<Req extends ExpressRequest = ExpressRequestLike>(
  limiter: Limiter | LimiterByKey,
  options: HostLimitOptions<Req> = {},
): (req: ExpressRequest, res: NodeResponse, next: (error?: unknown) => void) => void {
  return middleware(limitFilter(HOST, limiter, options));
}

interface Call {
  readonly req: ExpressRequest;
  readonly res: NodeResponse;
  next(error?: unknown): void;
}

const HOST: Host<Call> = {
  ...NODE,
  request: ({ req, res }) => new NodeGatewayRequest(req, res, req.originalUrl ?? req.url),
  pass({ res, next }, passage) {
    prepare(res, passage);
    next();
  },
  fail: ({ next }, error) => next(error),
};

function middleware(filter: HostFilter<Call>) {
  return (req: ExpressRequest, res: NodeResponse, next: (error?: unknown) => void): void =>
    void filter.serve({ req, res, next });
}
