/**
 * `smooth-limiter-gateway/rules`: for tools that read rules, such as a check in CI. It reads a file and
 * says which requests a rule applies to, and which policies a gateway makes of its numbers. A server
 * needs only `createGateway`.
 */
export {
  addressKey,
  isAddressOrRange,
  policiesOfRule,
  type RulePolicy,
  segmentsOf,
} from "./facts.ts";
export * from "./reading.ts";
