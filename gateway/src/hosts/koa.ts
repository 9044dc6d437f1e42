import type { Limiter } from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import { NODE, prepare } from "./node.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";
import { NodeGatewayRequest } from "./node-request.ts";

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
  return middleware(gatewayFilter(HOST, gateway, options));
}

/**
 * Creates a middleware for Koa that limits requests by a limiter, without rules. Used in several
 * places, it is one limit: a request that passes two of them is counted once.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param options see `LimitOptions` and `HostOptions`. Handlers find the verdict as
 *   `context.state.rateLimit`
 * @returns a middleware
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * app.use(koaLimit(users, { key: (context: Context) => context.state.user?.id }));
 */
export function koaLimit<Context extends KoaContext = KoaContext>(
  limiter: Limiter | LimiterByKey,
  options: HostLimitOptions<Context> = {},
): (context: KoaContext, next: () => Promise<unknown>) => Promise<unknown> {
  return middleware(limitFilter(HOST, limiter, options));
}

interface Call {
  readonly context: KoaContext;
  readonly res: NodeResponse;
  next(): Promise<unknown>;
}

const HOST: Host<Call, unknown> = {
  ...NODE,
  request({ context }) {
    const { req, res, originalUrl } = context;
    return new NodeGatewayRequest(req, res, originalUrl, context);
  },
  pass({ res, next }, passage) {
    prepare(res, passage);
    return next();
  },
  answer({ context }, { status, headers, body }) {
    context.status = status;
    context.set({ ...headers });
    context.body = body;
  },
  drop({ context }) {
    context.respond = false;
  },
  fail(_, error) {
    throw error;
  },
  attach({ context }, verdict) {
    (context as KoaContext & { state: Record<string, unknown> }).state.rateLimit = verdict;
  },
};

function middleware(filter: HostFilter<Call, unknown>) {
  return (context: KoaContext, next: () => Promise<unknown>): Promise<unknown> =>
    Promise.resolve(filter.serve({ context, res: context.res, next }));
}
