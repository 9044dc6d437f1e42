import type { Limiter, LocalLimiter, Reservation } from "../../../src/api/limiter-api.ts";
import type { Permits } from "../../../src/ground/permits.ts";
import { turn } from "../limiter/watch.ts";

/** A limiter that behaves like one behind a network: its verbs answer later, or fail. */
export function later(local: LocalLimiter) {
  let underWay = 0;
  const remote = {
    limiter: {
      acquire: async (permits?: Permits) => {
        await roundTrip(() => {});
        return local.acquire(permits);
      },
      reserve: async (permits?: Permits): Promise<Reservation> => {
        const reservation = await roundTrip(() => local.reserve(permits));
        return {
          permits: reservation.permits,
          waitMs: reservation.waitMs,
          ready: (options) => reservation.ready(options),
          cancel: () => roundTrip(() => reservation.cancel()),
          settle: (actual) => roundTrip(() => reservation.settle(actual)),
          undo: () => roundTrip(() => reservation.undo()),
        };
      },
    } as Limiter,
    /** The errors with which the next calls fail, in order. */
    failures: [] as Error[],
    /** Nothing is in flight, and everything that is ready to run has run. */
    async settled(): Promise<void> {
      do await turn();
      while (underWay > 0);
    },
  };
  async function roundTrip<T>(action: () => T): Promise<T> {
    underWay += 1;
    try {
      await Promise.resolve();
      const failure = remote.failures.shift();
      if (failure !== undefined) throw failure;
      return action();
    } finally {
      await turn();
      underWay -= 1;
    }
  }
  return remote;
}
