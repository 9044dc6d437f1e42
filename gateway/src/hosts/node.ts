/** For Node's own `http`, `https` and `http2`, and the part that servers built on these share. */
import type { Limiter } from "smooth-limiter";
import type { Answer } from "../answers/answer.ts";
import type { Checker, Pace } from "../answers/checker.ts";
import { checkFunction } from "../ground/check.ts";
import type { Host, Passage } from "./host.ts";
import { gatewayFilter, type HostFilter, type HostOptions } from "./host-filter.ts";
import { limitFilter } from "./limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "./limit-options.ts";
import type { RateLimited } from "./limit-verdict.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";
import { NodeGatewayRequest } from "./node-request.ts";
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
  return listener(gatewayFilter(HOST, gateway, options), handler as Call["handler"]);
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
  return listener(limitFilter(HOST, limiter, options), handler as Call["handler"]);
}

interface Call {
  readonly req: NodeRequest;
  readonly res: NodeResponse;
  handler(req: NodeRequest, res: NodeResponse): unknown;
}

/** What the servers share whose middleware gets Node's own response. */
export const NODE = {
  isAnswered: ({ res }: Pick<Call, "res">) => res.headersSent,
  answer({ res }: Pick<Call, "res">, { status, headers, body }: Answer): void {
    res.statusCode = status;
    for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
    res.end(body);
  },
  drop: () => {},
};

const HOST: Host<Call> = {
  ...NODE,
  request: ({ req, res }) => new NodeGatewayRequest(req, res, req.url),
  pass({ req, res, handler }, passage) {
    prepare(res, passage);
    handler(req, res);
  },
};

function listener<Req extends NodeRequest, Res extends NodeResponse>(
  filter: HostFilter<Call>,
  handler: Call["handler"],
): (req: Req, res: Res) => void {
  checkFunction("handler", handler);
  return (req, res) => void filter.serve({ req, res, handler });
}

/** Adds the header fields to a response that will be sent, and paces it. */
export function prepare(res: NodeResponse, { fields, paces }: Passage): void {
  for (const field of fields) res.setHeader(field[0], field[1]);
  pace(res, paces);
}

/** Paces a response of Node: every one is a stream. */
export function pace(res: NodeResponse, paces: readonly Pace[] | undefined): void {
  if (paces !== undefined) paceResponse(res as NodeResponse & PacedResponse, () => paces);
}
