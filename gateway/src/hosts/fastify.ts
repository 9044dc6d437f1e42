import type { Checker } from "../answers/checker.ts";
import { type HostAction, HostFilter, type HostOptions } from "./host-filter.ts";
import { NodeGatewayRequest, type NodeRequest, type NodeResponse } from "./node.ts";

export interface FastifyGatewayOptions extends HostOptions {
  /** From `createGateway` or `limitConnections`. */
  readonly gateway: Checker;
}

/** The members of a Fastify request that the adapter uses. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
  readonly originalUrl: string;
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
    name: "onRequest",
    hook: (request: FastifyRequest, reply: FastifyReply, done: Done) => void,
  ): unknown;
}

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
) => void = Object.assign(plug, {
  // as fastify-plugin does: the hook applies to the whole application, not only to this plugin
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "smooth-limiter",
});

function plug(
  instance: FastifyInstance,
  { gateway, ...options }: FastifyGatewayOptions,
  done: Done,
): void {
  let guard: HostFilter;
  try {
    guard = new HostFilter(gateway, options);
  } catch (error) {
    // an error thrown by a plugin would end the process
    done(error as Error);
    return;
  }
  instance.addHook("onRequest", (request, reply, next) => {
    const go = (ruling: HostAction) => {
      if (carryOut(ruling, reply)) next();
    };
    const { raw, originalUrl } = request;
    const ruling = guard.ask(new NodeGatewayRequest(raw, reply.raw, originalUrl, request), raw);
    if (ruling instanceof Promise) ruling.then(go, next);
    else go(ruling);
  });
  done();
}

function carryOut(ruling: HostAction, reply: FastifyReply): boolean {
  if (reply.sent) return false;
  if (ruling === undefined) {
    reply.hijack(); // the request is over: no response can be sent
    return false;
  }
  if (ruling.answer === undefined) {
    for (const [name, value] of ruling.fields) reply.header(name, value);
    return true;
  }
  const { status, headers, body } = ruling.answer;
  reply.code(status);
  reply.headers({ ...headers });
  reply.send(body);
  return false;
}
