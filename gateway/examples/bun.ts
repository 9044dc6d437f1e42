/**
 * Bun: `bun run bun.ts`. A limit for each client: two requests at once, and two a minute. Bun gives the
 * server to the handler, beside the request, and the adapter asks it for the client's address.
 */
import { gcra, KeyedLimiter } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/limit";

const clients = KeyedLimiter.create(gcra({ limit: 2, periodMs: 60_000 }), { maxKeys: 100_000 });

const handler = fetchLimit(clients, (_request, _server: unknown) => new Response("hello"));

/** What this example uses of Bun, whose types are elsewhere. */
interface Platform {
  serve(options: {
    hostname: string;
    port: number;
    fetch: (request: Request, server: unknown) => Promise<Response>;
  }): { port: number; stop(): Promise<void> };
}

const { Bun } = globalThis as { Bun?: Platform };
const server = Bun?.serve({ hostname: "127.0.0.1", port: 0, fetch: handler });

// three requests of one client; without Bun the handler gets what Bun would give it
for (let i = 0; i < 3; i++) {
  const url = `http://127.0.0.1:${server?.port ?? 80}/`;
  const beside = { requestIP: () => ({ address: "127.0.0.1", port: 50_000, family: "IPv4" }) };
  const response = await (server ? fetch(url) : handler(new Request(url), beside));
  console.log(response.status, response.headers.get("ratelimit"));
  await response.body?.cancel();
}
await server?.stop();
