// A process that ends with prefetched permits, and prints what it sent to its store.

import { systemClock } from "../../../src/ground/clock.ts";
import { smoothBursty } from "../../../src/index.ts";
import { onHand } from "../limiter/remote.ts";

const prefetch = { permits: 5, maxAgeMs: 3_600_000 };
const policy = smoothBursty({ permitsPerSecond: 10 });
const { store, limiter } = onHand(policy, { prefetch, clock: systemClock });
await limiter.acquire();
process.on("exit", () => console.log(store.sent()));
