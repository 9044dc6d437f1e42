import type { Limiter } from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import { checkObject, oneOf } from "../ground/check.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import { pace } from "./node.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";
import { NodeGatewayRequest } from "./node-request.ts";

/** The options of `fastifyGateway`. */
export interface FastifyGatewayOptions extends HostOptions {
  /** From `createGateway` or `limitConnections`. */
  readonly gateway: Checker;
}

/** The members of a Fastify request that the adapter uses. */
export interface FastifyRequest {
  /** `originalUrl` is the URL before the option `rewriteUrl` has changed it. */
  readonly raw: NodeRequest & { readonly originalUrl?: string | undefined };
  /**
   * In `config`, `rateLimit: false` leaves the route out of a limit for the whole application, and `rateLimit: { limiter,
   * … }` gives it other options. Any object, because the type of Fastify has no `rateLimit` unless the application
   * declares it.
   */
  readonly routeOptions?: { readonly config?: object | undefined };
}

/** The members of a Fastify reply that the adapter uses. */
export interface FastifyReply {
  readonly raw: NodeResponse;
  readonly sent: boolean;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  headers(headers: Record<string, string>): unknown;
  send(body: string): unknown;
  hijack(): unknown;
}

type Done = (error?: Error) => void;

/** The members of a Fastify instance that the adapter uses. */
export interface FastifyInstance {
  addHook(
    name: "onRequest" | "preParsing" | "preValidation" | "preHandler",
    hook: FastifyHook,
  ): unknown;
  addHook(name: "onRoute", hook: (route: { readonly config?: unknown }) => void): unknown;
  printRoutes(): string;
}

/** As fastify-plugin does: the hook applies to the whole application, not only to this plugin. */
const WHOLE_APPLICATION = {
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "smooth-limiter",
};

/**
 * A plugin for Fastify 5 that filters all requests, including those without a route.
 *
 * @param options `{ gateway }`, and `HostOptions`
 * @throws (as a rejection of `register`) RangeError or TypeError that names the option, its bound
 *   and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * await app.register(fastifyGateway, { gateway });
 * app.addHook("onClose", () => gateway.close());
 */
export const fastifyGateway: (
  instance: FastifyInstance,
  options: FastifyGatewayOptions,
  done: Done,
) => void = Object.assign(plug, WHOLE_APPLICATION);

function plug(
  instance: FastifyInstance,
  { gateway, ...options }: FastifyGatewayOptions,
  done: Done,
): void {
  plugWith(() => {
    const filter = gatewayFilter(HOST, gateway, options);
    instance.addHook(
      "onRequest",
      hookOf(() => filter),
    );
  }, done);
}

/** Runs the work of a plugin: an error that it throws would end the process. */
function plugWith(work: () => unknown, done: Done): void {
  try {
    work();
  } catch (error) {
    done(error as Error);
    return;
  }
  done();
}

/** The hooks to which a limit can be added. */
const HOOKS = ["onRequest", "preParsing", "preValidation", "preHandler"] as const;

/** The options of `fastifyLimit` as a plugin. */
export interface FastifyLimitOptions<Req = FastifyRequest> extends HostLimitOptions<Req> {
  /** The limiter: see `fastifyLimit`. */
  readonly limiter: Limiter | LimiterByKey;
  /**
   * The hook in which requests are counted. Default "onRequest", before bodies are read; behind an
   * authentication in an earlier hook, "preValidation" or "preHandler".
   */
  readonly hook?: (typeof HOOKS)[number] | undefined;
}

/** A hook of Fastify. `preParsing` gets the payload before `done`. */
export type FastifyHook = (
  request: FastifyRequest,
  reply: FastifyReply,
  ...more: readonly [...unknown[], Done]
) => void;

/**
 * Limits requests by a limiter, without rules. Called with a limiter, it returns a hook, for a route
 * or for `addHook`. Registered as a plugin with `{ limiter }`, it limits the whole application, except
 * routes with `config: { rateLimit: false }`; with `config: { rateLimit: { limiter, … } }` a route has options, or a
 * limiter, of its own. One hook in several places is one limit: a request that
 * passes two of them is counted once.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param options see `LimitOptions` and `HostOptions`. Handlers find the verdict as
 *   `request.rateLimit`
 * @returns a hook for onRequest, preParsing, preValidation or preHandler
 * @throws RangeError or TypeError that names the option, its bound and what it got; as a plugin, as a
 *   rejection of `register`
 * @example
 * const users = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * await app.register(fastifyLimit, { limiter: users });
 * const limit = fastifyLimit(searches, { key: (request: FastifyRequest) => request.user.id });
 * app.get("/search", { preHandler: limit }, search);
 */
