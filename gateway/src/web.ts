/**
 * `smooth-limiter-gateway/web`: a filter for the front of an HTTP server, configured by rules, without
 * what needs a module of Node. It runs wherever `Request` and `Response` exist.
 */
export { type Actor, type ActorKind, type Actors, fromCookie, fromHeader } from "./actors/actor.ts";
export { type AddressOptions, fromAddress } from "./actors/address.ts";
export type { WhenActorMissing } from "./actors/resolver.ts";
export type { Answer, AnswerOptions } from "./answers/answer.ts";
export type { Checker, CheckResult, Pace, PolicyOutcome } from "./answers/checker.ts";
export type { Dialect } from "./answers/fields.ts";
export { createGateway, type Gateway } from "./gateway.ts";
export type { GatewayOptions } from "./gateway-options.ts";
export {
  type ConnectionsOptions,
  limitConnections,
} from "./hosts/connections.ts";
export {
  type ExpressRequest,
  type ExpressRequestLike,
  expressGateway,
  expressLimit,
} from "./hosts/express.ts";
export {
  type FastifyGatewayOptions,
  type FastifyHook,
  type FastifyInstance,
  type FastifyLimitOptions,
  type FastifyReply,
  type FastifyRequest,
  fastifyGateway,
  fastifyLimit,
} from "./hosts/fastify.ts";
export {
  type FetchHostOptions,
  type FetchLimitOptions,
  fetchGateway,
  fetchLimit,
} from "./hosts/fetch.ts";
export {
  type HonoContext,
  type HonoGatewayOptions,
  type HonoLimitOptions,
  honoGateway,
  honoLimit,
} from "./hosts/hono.ts";
export type { HostOptions, OnError } from "./hosts/host-filter.ts";
export { type KoaContext, koaGateway, koaLimit } from "./hosts/koa.ts";
export { limitRequests } from "./hosts/limit.ts";
export type {
  HostLimitOptions,
  LimiterByKey,
  LimitKey,
  LimitOptions,
  PerRequest,
  RequestLimit,
} from "./hosts/limit-options.ts";
export { type LimitRateOptions, limitRate, type ResponseRate } from "./hosts/limit-rate.ts";
export type { LimitVerdict, RateLimited } from "./hosts/limit-verdict.ts";
export { nodeGateway, nodeLimit } from "./hosts/node.ts";
export type { NodeRequest, NodeResponse } from "./hosts/node-messages.ts";
export type { PacedResponse } from "./hosts/paced-response.ts";
export type { SharedPlaces } from "./places.ts";
export type { GatewayRequest } from "./request.ts";
export type { AlgorithmField, RuleAlgorithm, RuleAlgorithms } from "./rules/algorithms.ts";
export type { Cost, CostFunction, Costs, SettledCost } from "./rules/cost.ts";
export { type ReadOptions, readRules } from "./rules/read-rules.ts";
export type {
  Align,
  AnyRule,
  ConnectionOverride,
  ConnectionRule,
  Place,
  RateNumbers,
  RateOverride,
  RateRule,
  RefusingRule,
  RequestRule,
  Rule,
  RuleNumbers,
  RuleOverride,
  Unit,
} from "./rules/rule.ts";
export { type Problem, RulesError } from "./rules/rules-error.ts";
export type { UrlRules } from "./rules/schema.ts";
export { type FunctionSourceOptions, functionSource } from "./sources/function-source.ts";
export type { RulesEvent, WhenSourceGone } from "./sources/live-rules.ts";
export { type RedisReader, type RedisSourceOptions, redisSource } from "./sources/redis-source.ts";
export type { RuleSource } from "./sources/source.ts";
export { type UrlSourceOptions, urlSource } from "./sources/url-source.ts";
export type { RuleStats, VerdictMessage } from "./stats.ts";
export type { CountedRule, Outcome, Verdict } from "./verdict.ts";
