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
} from "./api/limiter-api.ts";
export type { CallOrder, FairOptions, LimiterOptions, OnFull } from "./api/options.ts";
export type { AdaptiveRunOptions, RunOptions } from "./api/slots-options.ts";
export type { Counted, LimiterStats } from "./api/stats.ts";
export { allOf } from "./combine/all-of.ts";
export {
  type TakenFromAll,
  type TakeRequest,
  type TakeResult,
  takeFromAll,
} from "./combine/take-from-all.ts";
export type {
  CombinedLease,
  LeasingLimiter,
  LocalCombinedLease,
  LocalLeasingLimiter,
} from "./combine/with-slots.ts";
export {
  type AdaptiveLimit,
  type AdaptiveLimitOptions,
  adaptive,
} from "./concurrency/adaptive/adaptive.ts";
export { type AimdOptions, aimd } from "./concurrency/adaptive/aimd.ts";
export { gradient } from "./concurrency/adaptive/gradient.ts";
export type {
  ConcurrencyStrategy,
  EndedCall,
  LimitBounds,
} from "./concurrency/adaptive/strategy.ts";
export { ConcurrencyLimiter } from "./concurrency/limiter.ts";
export type { Lease } from "./concurrency/local-lease.ts";
export { fairShares } from "./fair/fair-shares.ts";
export { type Clock, systemClock, type Timer } from "./ground/clock.ts";
export {
  type CancelledMessage,
  type Channel,
  type DiagnosticsSource,
  diagnostics,
  type FractionMessage,
  type LimitIgnoredMessage,
  type OtherAlgorithmsMessage,
  type RecoveredMessage,
  type RefusedMessage,
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
export { KeyedLimiter } from "./keyed/limiter.ts";
export type { KeyedLimiterOptions } from "./keyed/table.ts";
export { Limiter } from "./local/limiter.ts";
export { RateLimiter, type RateLimiterOptions } from "./local/rate-limiter.ts";
export type { Policies } from "./stores/policies.ts";
