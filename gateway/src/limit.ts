/**
 * `smooth-limiter-gateway/limit`: limits in one call, without rules. It loads no schema, no YAML and no file
 * watching, so its import takes a fraction of that of the whole package.
 */
export { type Actor, fromCookie, fromHeader } from "./actors/actor.ts";
export { type AddressOptions, fromAddress } from "./actors/address.ts";
export type { Answer, AnswerOptions } from "./answers/answer.ts";
export type { Checker, CheckResult, Pace, PolicyOutcome } from "./answers/checker.ts";
export type { Dialect } from "./answers/fields.ts";
export { type ConnectionsOptions, limitConnections } from "./hosts/connections.ts";
export * from "./hosts/express.ts";
export * from "./hosts/fastify.ts";
export {
  type FetchHostOptions,
  type FetchLimitOptions,
  fetchGateway,
  fetchLimit,
} from "./hosts/fetch.ts";
export * from "./hosts/hono.ts";
export type { HostOptions, OnError } from "./hosts/host-filter.ts";
export * from "./hosts/koa.ts";
export type {
  HostLimitOptions,
  LimiterByKey,
  LimitKey,
  LimitOptions,
  PerRequest,
  RequestLimit,
} from "./hosts/limit-options.ts";
export { type LimitRateOptions, limitRate } from "./hosts/limit-rate.ts";
export type { LimitVerdict, RateLimited } from "./hosts/limit-verdict.ts";
export { nodeGateway, nodeLimit } from "./hosts/node.ts";
export type { NodeRequest, NodeResponse } from "./hosts/node-messages.ts";
export { limitRequests } from "./hosts/one-call-limit.ts";
export type { PacedResponse } from "./hosts/paced-response.ts";
export type { GatewayRequest } from "./request.ts";
export type { SharedSlots } from "./slots.ts";
export type { CountedRule, Outcome, Verdict } from "./verdict.ts";
