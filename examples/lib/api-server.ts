/**
 * The other side of the examples: a real HTTP server on the loopback interface that counts for itself and answers 429
 * to whatever is above its limit. It knows nothing of smooth-limiter.
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
  /** How many requests were answered 429, and how many with something else. */
  readonly refused: number;
  readonly accepted: number;
  /** The most requests that came in any stretch of one second, refused ones included. */
  busiestSecond(): number;
  close(): Promise<void>;
}

/** Starts a server that answers each request with what `answer` says. */
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

/** "Too many requests", and when to come again: HTTP tells that in whole seconds. */
export function tooMany(retryAfterMs: number): Reply {
  return { status: 429, headers: { "retry-after": String(Math.ceil(retryAfterMs / 1000)) } };
}

/**
 * A server's own limit: at most so many requests in any stretch of one second. It remembers when it let somebody in.
 *
 * @returns a function that lets one request in and answers 0, or answers in how many ms to come again
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
 * Another one: a bucket that holds so much, starts full and is refilled steadily.
 *
 * @returns a bucket; `lacks` answers in how many ms the bucket will hold that much, 0 if it does
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
