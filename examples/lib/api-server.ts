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

/** Returns a 429 reply with `Retry-After`, which HTTP counts in whole seconds. */
export function tooMany(retryAfterMs: number): Reply {
  return { status: 429, headers: { "retry-after": String(Math.ceil(retryAfterMs / 1000)) } };
}

/**
 * A server's own limit: at most so many requests within any second. It keeps a log of the requests that it let in.
 *
 * @returns a function that lets one request in and returns 0, or returns the ms after which to retry
 */
export function slidingSecond(limit: number): () => number {
  let entries: number[] = [];
  return () => {
    const now = performance.now();
    entries = entries.filter((at) => at > now - 1000);
    const [oldest] = entries;
    if (oldest !== undefined && entries.length >= limit) return oldest + 1000 - now;
    entries.push(now);
    return 0;
  };
}

/**
 * Another limit: a bucket of the given capacity that starts full and is refilled steadily.
 *
 * @returns a bucket; `lacks` returns the ms until the bucket holds the amount, or 0 if it does already
 */
export function bucket(capacity: number, perSecond: number) {
  let level = capacity;
  let filledAt = performance.now();
  return {
    lacks(amount: number): number {
      const now = performance.now();
      level = Math.min(capacity, level + ((now - filledAt) / 1000) * perSecond);
      filledAt = now;
      return Math.max(0, ((amount - level) / perSecond) * 1000);
    },
    take(amount: number): void {
      level -= amount;
    },
  };
}
