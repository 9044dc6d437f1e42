import { redisServer } from "../scripts/redis-server.ts";
import { RedisLimiter } from "../src/redis.ts";
import { type Kind, limiterSuite } from "./limiter/limiter.suite.ts";
import {
  bucket,
  bursty,
  cells,
  inBuckets,
  logged,
  onEpoch,
  prefilled,
  shaper,
  WINDOW,
  warmingUp,
} from "./limiter/policies.ts";
import { connect, RemoteClock, type Watched } from "./limiter/remote.ts";
import { suite } from "./suite.ts";

let watched: Watched;

const opening = suite("prefetching limiters on Redis, before");
opening.before(async () => {
  await redisServer();
  watched = await connect();
});
opening("a server is there", () => {});
opening.run();

const kinds: [
  name: string,
  policies: (permitsPerSecond: number) => Kind["policies"],
  together?: number,
][] = [
  ["bursty", bursty],
  ["warming up", warmingUp],
  ["prefilled", prefilled],
  ["cells", cells],
  ["bucket", bucket],
  ["shaper", shaper],
  ["fixed window", onEpoch, WINDOW],
  ["sliding window", inBuckets, WINDOW],
  ["sliding log", logged, WINDOW],
  ["two policies", (rate) => ({ requests: prefilled(rate), tokens: warmingUp((rate * 3) / 7) })],
];

for (const [name, policies, together = 1] of kinds) {
  limiterSuite(
    `RedisLimiter that prefetches, ${name}`,
    (clock, { name: own = watched.fresh(), ...options } = {}) =>
      RedisLimiter.create(watched.runner, own, policies(7), {
        ...{ timeoutMs: 60_000, clock, prefetch: { permits: 3 } },
        ...options,
      }),
    {
      together,
      policies: policies(7),
      faster: policies(11),
      slower: policies(2),
      makeClock: () => new RemoteClock(),
    },
  );
}

const closing = suite("prefetching limiters on Redis, after");
closing("the client ends", () => watched.redis.disconnect());
closing.run();
