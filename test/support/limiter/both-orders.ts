import { type CallOrder, fairShares } from "../../../src/index.ts";
import { suite } from "../suite.ts";

/** Runs tests of a concurrency limiter twice: first in, first out, and fair with one share. */
export function bothOrders(title: string) {
  const suites = [suite(title), suite(`${title}, fair`)] as const;
  const [fifo] = suites;
  let isFair = false;
  return {
    suites,
    /** For a test whose requests to the store are those of a limiter that is not fair. */
    fifo,
    test: (name: string, run: () => unknown) => {
      suites.forEach((one, i) => {
        one(name, async () => {
          isFair = i === 1;
          try {
            await run();
          } finally {
            isFair = false;
          }
        });
      });
    },
    /** The option `order` of the test that runs. */
    get order(): CallOrder | undefined {
      return isFair ? fairShares() : undefined;
    },
  };
}
