// A process that asks for two leases, reports when it has lost one, and asks for another. It is given the URL of
// Redis, and how long a lease lasts, in ms.

import { Redis } from "ioredis";
import { RedisConcurrencyLimiter } from "../../../src/redis/index.ts";
import { PATIENT } from "../patient.ts";
import { until } from "../redis/ask.ts";

const [url = "", leaseMs] = process.argv.slice(2);
const options = { ...PATIENT, leaseMs: Number(leaseMs) };
const limiter = RedisConcurrencyLimiter.create(new Redis(url), "children", 2, options);
process.on("disconnect", () => process.exit());

async function hold(): Promise<void> {
  const { signal } = await limiter.acquire();
  signal.addEventListener("abort", () => {
    process.send?.(`${signal.reason}`);
    void hold();
  });
}

void hold();
void hold();
await until("leases or tickets", () => limiter.active + limiter.waiting === 2);
process.send?.("ready");
