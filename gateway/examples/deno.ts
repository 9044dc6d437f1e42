/**
 * Deno: `deno run --allow-net deno.ts`. A limit for each client: two requests at once, and two a minute.
 * Deno gives the client's address to the handler, beside the request, and the adapter reads it there.
 */
import { gcra, KeyedLimiter } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/limit";

const clients = KeyedLimiter.create(gcra({ limit: 2, periodMs: 60_000 }), { maxKeys: 100_000 });

const handler = fetchLimit(clients, (_request, _info: unknown) => new Response("hello"));

/** What this example uses of Deno, whose types are elsewhere. */
interface Platform {
  serve(
    options: { hostname: string; port: number; onListen(): void },
    handler: (request: Request, info: unknown) => Promise<Response>,
  ): { addr: { port: number }; shutdown(): Promise<void> };
}

const { Deno } = globalThis as { Deno?: Platform };
const server = Deno?.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, handler);

// three requests of one client; without Deno the handler gets what Deno would give it
for (let i = 0; i < 3; i++) {
  const url = `http://127.0.0.1:${server?.addr.port ?? 80}/`;
  const info = { remoteAddr: { transport: "tcp", hostname: "127.0.0.1", port: 50_000 } };
  const response = await (server ? fetch(url) : handler(new Request(url), info));
  console.log(response.status, response.headers.get("ratelimit"));
  await response.body?.cancel();
}
await server?.shutdown();
