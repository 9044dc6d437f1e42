export type { Policy } from "./algorithms/algorithm.ts";
export { type SmoothPolicy, smoothBursty, smoothWarmingUp } from "./algorithms/smooth/smooth.ts";
export { type Clock, preciseClock, systemClock, type Timer } from "./clock.ts";
export {
  LimiterError,
  PermitsExceedCapacityError,
  QueueFullError,
  ReservationCancelledError,
} from "./errors.ts";
export { ConcurrencyLimiter, type ConcurrencyOptions, type Lease } from "./limiter/concurrency.ts";
export type {
  Decision,
  LocalLimiter,
  LocalReservation,
  PolicyStatus,
  Reservation,
  TryOptions,
  WaitOptions,
} from "./limiter/face.ts";
export { Limiter } from "./limiter/limiter.ts";
export type { LimiterOptions } from "./limiter/options.ts";
export { RateLimiter, type RateLimiterOptions } from "./limiter/rate-limiter.ts";
export type { Permits } from "./permits.ts";
export type { Policies } from "./stores/memory.ts";