export const fastifyLimit: {
  <Req extends FastifyRequest = FastifyRequest>(
    limiter: Limiter | LimiterByKey,
    options?: HostLimitOptions<Req>,
  ): FastifyHook;
  (instance: FastifyInstance, options: FastifyLimitOptions<never>, done: Done): void;
} = Object.assign(limitOrPlug, WHOLE_APPLICATION) as never;

function limitOrPlug(
  of: Limiter | LimiterByKey | FastifyInstance,
  options: HostLimitOptions<FastifyRequest> | FastifyLimitOptions = {},
  done?: Done,
): FastifyHook | undefined {
  if (done === undefined) {
    const filter = limitFilter(HOST, of as Limiter | LimiterByKey, options);
    return hookOf(() => filter);
  }
  const { limiter, hook = "onRequest", ...rest } = options as FastifyLimitOptions;
  const instance = of as FastifyInstance;
  plugWith(() => {
    oneOf(...HOOKS)("hook", hook);
    const usual = limitFilter(HOST, limiter, rest);
    const own = new WeakMap<object, HostFilter<Call>>();
    /** Returns the limit that a route states, undefined for none; routes with the same object share its count. */
    const limitOf = (said: unknown): HostFilter<Call> | undefined => {
      if (said === false) return undefined;
      if (said === undefined || said === true) return usual;
      const route = checkObject("config.rateLimit", said);
      const known = own.get(route);
      if (known !== undefined) return known;
      const { limiter: other = limiter, ...more } = route as FastifyRouteLimit;
      const made = limitFilter(HOST, other, { ...rest, ...more });
      own.set(route, made);
      return made;
    };
    // `routeOptions` makes an object of twelve fields: it is read only if a route may say something
    let mayDiffer = instance.printRoutes() !== NO_ROUTES;
    instance.addHook("onRoute", ({ config }) => {
      const said = rateLimitOf(config);
      if (said !== undefined) mayDiffer = true;
      // a mistake is reported where the route is, if the plugin was awaited, and not at its first request
      limitOf(said);
    });
    instance.addHook(
      hook,
      hookOf((request) => (mayDiffer ? limitOf(rateLimitOf(request.routeOptions?.config)) : usual)),
    );
  }, done);
  return undefined;
}

/** What Fastify prints if no route was registered before. */
const NO_ROUTES = "(empty tree)";

/** What a route may say in its `config.rateLimit`: options in place of the plugin's, or a limiter of its own. */
export interface FastifyRouteLimit<Req = FastifyRequest> extends HostLimitOptions<Req> {
  /** Default: that of the plugin. */
  readonly limiter?: Limiter | LimiterByKey | undefined;
}

function rateLimitOf(config: unknown): unknown {
  return (config as { readonly rateLimit?: unknown } | undefined)?.rateLimit;
}

/** @param filterFor returns undefined if the request passes unfiltered */
function hookOf(filterFor: (request: FastifyRequest) => HostFilter<Call> | undefined): FastifyHook {
  // with named arguments, because rest parameters take longer. `done` is the last argument
  const hook = (request: FastifyRequest, reply: FastifyReply, first: unknown, second?: unknown) => {
    const done = (second ?? first) as Done;
    const filter = filterFor(request);
    if (filter === undefined) done();
    else void filter.serve({ request, reply, done });
  };
  return hook as unknown as FastifyHook;
}

/**
 * The names of header fields as Fastify sends them. It would convert them for each request, and V8
 * finds a property faster by a text in the source than by a computed one.
 */
const LOWER_CASE: Readonly<Record<string, string>> = {
  "RateLimit-Policy": "ratelimit-policy",
  RateLimit: "ratelimit",
  "RateLimit-Limit": "ratelimit-limit",
  "RateLimit-Remaining": "ratelimit-remaining",
  "RateLimit-Reset": "ratelimit-reset",
  "X-RateLimit-Limit": "x-ratelimit-limit",
  "X-RateLimit-Remaining": "x-ratelimit-remaining",
  "X-RateLimit-Reset": "x-ratelimit-reset",
};

interface Call {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly done: Done;
}

const HOST: Host<Call> = {
  request({ request, reply }) {
    const { raw } = request;
    return new NodeGatewayRequest(raw, reply.raw, raw.originalUrl ?? raw.url, request);
  },
  isAnswered: ({ reply }) => reply.sent,
  pass({ reply, done }, { fields, paces }) {
    for (const field of fields) reply.header(LOWER_CASE[field[0]] ?? field[0], field[1]);
    pace(reply.raw, paces);
    done();
  },
  answer({ reply }, { status, headers, body }) {
    reply.code(status);
    reply.headers({ ...headers });
    reply.send(body);
  },
  drop({ reply }) {
    // Fastify waits for a response that cannot be sent any more
    if (!reply.sent) reply.hijack();
  },
  fail: ({ done }, error) => done(error as Error),
};
