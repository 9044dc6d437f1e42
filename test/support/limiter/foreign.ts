import type { Limiter, LocalLimiter, Permits } from "../../../src/index.ts";

/**
 * A limiter that is not this library's and answers later; `before` runs before each of its verbs.
 */
export function foreign(
  limiter: LocalLimiter,
  before: (verb: string) => void | Promise<void> = () => {},
): Limiter {
  const later = async <T>(verb: string, action: () => T | PromiseLike<T>): Promise<T> => {
    await before(verb);
    return action();
  };
  return {
    acquire: (...args) => later("acquire", () => limiter.acquire(...args)),
    tryAcquire: () => later("tryAcquire", () => limiter.tryAcquire()),
    reserve: (permits?: Permits) => later("reserve", () => limiter.reserve(permits)),
    decide: (permits?: Permits) => later("decide", () => limiter.decide(permits)),
    peek: (permits?: Permits) => later("peek", () => limiter.peek(permits)),
    charge: (permits) => later("charge", () => limiter.charge(permits)),
    refund: (permits) => later("refund", () => limiter.refund(permits)),
    pause: (ms) => later("pause", () => limiter.pause(ms)),
    reset: () => later("reset", () => limiter.reset()),
    update: (policies) => later("update", () => limiter.update(policies)),
  };
}
