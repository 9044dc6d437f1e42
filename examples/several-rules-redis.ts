// Several rules on Redis, each about another key: all let a request pass and are charged, or none is. They are asked in
// one script, and the decision names the rules that refused.
//
//   npx tsx examples/several-rules-redis.ts
//
// REDIS_URL says where Redis is; without it an own server is started and removed again.

import { Redis } from "ioredis";
import { redisServer } from "../scripts/redis-server.ts";
import { allOf, fixedWindow, slidingLog } from "../src/index.ts";
import { RedisLimiter } from "../src/redis.ts";

const url = process.env.REDIS_URL ?? (await redisServer());
const redis = new Redis(url);
const prefix = `example:${process.pid}:`;

const HOUR = 3_600_000;
const shop = RedisLimiter.create(
  redis,
  "shop",
  { shop: fixedWindow({ limit: 6, windowMs: HOUR }) },
  { prefix },
);
const users = RedisLimiter.create(
  redis,
  "users",
  {
    burst: slidingLog({ limit: 2, windowMs: 1000 }),
    hourly: fixedWindow({ limit: 3, windowMs: HOUR }),
  },
  { prefix },
);

async function order(user: string): Promise<void> {
  const { allowed, waitMs, policies } = await allOf(shop, users.for(user)).decide();
  const refusing = Object.keys(policies).filter((name) => !policies[name]?.allowed);
  const retry = `retry in ${(waitMs / 1000).toFixed(1)} s`;
  console.log(
    `${user}: ${allowed ? "accepted" : `refused by ${refusing.join(" and ")}, ${retry}`}`,
  );
}

await order("ann");
await order("ann");
await order("ann"); // the third in a second
await new Promise((resolve) => setTimeout(resolve, 1100));
await order("ann");
await order("ann"); // the fourth in an hour
for (const user of ["bob", "cat", "dan"]) await order(user);
await order("eve"); // the shop has accepted six: the refused requests were not counted

await Promise.all([shop.close(), users.close()]);
redis.disconnect();
