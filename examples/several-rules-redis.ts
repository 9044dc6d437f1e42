/**
 * Several rules on Redis, each with another key. A request is charged to all rules if all of them allow
 * it, else to none. One script asks all rules, and the decision names those that refused.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { allOf, fixedWindow, slidingLog } from "smooth-limiter";
import { RedisLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";

const redis = new Redis(process.env.REDIS_URL ?? (await freshUrl()));
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

async function order(user: string): Promise<boolean> {
  const { allowed, waitMs, policies } = await allOf(shop, users.for(user)).decide();
  const refusing = Object.keys(policies).filter((name) => !policies[name]?.allowed);
  const retry = `retry in ${(waitMs / 1000).toFixed(1)} s`;
  console.log(
    `${user}: ${allowed ? "accepted" : `refused by ${refusing.join(" and ")}, ${retry}`}`,
  );
  return allowed;
}

await order("ann");
await order("ann");
await order("ann"); // the third in a second
await sleep(1100);
await order("ann");
await order("ann"); // the fourth in an hour
for (const user of ["bob", "cat", "dan"])
  assert.ok(await order(user), "refused requests cost nothing");
assert.equal(await order("eve"), false); // the shop has accepted six

await Promise.all([shop.close(), users.close()]);
redis.disconnect();
