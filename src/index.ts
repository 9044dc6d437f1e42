export type { Policy } from "./algorithms/algorithm.ts";
export { type FixedWindowPolicy, fixedWindow } from "./algorithms/fixed-window/fixed-window.ts";
export { type GcraPolicy, gcra } from "./algorithms/gcra/gcra.ts";
export { leakyBucket } from "./algorithms/gcra/leaky-bucket.ts";
export { type RedisCellReply, toRedisCellReply } from "./algorithms/gcra/redis-cell.ts";
export { type SlidingLogPolicy, slidingLog } from "./algorithms/sliding-log/sliding-log.ts";
export {
  type SlidingWindowPolicy,
  slidingWindow,
} from "./algorithms/sliding-window/sliding-window.ts";
export { type SmoothPolicy, smoothBursty, smoothWarmingUp } from "./algorithms/smooth/smooth.ts";
export {
  type SteppedBucketPolicy,
  type TokenBucketPolicy,
  tokenBucket,
} from "./algorithms/token-bucket/token-bucket.ts";
export { type Clock, systemClock, type Timer } from "./ground/clock.ts";
export {
  type CancelledMessage,
  type Channel,
  type DiagnosticsSource,
  diagnostics,
  type LimitIgnoredMessage,
  type OtherAlgorithmsMessage,
  type RecoveredMessage,
  type RefusedMessage,
  type RolledBackMessage,
  type UnavailableMessage,
  type WaitMessage,
} from "./ground/diagnostics.ts";
export {
  LimiterError,
  PermitsExceedCapacityError,
  QueueFullError,
  ReservationCancelledError,
  TooManyKeysError,
} from "./ground/errors.ts";
export type { Permits } from "./ground/permits.ts";
export { preciseClock } from "./ground/precise-clock.ts";
export { allOf } from "./limiter/all-of.ts";
export type {
  CombinedLease,
  LeasingLimiter,
  LocalCombinedLease,
  LocalLeasingLimiter,
} from "./limiter/all-of-places.ts";
export { ConcurrencyLimiter, type ConcurrencyOptions } from "./limiter/concurrency.ts";
export type { KeyedLimiterOptions } from "./limiter/key-table.ts";
export { KeyedLimiter } from "./limiter/keyed.ts";
export { Limiter } from "./limiter/limiter.ts";
export type {
  Decision,
  LocalLimiter,
  LocalReservation,
  PolicyStatus,
  RemoteLimiter,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "./limiter/limiter-api.ts";
export type { Lease } from "./limiter/local-lease.ts";
export type { Counted, LimiterStats } from "./limiter/meter.ts";
export type { FairOptions, LimiterOptions, OnFull } from "./limiter/options.ts";
export { RateLimiter, type RateLimiterOptions } from "./limiter/rate-limiter.ts";
export {
  type TakenFromAll,
  type TakeRequest,
  type TakeResult,
  takeFromAll,
} from "./limiter/take-from-all.ts";
export type { Policies } from "./stores/policies.ts";
