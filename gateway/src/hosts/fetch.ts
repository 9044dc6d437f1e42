/**
 * For handlers that take a `Request` and return a `Response`: Deno, Bun, Workers, Next and others.
 */

import type { Limiter } from "smooth-limiter";
import type { Answer } from "../answers/answer.ts";
import type { Checker } from "../answers/checker.ts";
import type { Field } from "../answers/fields.ts";
import { checkFunction } from "../ground/check.ts";
import { HostFilter, type HostOptions, type HostRequest } from "./host-filter.ts";
import { isOver, overSignal, whenOver } from "./lifetime.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import type { RateLimited } from "./limit-verdict.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";
import { pacedBody } from "./paced-response.ts";

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
  return wrap(new HostFilter(gateway, options, MORE), handler, options);
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
  return wrap(limitFilter(limiter, options, { more: MORE }), handler, options);
}

const MORE = ["remoteAddress"];

function wrap<Context extends readonly unknown[], Answered extends Response | undefined>(
  filter: HostFilter,
  handler: (request: Request, ...context: Context) => Answered | Promise<Answered>,
  options: Pick<FetchHostOptions<Context>, "remoteAddress">,
): (request: Request, ...context: Context) => Promise<Answered | Response> {
  checkFunction("handler", handler);
  const { remoteAddress = peerOf } = options;
  checkFunction("remoteAddress", remoteAddress);
  return async (request, ...context) => {
    const seen = new FetchGatewayRequest(
      request,
      () => remoteAddress(request, ...context),
      request,
      context,
    );
    try {
      const action = await filter.ask(seen, request);
      if (action === undefined) return seen.gone();
      if (action.answer !== undefined) return seen.closing(responseOf(action.answer));
      const response = await handler(request, ...context);
      if (response !== undefined) {
        return seen.closing(withFields(pacedBody(response, action.paces), action.fields));
      }
      seen.close();
      return response;
    } catch (error) {
      seen.fail();
      throw error;
    }
  };
}

/** The status that nginx logs for a client that has disconnected; no client receives it. */
const CLIENT_GONE = 499;

/** Statuses for which a `Response` accepts no body, not even an empty one. */
const WITHOUT_BODY = [204, 205, 304];

export function responseOf({ status, headers, body }: Answer): Response {
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

/** The gateway's view of a request. */
export class FetchGatewayRequest implements HostRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: unknown;
  readonly #request: Request;
  readonly #peer: () => string | null | undefined;
  readonly #context: readonly unknown[];
  readonly #listeners: (() => void)[] = [];
  readonly #answered: ((status: number | undefined) => void)[] = [];
  #signal: AbortSignal | undefined;

  /** @param context the platform's argument beside the request */
  constructor(
    request: Request,
    peer: () => string | null | undefined,
    raw: unknown,
    context: readonly unknown[],
  ) {
    this.method = request.method;
    this.url = request.url;
    this.raw = raw;
    this.#request = request;
    this.#peer = peer;
    this.#context = context;
  }

  get remoteAddress(): string | undefined {
    return this.#peer() ?? undefined;
  }

  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      const served = servedBy(this.#context);
      this.#signal = served ? overSignal(served.req, served.res) : this.#request.signal;
    }
    return this.#signal;
  }

  get isOver(): boolean {
    const served = servedBy(this.#context);
    return served ? isOver(served.req, served.res) : this.#request.signal.aborted;
  }

  header(name: string): string | undefined {
    // `Headers` throws an error for the fields of HTTP/2 that begin with a colon
    return name.startsWith(":") ? undefined : (this.#request.headers.get(name) ?? undefined);
  }

  /**
   * Uses the platform's own report where it exists, otherwise the signal and the end of the body.
   */
  onClose(closed: () => void): void {
    const served = servedBy(this.#context);
    if (served !== undefined) {
      whenOver(served.req, served.res, closed);
      return;
    }
    const completed = completionOf(this.#context);
    if (completed !== undefined) {
      completed.then(closed, closed);
      return;
    }
    const { signal } = this.#request;
    if (signal.aborted) {
      closed();
      return;
    }
    if (this.#listeners.push(closed) > 1) return;
    signal.addEventListener("abort", () => this.close(), { once: true });
  }

  /** The status is known when the handler has returned, even if the client disconnects meanwhile. */
  onAnswered(answered: (status: number | undefined) => void): void {
    this.#answered.push(answered);
  }

  close(): void {
    for (const closed of this.#listeners.splice(0)) closed();
  }

  /** The handler, or `onError`, has thrown: the platform responds with a server error. */
  fail(): void {
    this.#answer(500);
    this.close();
  }

  /** The client disconnected before the request was served. @returns a response that no client receives */
  gone(): Response {
    this.#answer(undefined);
    this.close();
    return new Response(null, { status: CLIENT_GONE });
  }

  #answer(status: number | undefined): void {
    for (const answered of this.#answered.splice(0)) answered(status);
  }

  /**
   * Returns the response; where the end of the request is not reported, the end of its body counts.
   */
  closing<R extends Response>(response: R): R | Response {
    this.#answer(response.status);
    if (this.#listeners.length === 0) return response;
    // the body of a response to HEAD is never read
    if (response.body === null || this.method === "HEAD") {
      this.close();
      return response;
    }
    const close = () => this.close();
    const whole = new TransformStream({ flush: close });
    const failed = (error: unknown) => {
      close();
      // a body that other code has read already cannot be piped: it must not seem to have no end
      return whole.writable.abort(error);
    };
    response.body
      .pipeTo(whole.writable)
      .catch(failed)
      .catch(() => {});
    return new Response(whole.readable, response);
  }
}

/**
 * The platforms' arguments beside the request: the client's address, and the end of the request.
 */
interface Platform {
  /** Deno. */
  readonly remoteAddr?: { readonly hostname?: string };
  readonly completed?: Promise<unknown>;
  /** Bun. */
  requestIP?(request: Request): { readonly address: string } | null;
  /** @hono/node-server. */
  readonly incoming?: Partial<NodeRequest>;
  readonly outgoing?: NodeResponse;
}

/** Node's own request: on @hono/node-server, and for a WebSocket on @hono/node-ws. */
function servedBy(
  context: readonly unknown[],
): { readonly req: NodeRequest; readonly res: NodeResponse | undefined } | undefined {
  for (const each of context) {
    const { incoming, outgoing } = Object(each) as Platform;
    if (incoming?.socket === undefined) continue;
    const req = incoming as NodeRequest;
    if (outgoing !== undefined || req.headers?.upgrade !== undefined) return { req, res: outgoing };
  }
  return undefined;
}

function completionOf(context: readonly unknown[]): Promise<unknown> | undefined {
  for (const each of context) {
    const { completed } = Object(each) as Platform;
    if (completed instanceof Promise) return completed;
  }
  return undefined;
}

export function peerOf(request: Request, ...context: readonly unknown[]): string | undefined {
  for (const each of context) {
    const platform = Object(each) as Platform;
    const address =
      platform.remoteAddr?.hostname ??
      platform.requestIP?.(request)?.address ??
      platform.incoming?.socket?.remoteAddress;
    if (address !== undefined) return address;
  }
  return undefined;
}
