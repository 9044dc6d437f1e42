/**
 * The server of the examples: a real HTTP server on the loopback interface that enforces its own limit and answers 429
 * to requests above it. It does not use smooth-limiter.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Reply {
  readonly status: number;
  readonly headers?: Record<string, string>;
  readonly body?: unknown;
}

export interface ApiServer {
  readonly url: string;
  /** The number of requests that were answered 429, and the number of all others. */
  readonly refused: number;
  readonly accepted: number;
  /** Returns the most requests that came within any second, refused ones included. */
  busiestSecond(): number;
  close(): Promise<void>;
}

/** Starts a server that answers each request with the result of `answer`. */
export async function startServer(
  answer: (url: URL) => Reply | Promise<Reply>,
): Promise<ApiServer> {
  let refused = 0;
  const arrivals: number[] = [];

  const server = createServer(async (request, response) => {
    arrivals.push(performance.now());
    const reply = await answer(new URL(request.url ?? "/", "http://localhost"));
    if (reply.status === 429) refused += 1;
    response.writeHead(reply.status, { "content-type": "application/json", ...reply.headers });
    response.end(JSON.stringify(reply.body ?? {}));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get refused() {
      return refused;
    },
    get accepted() {
      return arrivals.length - refused;
    },
    busiestSecond() {
      const within = (from: number) => arrivals.filter((at) => at >= from && at < from + 1000);
      return Math.max(...arrivals.map((from) => within(from).length));
    },
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

export const ok: Reply = { status: 200 };

/**
 * Starts a server with a limit of its own: it answers at most so many requests within any second, and the others with 429
 * and `Retry-After`, which HTTP counts in whole seconds.
 */
export function startStrictServer(limit: number): Promise<ApiServer> {
  let entries: number[] = [];
  return startServer(() => {
    const now = performance.now();
    entries = entries.filter((at) => at > now - 1000);
    const [oldest] = entries;
    if (oldest !== undefined && entries.length >= limit) {
      return {
        status: 429,
        headers: { "retry-after": `${Math.ceil((oldest + 1000 - now) / 1000)}` },
      };
    }
    entries.push(now);
    return ok;
  });
}
