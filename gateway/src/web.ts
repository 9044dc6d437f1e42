/**
 * `smooth-limiter-gateway/web`: all of `smooth-limiter-gateway/limit`, and a filter that is configured by rules,
 * without what needs a module of Node. It runs wherever `Request` and `Response` exist.
 */
export type { ActorKind, Actors, WhenActorMissing } from "./actors/actor.ts";
export { createGateway, type Gateway } from "./gateway.ts";
export type { GatewayOptions } from "./gateway-options.ts";
export * from "./limit.ts";
export type { AlgorithmField, RuleAlgorithm, RuleAlgorithms } from "./rules/algorithms.ts";
export type { Cost, CostFunction, Costs, SettledCost } from "./rules/cost.ts";
export * from "./rules/reading.ts";
export type { UrlRules } from "./rules/schema.ts";
export { type FunctionSourceOptions, functionSource } from "./sources/function-source.ts";
export type { RulesEvent, WhenSourceGone } from "./sources/live-rules.ts";
export { type RedisReader, type RedisSourceOptions, redisSource } from "./sources/redis-source.ts";
export type { RuleSource } from "./sources/source.ts";
export { type UrlSourceOptions, urlSource } from "./sources/url-source.ts";
export type { RuleStats, VerdictMessage } from "./stats.ts";
