/**
 * Cloudflare Workers, and with another address other platforms without `node:`: a limit for each client in
 * this isolate. For a limit that all isolates share give a RedisLimiter on @upstash/redis.
 */
import { gcra, KeyedLimiter } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/limit";

const clients = KeyedLimiter.create(gcra({ limit: 2, periodMs: 60_000 }), { maxKeys: 100_000 });

const worker = {
  fetch: fetchLimit(clients, (_request, _env: unknown) => new Response("hello"), {
    remoteAddress: (request) => request.headers.get("cf-connecting-ip"),
  }),
};

// biome-ignore lint/style/noDefaultExport: the platform expects it
export default worker;

// three requests of one client, without the platform
const { navigator } = globalThis as { navigator?: { userAgent?: string } };
const isPlatform = navigator?.userAgent === "Cloudflare-Workers";
for (let i = 0; i < 3 && !isPlatform; i++) {
  const headers = { "cf-connecting-ip": "192.0.2.1" };
  const response = await worker.fetch(new Request("http://localhost/", { headers }), {});
  console.log(response.status, response.headers.get("ratelimit"));
}
