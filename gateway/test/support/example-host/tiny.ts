/** The example of CONTRIBUTING: the adapter for a new framework. The suites for hosts run over it as over the others. */
import type { Limiter } from "smooth-limiter";
import type { Checker } from "../../../src/answers/checker.ts";
import type { Host } from "../../../src/hosts/host.ts";
import {
  gatewayFilter,
  type HostFilter,
  type HostOptions,
} from "../../../src/hosts/host-filter.ts";
import { limitFilter } from "../../../src/hosts/limit-filter.ts";
import type { HostLimitOptions, LimiterByKey } from "../../../src/hosts/limit-options.ts";
import { prepare } from "../../../src/hosts/node.ts";
import { NodeGatewayRequest } from "../../../src/hosts/node-request.ts";
import type { Context, Handler } from "./tiny-framework.ts";

/** Wraps a handler with a filter. */
export function tinyGateway(
  gateway: Checker,
  handler: Handler,
  options: HostOptions = {},
): Handler {
  return wrap(gatewayFilter(HOST, gateway, options), handler);
}

/** Wraps a handler with a limit, without rules. The verdict is `context.rateLimit`. */
export function tinyLimit(
  limiter: Limiter | LimiterByKey,
  handler: Handler,
  options: HostLimitOptions<Context> = {},
): Handler {
  return wrap(limitFilter(HOST, limiter, options), handler);
}

interface Call {
  readonly context: Context;
  readonly handler: Handler;
}

const HOST: Host<Call, string | undefined> = {
  request: ({ context }) =>
    new NodeGatewayRequest(context.req, context.res, context.req.url, context),
  isAnswered: ({ context }) => context.res.headersSent,
  pass({ context, handler }, passage) {
    prepare(context.res, passage);
    return handler(context);
  },
  answer({ context }, { status, headers, body }) {
    context.res.statusCode = status;
    for (const [name, value] of Object.entries(headers)) context.res.setHeader(name, value);
    return body;
  },
  drop: () => undefined,
  fail(_, error) {
    throw error;
  },
};

function wrap(filter: HostFilter<Call, string | undefined>, handler: Handler): Handler {
  return (context) => filter.serve({ context, handler });
}
