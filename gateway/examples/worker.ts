/**
 * Cloudflare Workers, and with another address Deno, Bun and other platforms: a limit for each client in
 * this isolate. For a limit that all isolates share give a RedisLimiter on @upstash/redis.
 */
import { gcra, KeyedLimiter } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/web";

const clients = KeyedLimiter.create(gcra({ limit: 2, periodMs: 60_000 }), { maxKeys: 100_000 });

const worker = {
  fetch: fetchLimit(clients, (_request, _env: unknown) => new Response("hello"), {
    remoteAddress: (request) => request.headers.get("cf-connecting-ip"),
  }),
};

// biome-ignore lint/style/noDefaultExport: the platform expects it
export default worker;

// here, without the platform
for (let i = 0; i < 3; i++) {
  const headers = { "cf-connecting-ip": "192.0.2.1" };
  const response = await worker.fetch(new Request("http://localhost/", { headers }), {});
  console.log(response.status, response.headers.get("ratelimit"));
}
