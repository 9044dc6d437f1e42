/**
 * Next.js: `proxy.ts`, or `middleware.ts` before Next.js 16. Each client may send two requests at once to
 * /api, and 60 a minute.
 */
import { gcra, KeyedLimiter } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/limit";

const clients = KeyedLimiter.create(gcra({ limit: 60, periodMs: 60_000, burst: 1 }));

/** What `NextResponse.next()` of next/server returns: the request goes on to its route. */
const next = () => new Response(null, { headers: { "x-middleware-next": "1" } });

export const proxy = fetchLimit(clients, next, {
  trustedProxies: 1, // the platform appends the client's address to X-Forwarded-For
});

/** The name in `middleware.ts`. */
export const middleware = proxy;

export const config = { matcher: "/api/:path*" };

// here, without Next.js
for (let i = 0; i < 3; i++) {
  const headers = { "x-forwarded-for": "192.0.2.1" };
  const response = await proxy(new Request("http://localhost/api/cats", { headers }));
  console.log(response.status, response.headers.has("x-middleware-next"));
}
