/**
 * For handlers that take a `Request` and return a `Response`: Deno, Bun, Workers, Next and others.
 */

import type { Limiter } from "smooth-limiter";
import type { Answer } from "../answers/answer.ts";
import type { Checker } from "../answers/checker.ts";
import type { Field } from "../answers/fields.ts";
import { checkFunction } from "../ground/check.ts";
import { FetchGatewayRequest, peerOf } from "./fetch-request.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import type { RateLimited } from "./limit-verdict.ts";
import { pacedBody } from "./paced-response.ts";

/** The options of `fetchGateway`. */
export interface FetchHostOptions<Context extends readonly unknown[]> extends HostOptions {
  /**
   * Returns the client's address. A `Request` does not contain it; by default the adapter reads it
   * where Deno, Bun and @hono/node-server provide it. On platforms that set a header field of their
   * own: `(request) => request.headers.get("cf-connecting-ip")`.
   *
   * @returns an address; undefined or null if there is none: all such clients are one device
   */
  readonly remoteAddress?:
    | ((request: Request, ...context: Context) => string | null | undefined)
    | undefined;
}

/**
 * Wraps a handler in the style of `fetch` with a filter.
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param handler receives the requests that pass, and the platform's other arguments. It may return
 *   undefined, as Bun expects after an upgrade to a WebSocket
 * @param options see `FetchHostOptions`
 * @returns a handler
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * Deno.serve(fetchGateway(gateway, () => new Response("hello")));
 */
export function fetchGateway<
  Context extends readonly unknown[],
  Answered extends Response | undefined = Response,
>(
  gateway: Checker,
  handler: (request: Request, ...context: Context) => Answered | Promise<Answered>,
  options: FetchHostOptions<Context> = {},
): (request: Request, ...context: Context) => Promise<Answered | Response> {
  return wrap(gatewayFilter(HOST, gateway, options), handler, options);
}

/** See `FetchHostOptions`. */
export interface FetchLimitOptions<Context extends readonly unknown[]>
  extends HostLimitOptions<Request>,
    Pick<FetchHostOptions<Context>, "remoteAddress"> {}

/**
 * Wraps a handler in the style of `fetch` with a limit, without rules.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param handler receives the requests that pass, with the verdict as `request.rateLimit`, and the
 *   platform's other arguments
 * @param options see `LimitOptions` and `FetchHostOptions`
 * @returns a handler
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const clients = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * Deno.serve(fetchLimit(clients, () => new Response("hello")));
 */
export function fetchLimit<
  Context extends readonly unknown[],
  Answered extends Response | undefined = Response,
>(
  limiter: Limiter | LimiterByKey,
  handler: (request: Request & RateLimited, ...context: Context) => Answered | Promise<Answered>,
  options: FetchLimitOptions<Context> = {},
): (request: Request, ...context: Context) => Promise<Answered | Response> {
  return wrap(limitFilter(HOST, limiter, options), handler, options);
}

/** What a handler in the style of `fetch` gets, with a way to go on. */
export interface FetchCall {
  readonly seen: FetchGatewayRequest;
  next(): unknown;
}

/** What all servers in the style of `fetch` share. */
export const FETCH = {
  options: { remoteAddress: checkFunction },
  request: ({ seen }: FetchCall) => seen,
  isAnswered: () => false,
  answer: ({ seen }: FetchCall, answer: Answer) => seen.closing(responseOf(answer)),
  drop: ({ seen }: FetchCall) => seen.gone(),
  fail(_: FetchCall, error: unknown): never {
    throw error;
  },
};

const HOST: Host<FetchCall, Response | undefined> = {
  ...FETCH,
  async pass({ seen, next }, { fields, paces }) {
    const response = (await next()) as Response | undefined;
    if (response !== undefined) return seen.closing(withFields(pacedBody(response, paces), fields));
    seen.close();
    return response;
  },
};

/** Has a filter decide about a request; an error ends the request. */
export async function served<Call extends FetchCall>(
  filter: HostFilter<Call, Response | undefined>,
  call: Call,
): Promise<Response | undefined> {
  try {
    return await filter.serve(call);
  } catch (error) {
    call.seen.fail();
    throw error;
  }
}

function wrap<Context extends readonly unknown[], Answered extends Response | undefined>(
  filter: HostFilter<FetchCall, Response | undefined>,
  handler: (request: Request, ...context: Context) => Answered | Promise<Answered>,
  options: Pick<FetchHostOptions<Context>, "remoteAddress">,
): (request: Request, ...context: Context) => Promise<Answered | Response> {
  checkFunction("handler", handler);
  const { remoteAddress = peerOf } = options;
  return (request, ...context) => {
    const peer = () => remoteAddress(request, ...context);
    const seen = new FetchGatewayRequest(request, peer, request, context);
    const next = () => handler(request, ...context);
    // there is no response only where the handler has returned none
    return served(filter, { seen, next }) as Promise<Answered | Response>;
  };
}

/** Statuses for which a `Response` accepts no body, not even an empty one. */
const WITHOUT_BODY = [204, 205, 304];

function responseOf({ status, headers, body }: Answer): Response {
  const hasBody = !WITHOUT_BODY.includes(status);
  return new Response(hasBody ? body : null, { status, headers: { ...headers } });
}

/** The status of an upgrade to a WebSocket on Deno and Workers. */
export const SWITCHING_PROTOCOLS = 101;

/**
 * Adds header fields. A fetched response has immutable ones, so it is copied; an upgrade cannot be.
 */
function withFields(response: Response, fields: readonly Field[]): Response {
  try {
    for (const [name, value] of fields) response.headers.set(name, value);
    return response;
  } catch {
    if (response.status === SWITCHING_PROTOCOLS) return response;
    return withFields(new Response(response.body, response), fields);
  }
}
