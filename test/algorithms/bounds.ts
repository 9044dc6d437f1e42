import type { GcraPolicy } from "../../src/algorithms/gcra/gcra.ts";
import type { SteppedBucketPolicy } from "../../src/algorithms/token-bucket/token-bucket.ts";

/** The most permits that GCRA, a leaky or a continuous token bucket lets through in an interval. */
export function gcraBound(policy: GcraPolicy, micros: number): number {
  return policy.largest + (micros * policy.permits) / policy.per;
}

/** The most tokens that a bucket which refills in steps hands out in an interval. */
export function steppedBound(policy: SteppedBucketPolicy, micros: number): number {
  return policy.capacity + Math.ceil(micros / policy.every) * policy.refill;
}
