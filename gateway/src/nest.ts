/**
 * `smooth-limiter-gateway/nest`: a guard for NestJS on Express or Fastify, with decorators. The limits are those of
 * `expressLimit`, or the rules of a gateway.
 */
import {
  type CanActivate,
  type DynamicModule,
  type ExecutionContext,
  HttpException,
  Module,
  SetMetadata,
} from "@nestjs/common";
import { APP_GUARD, Reflector } from "@nestjs/core";
import type { Limiter } from "smooth-limiter";
import type { Checker } from "./answers/checker.ts";
import { checkObject } from "./ground/check.ts";
import { CLIENT_GONE, type Host } from "./hosts/host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./hosts/host-filter.ts";
import { limitFilter } from "./hosts/limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./hosts/limit-options.ts";
import { pace } from "./hosts/node.ts";
import type { NodeRequest, NodeResponse } from "./hosts/node-messages.ts";
import { NodeGatewayRequest } from "./hosts/node-request.ts";

// biome-ignore lint/suspicious/noExplicitAny: the request is Express' or Fastify's, as the application says
type AnyRequest = any;

/** A limit by a limiter: handlers find the verdict as `request.rateLimit`. */
export interface RateLimitOptions<Request = AnyRequest> extends HostLimitOptions<Request> {
  /** A `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all requests together. */
  readonly limiter: Limiter | LimiterByKey;
}

/** A limit by rules. */
export interface RateLimitGatewayOptions extends HostOptions {
  /** From `createGateway`. */
  readonly gateway: Checker;
}

type AnyOptions = RateLimitOptions | RateLimitGatewayOptions;

const SKIP = "smooth-limiter:skip";

/**
 * Gives a controller or a route a limit of its own, in place of that of the module. Routes of one controller share it.
 *
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * \@RateLimit({ limiter: searches, key: (req) => req.user.id })
 */
export const RateLimit = Reflector.createDecorator<RateLimitOptions, RateLimitOptions>({
  transform(options) {
    filterOf(options); // a mistake fails the start, and not the first request
    return options;
  },
});

/** Leaves a controller or a route out: `@SkipRateLimit()`. */
export const SkipRateLimit = (): MethodDecorator & ClassDecorator => SetMetadata(SKIP, true);

/** What both of Nest's servers have in common. */
interface Call {
  readonly request: NodeRequest & { readonly raw?: NodeRequest; readonly originalUrl?: string };
  readonly reply: {
    readonly raw?: NodeResponse;
    header(name: string, value: string): unknown;
  };
}

/** Express' response is one of Node; Fastify's reply has one. */
function responseOf({ reply }: Call): NodeResponse {
  return reply.raw ?? (reply as unknown as NodeResponse);
}

/** A request that does not go on ends with an `HttpException`. */
const HOST: Host<Call> = {
  request(call) {
    const { request } = call;
    const { raw = request } = request;
    const url = request.originalUrl ?? raw.url;
    return new NodeGatewayRequest(raw, responseOf(call), url, request);
  },
  isAnswered: (call) => responseOf(call).headersSent,
  pass(call, { fields, paces }) {
    for (const [name, value] of fields) call.reply.header(name, value);
    pace(responseOf(call), paces);
  },
  answer({ reply }, { status, headers, body }) {
    for (const [name, value] of Object.entries(headers)) {
      // Nest writes the body, as JSON
      if (name.toLowerCase() !== "content-type") reply.header(name, value);
    }
    throw new HttpException(readable(body), status);
  },
  drop() {
    throw new HttpException("too late", CLIENT_GONE);
  },
  fail(_, error) {
    throw error;
  },
};

/**
 * Refuses a request with an `HttpException` that carries the answer of the limit, so exception filters see it. Contexts
 * other than HTTP pass.
 */
export class RateLimitGuard implements CanActivate {
  readonly #reflector: Reflector;
  readonly #usual: AnyOptions | undefined;

  /**
   * @param usual the limit of routes without a decorator; absent: they have none
   * @throws RangeError or TypeError that names the option, its bound and what it got
   */
  constructor(reflector: Reflector, usual?: AnyOptions) {
    this.#reflector = reflector;
    this.#usual = usual;
    if (usual !== undefined) filterOf(usual);
  }

  /** Called by Nest for each request. */
  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== "http") return true;
    const options = this.#optionsOf(context);
    if (options === undefined) return true;
    const http = context.switchToHttp();
    const call: Call = { request: http.getRequest(), reply: http.getResponse() };
    await filterOf(options).serve(call);
    return true;
  }

  /** What the route says, else what its controller says, else the limit of the application. */
  #optionsOf(context: ExecutionContext): AnyOptions | undefined {
    for (const place of [context.getHandler(), context.getClass()]) {
      if (this.#reflector.get<boolean>(SKIP, place)) return undefined;
      const options = this.#reflector.get(RateLimit, place);
      if (options !== undefined) return options;
    }
    return this.#usual;
  }
}

/** Those of all guards: a request that passes two of them is counted once. */
const filters = new WeakMap<object, HostFilter<Call>>();

/** One for each decorator, so that routes of one controller share its count. */
function filterOf(options: AnyOptions): HostFilter<Call> {
  const known = filters.get(checkObject("options", options));
  if (known !== undefined) return known;
  const made = newFilter(options);
  filters.set(options, made);
  return made;
}

function newFilter(options: AnyOptions): HostFilter<Call> {
  if ("gateway" in options) {
    const { gateway, ...rest } = options;
    return gatewayFilter(HOST, gateway, rest);
  }
  const { limiter, ...rest } = options;
  return limitFilter(HOST, limiter, rest);
}

/** Nest writes an object as it is, and a text as `{ statusCode, message }`. */
function readable(body: string): string | Record<string, unknown> {
  try {
    const read: unknown = JSON.parse(body);
    if (typeof read === "object" && read !== null) return read as Record<string, unknown>;
  } catch {
    // the application's own answer
  }
  return body;
}

/**
 * The limit of a whole application.
 *
 * @example
 * \@Module({ imports: [RateLimitModule.forRoot({ limiter: KeyedLimiter.create(policy) })] })
 * export class AppModule {}
 */
// biome-ignore lint/complexity/noStaticOnlyClass: Nest names a module by its class
export class RateLimitModule {
  /**
   * @param options `{ limiter }` with `LimitOptions` and `HostOptions`, or `{ gateway }` with `HostOptions`; absent: only
   *   routes with a decorator have a limit
   * @returns a module with a guard for all routes
   */
  static forRoot(options?: AnyOptions): DynamicModule {
    const useFactory = (reflector: Reflector) => new RateLimitGuard(reflector, options);
    return {
      module: RateLimitModule,
      providers: [{ provide: APP_GUARD, inject: [Reflector], useFactory }],
    };
  }
}
Module({})(RateLimitModule);
