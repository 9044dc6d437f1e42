import type { Limiter } from "../api/limiter-api.ts";
import { failCheck } from "../ground/check.ts";

/**
 * Rejects a `ConcurrencyLimiter`: it has `acquire` too, but returns a lease that must be released.
 */
export function checkLimiter(limiter: unknown, words = "a rate limiter"): Limiter {
  const { acquire, reserve } = Object(limiter) as Partial<Limiter>;
  if (typeof acquire === "function" && typeof reserve === "function") return limiter as Limiter;
  failCheck("limiter", words, limiter);
}
