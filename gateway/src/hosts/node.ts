/** For Node's own `http`, `https` and `http2`, and the part that servers built on these share. */
import type { Limiter } from "smooth-limiter";
import { type Answer, failure } from "../answers/answer.ts";
import type { Checker } from "../answers/checker.ts";
import { checkFunction } from "../ground/check.ts";
import {
  type HostAction,
  HostFilter,
  type HostOptions,
  type HostRequest,
  type Passage,
} from "./host-filter.ts";
import { isOver, overSignal, whenOver } from "./lifetime.ts";
import type { RateLimited } from "./limit.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import type { AnsweringResponse, NodeRequest, NodeResponse } from "./node-messages.ts";
import { type PacedResponse, paceResponse } from "./paced-response.ts";

/**
 * Wraps a handler of Node's `http` with a filter.
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param handler receives the requests that pass
 * @param options see `HostOptions`
 * @returns a listener for `createServer`
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * createServer(nodeGateway(gateway, (req, res) => res.end("hello"))).listen(3000);
 */
export function nodeGateway<Req extends NodeRequest, Res extends NodeResponse>(
  gateway: Checker,
  handler: (req: Req, res: Res) => unknown,
  options: HostOptions = {},
): (req: Req, res: Res) => void {
  return listener(new HostFilter(gateway, options), handler);
}

/**
 * Wraps a handler of Node's `http` with a limit, without rules.
 *
 * @param limiter a `KeyedLimiter`, a `RedisLimiter` or another limiter by key, or one limiter for all
 *   requests together
 * @param handler receives the requests that pass, with the verdict as `req.rateLimit`
 * @param options see `LimitOptions` and `HostOptions`
 * @returns a listener for `createServer`
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const clients = KeyedLimiter.create(gcra({ limit: 100, periodMs: 60_000 }));
 * createServer(nodeLimit(clients, (req, res) => res.end("hello"))).listen(3000);
 */
export function nodeLimit<Req extends NodeRequest, Res extends NodeResponse>(
  limiter: Limiter | LimiterByKey,
  handler: (req: Req & RateLimited, res: Res) => unknown,
  options: HostLimitOptions<Req> = {},
): (req: Req, res: Res) => void {
  return listener(limitFilter(limiter, options), handler);
}

function listener<Req extends NodeRequest, Res extends NodeResponse>(
  filter: HostFilter,
  handler: (req: Req, res: Res) => unknown,
): (req: Req, res: Res) => void {
  checkFunction("handler", handler);
  return (req, res) => {
    const go = (action: HostAction) => {
      if (carryOut(action, res)) handler(req, res);
    };
    const action = filter.ask(new NodeGatewayRequest(req, res, req.url), req);
    if (!(action instanceof Promise)) return go(action);
    // errors of the handler are not caught here, so they act as they would without a filter
    void action.catch((): HostAction => ({ answer: failure() })).then(go);
  };
}

/**
 * Sets the header fields, or sends the response of a refusal.
 *
 * @returns whether the request goes on
 */
export function carryOut(action: HostAction, res: NodeResponse): boolean {
  // other code, such as a time-out, may have responded while the request waited
  if (action === undefined || res.headersSent) return false;
  if (action.answer === undefined) {
    for (const field of action.fields) res.setHeader(field[0], field[1]);
    pace(action, res);
    return true;
  }
  send(action.answer, res);
  return false;
}

/** Paces the response of a request that passes. */
export function pace({ paces }: Passage, res: NodeResponse): void {
  // every response of Node is one, and a stream
  if (paces !== undefined) paceResponse(res as NodeResponse & PacedResponse, () => paces);
}

function send({ status, headers, body }: Answer, res: NodeResponse): void {
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  res.end(body);
}

/** The gateway's view of a request. The signal is created on demand, because few requests wait. */
export class NodeGatewayRequest implements HostRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: unknown;
  readonly #req: NodeRequest;
  readonly #res: AnsweringResponse | undefined;
  #signal: AbortSignal | undefined;

  /**
   * @param res absent for an upgrade, which lasts as long as its socket
   * @param url as the client sent it: some servers remove the part that a router has matched
   * @param raw the server's own request
   */
  constructor(
    req: NodeRequest,
    res: AnsweringResponse | undefined,
    url: string | undefined,
    raw: unknown = req,
  ) {
    this.method = req.method ?? "GET";
    this.url = url ?? "/";
    this.raw = raw;
    this.#req = req;
    this.#res = res;
  }

  get remoteAddress(): string | undefined {
    return this.#req.socket?.remoteAddress;
  }

  get signal(): AbortSignal {
    this.#signal ??= overSignal(this.#req, this.#res);
    return this.#signal;
  }

  get isOver(): boolean {
    return isOver(this.#req, this.#res);
  }

  header(name: string): string | undefined {
    const value = this.#req.headers[name];
    return typeof value === "object" ? value.join(", ") : value;
  }

  onClose(closed: () => void): void {
    whenOver(this.#req, this.#res, closed);
  }

  onAnswered(answered: (status: number | undefined) => void): void {
    const res = this.#res;
    whenOver(this.#req, res, () => answered(res?.headersSent ? res.statusCode : undefined));
  }
}
