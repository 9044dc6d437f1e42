/** Limits how many bytes of a response are sent each second: nginx's `limit_rate`. */
import {
  type Clock,
  KeyedLimiter,
  type Limiter,
  RateLimiter,
  smoothBursty,
  systemClock,
} from "smooth-limiter";
import type { Actor } from "../actors/actor.ts";
import { guarded } from "../actors/guarded.ts";
import { keyOf } from "../actors/key.ts";
import type { Pace } from "../answers/checker.ts";
import {
  aboveZero,
  atLeastZero,
  checkClock,
  checkFunction,
  checkNumber,
  checkOptions,
  show,
} from "../ground/check.ts";
import { chain, type Maybe } from "../ground/maybe.ts";
import type { GatewayRequest } from "../request.ts";
import { FetchGatewayRequest, peerOf } from "./fetch.ts";
import { NodeGatewayRequest } from "./node.ts";
import type { NodeRequest } from "./node-messages.ts";
import { type PacedResponse, pacedBody, paceResponse } from "./paced-response.ts";

export interface LimitRateOptions {
  /** Bytes per second, above 0. Required unless `limiter` is given. */
  readonly bytesPerSecond?: number | undefined;
  /**
   * How many bytes of each response are sent at once, before the limit applies. 0 or more, default 0.
   */
  readonly afterBytes?: number | undefined;
  /**
   * All responses of one value of this actor share the rate, in this process. Requests without a value
   * share one. Default: each response has the rate for itself, as in nginx.
   */
  readonly actor?: Actor | undefined;
  /**
   * A limiter whose permits are bytes, in place of `bytesPerSecond`: one for all responses, or a
   * function that returns the limiter for a value of the actor.
   */
  readonly limiter?: Limiter | ((actor: string) => Limiter) | undefined;
  /** The clock, for tests. Default: the system's clock. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: readonly (keyof LimitRateOptions)[] = [
  "bytesPerSecond",
  "afterBytes",
  "actor",
  "limiter",
  "clock",
];

/** The limit for each kind of server. Use it in front of your routes. */
export interface ResponseRate {
  /** Wraps a listener of Node's `http`, `https` or `http2`. */
  node<Req extends NodeRequest, Res extends PacedResponse>(
    handler: (req: Req, res: Res) => unknown,
  ): (req: Req, res: Res) => void;
  /** A middleware for Express, Connect and others that call `(req, res, next)`. */
  express(req: NodeRequest, res: PacedResponse, next: () => void): void;
  /** A hook for Fastify: `app.addHook("onRequest", rate.fastify)`. */
  fastify(
    request: { readonly raw: NodeRequest },
    reply: { readonly raw: PacedResponse },
    done: () => void,
  ): void;
  /** A middleware for Koa. */
  koa<Next>(
    context: { readonly req: NodeRequest; readonly res: PacedResponse },
    next: () => Next,
  ): Next;
  /** A middleware for Hono. */
  hono(
    context: { readonly req: { readonly raw: Request }; readonly env: unknown; res: Response },
    next: () => Promise<void>,
  ): Promise<void>;
  /** Wraps a handler in the style of `fetch`. */
  fetch<Context extends readonly unknown[]>(
    handler: (request: Request, ...context: Context) => Maybe<Response>,
  ): (request: Request, ...context: Context) => Promise<Response>;
}

/** How long an actor's promise may take, ms. */
const ACTOR_TIMEOUT_MS = 5000;

/**
 * Creates a limit on the bytes per second of responses: of each response, or of all responses of an
 * actor together. It works on whatever a handler sends: texts, files and streams. The header fields
 * are sent at once. Bodies that wait are held in memory if the handler sends them in one piece;
 * streams are read at the pace at which they are sent.
 *
 * @param options see `LimitRateOptions`
 * @returns the limit for each kind of server
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const rate = limitRate({ bytesPerSecond: 100 * 1024, afterBytes: 512 * 1024 });
 * app.use(rate.express);
 */
export function limitRate(options: LimitRateOptions): ResponseRate {
  checkOptions("options", options, OPTIONS);
  const { afterBytes = 0, clock = systemClock } = options;
  checkNumber("afterBytes", afterBytes, atLeastZero);
  checkClock(clock);
  const limiterOf = limiters(options, clock);
  const pacesOf = (request: GatewayRequest): Maybe<readonly Pace[]> =>
    chain(limiterOf(request), (limiter) => [{ limiter, afterBytes }]);

  const paceNode = (req: NodeRequest, res: PacedResponse, raw: unknown) => {
    const request = new NodeGatewayRequest(req, res, req.url, raw);
    if (request.method !== "HEAD") paceResponse(res, () => pacesOf(request));
  };
  const paceFetch = async (request: GatewayRequest, response: Response) =>
    response.body === null || request.method === "HEAD"
      ? response
      : pacedBody(response, await pacesOf(request));

  return {
    node(handler) {
      checkFunction("handler", handler);
      return (req, res) => {
        paceNode(req, res, req);
        handler(req, res);
      };
    },
    express(req, res, next) {
      paceNode(req, res, req);
      next();
    },
    fastify(request, reply, done) {
      paceNode(request.raw, reply.raw, request);
      done();
    },
    koa(context, next) {
      paceNode(context.req, context.res, context);
      return next();
    },
    async hono(context, next) {
      await next();
      const { raw } = context.req;
      const peer = () => peerOf(raw, context.env, Object(context.env).server);
      const request = new FetchGatewayRequest(raw, peer, context, [context.env]);
      context.res = await paceFetch(request, context.res);
    },
    fetch(handler) {
      checkFunction("handler", handler);
      return async (request, ...context) => {
        const peer = () => peerOf(request, ...context);
        const seen = new FetchGatewayRequest(request, peer, request, context);
        return paceFetch(seen, await handler(request, ...context));
      };
    },
  };
}

function limiters(
  { bytesPerSecond, actor, limiter }: LimitRateOptions,
  clock: Clock,
): (request: GatewayRequest) => Maybe<Limiter> {
  if ((bytesPerSecond === undefined) === (limiter === undefined)) {
    throw new TypeError("limitRate needs bytesPerSecond or limiter, and not both");
  }
  const actorOf = actor && guarded("the actor of limitRate", actor, ACTOR_TIMEOUT_MS, clock);
  if (actor !== undefined) checkFunction("actor", actor);
  const by = (of: (actor: string) => Limiter) => (request: GatewayRequest) =>
    chain(actorOf?.(request), (value = "") => of(value));
  if (typeof limiter === "function") return by(limiter);
  if (limiter !== undefined) {
    if (typeof limiter.acquire === "function") return () => limiter;
    throw new TypeError(`limiter must be a limiter or a function, got ${show(limiter)}`);
  }
  const permitsPerSecond = checkNumber("bytesPerSecond", bytesPerSecond, aboveZero);
  if (actorOf === undefined) return () => RateLimiter.create(permitsPerSecond, { clock });
  const keys = KeyedLimiter.create(smoothBursty({ permitsPerSecond }), { clock });
  return by((value) => keys.for(keyOf(value, "local")));
}
