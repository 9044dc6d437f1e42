import { Redis } from "ioredis";
import { gcra } from "smooth-limiter";
import { RedisLimiter } from "smooth-limiter/redis";

// outside of the handler: an instance keeps them between invocations
const redis = new Redis(process.env.REDIS_URL ?? "redis://localhost:6379", { lazyConnect: true });
const perMinute = gcra({ limit: 60, periodMs: 60_000, burst: 4 });
const limiter = RedisLimiter.create(redis, "api", perMinute, {
  whenUnavailable: "allow", // a lost Redis does not close the API
  timeoutMs: 500,
});

/** What the handler reads of an event of API Gateway (payload 2.0) or of a function URL. */
export interface HttpEvent {
  readonly requestContext: { readonly http: { readonly sourceIp: string } };
}

export async function handler({ requestContext: { http } }: HttpEvent) {
  const { allowed, waitMs } = await limiter.for(http.sourceIp).decide();
  if (allowed) return { statusCode: 200, headers: {}, body: "hello" };
  const headers = { "retry-after": `${Math.ceil(waitMs / 1000)}` };
  return { statusCode: 429, headers, body: "too many requests" };
}
