import { show } from "../check.ts";
import type { Limiter } from "../limiter/face.ts";

/** A `ConcurrencyLimiter` has `acquire` too, but it answers a lease, which nobody would release. */
export function checkLimiter(limiter: unknown, words = "a limiter"): Limiter {
  const { acquire, reserve } = Object(limiter) as Partial<Limiter>;
  if (typeof acquire === "function" && typeof reserve === "function") return limiter as Limiter;
  throw new TypeError(`limiter must be ${words}, got ${show(limiter)}`);
}
