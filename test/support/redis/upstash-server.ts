import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

export const TOKEN = "secret";

/** A request that the server received. */
export interface UpstashRequest {
  /** `/` for one command, `/pipeline` or `/multi-exec` for several, `/subscribe/…` for a stream. */
  readonly path: string;
  readonly bytes: number;
  /** The commands in it, each with its name in lower case. */
  readonly commands: readonly string[][];
}

/** What happens to a request. */
export type Treatment =
  /** It is answered. */
  | "serve"
  /** The connection is reset before anything runs. */
  | "cut"
  /** The commands run, and then the connection is reset. */
  | "lose the reply"
  /** The commands run, and the connection stays open without a reply. */
  | "never reply"
  /** Nothing runs, and this is the reply. */
  | { readonly status: number; readonly body: string };

export interface UpstashServer {
  readonly url: string;
  readonly requests: UpstashRequest[];
  /** Decides what happens to a request; may wait first. */
  treat: (request: UpstashRequest) => Treatment | Promise<Treatment>;
  /** Ends all streams of messages. */
  cutStreams(): void;
  close(): Promise<void>;
}

type Outcome = { result: unknown } | { error: string };

/** The REST protocol of Upstash on the loopback interface, in front of a real Redis. */
export async function startUpstash(redisUrl: string): Promise<UpstashServer> {
  const redis = new Redis(redisUrl);
  const streams = new Set<() => void>();

  const run = async ([name = "", ...args]: readonly string[]): Promise<Outcome> => {
    try {
      return { result: await redis.callBuffer(name, ...args) };
    } catch (error) {
      return { error: (error as Error).message };
    }
  };

  const serve = async (
    request: IncomingMessage,
    { path, commands }: UpstashRequest,
  ): Promise<readonly [status: number, body: unknown]> => {
    const encoding = request.headers["upstash-encoding"] === "base64" ? "base64" : "utf8";
    if (path === "/multi-exec" || path === "/pipeline") {
      const outcomes = await Promise.all(commands.map(run));
      return [200, outcomes.map((outcome) => encode(outcome, encoding))];
    }
    const outcome = await run(commands[0] ?? []);
    return ["error" in outcome ? 400 : 200, encode(outcome, encoding)];
  };

  const stream = async (path: string, response: ServerResponse) => {
    const channel = decodeURIComponent(path.slice("/subscribe/".length));
    const listener = redis.duplicate();
    const end = () => {
      listener.disconnect();
      response.destroy();
      streams.delete(end);
    };
    streams.add(end);
    response.on("close", end);
    listener.on("message", (from, message) => {
      response.write(`data: message,${from},${message}\n\n`);
    });
    await listener.subscribe(channel);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`data: subscribe,${channel},1\n\n`);
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const received = parse(String(request.url), Buffer.concat(chunks));
    upstash.requests.push(received);
    const reply = (status: number, body: string) =>
      response.writeHead(status, { "content-type": "application/json" }).end(body);
    const treatment = await upstash.treat(received);
    if (typeof treatment === "object") {
      reply(treatment.status, treatment.body);
    } else if (treatment === "cut") {
      request.socket.resetAndDestroy();
    } else if (request.headers.authorization !== `Bearer ${TOKEN}`) {
      reply(401, JSON.stringify({ error: "WRONGPASS invalid or missing auth token" }));
    } else if (received.path.startsWith("/subscribe/")) {
      await stream(received.path, response);
    } else {
      const [status, body] = await serve(request, received);
      if (treatment === "lose the reply") request.socket.resetAndDestroy();
      else if (treatment === "serve") reply(status, JSON.stringify(body));
    }
  };

  const server = createServer((request, response) => {
    // a client that disconnects is no fault of the server
    answer(request, response).catch(() => response.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstash: UpstashServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: [],
    treat: () => "serve",
    cutStreams: () => {
      for (const end of streams) end();
    },
    async close() {
      upstash.cutStreams();
      server.close();
      server.closeAllConnections();
      await once(server, "close");
      redis.disconnect();
    },
  };
  return upstash;
}

/** Waits before each request is answered. */
export function withLatency(ms: number): UpstashServer["treat"] {
  return async (): Promise<Treatment> => {
    await sleep(ms);
    return "serve";
  };
}

function parse(path: string, body: Buffer): UpstashRequest {
  const json: unknown = body.length === 0 ? [] : JSON.parse(body.toString());
  const lists = (path === "/" ? [json] : json) as unknown[][];
  const commands = lists.map(([name, ...args]) => [
    String(name).toLowerCase(),
    ...args.map(String),
  ]);
  return { path, bytes: body.length, commands };
}

/** Texts are in base64 if the client asks for it, except OK and errors. */
function encode(outcome: Outcome, encoding: "base64" | "utf8"): unknown {
  if ("error" in outcome) return outcome;
  const encoded = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(encoded);
    if (!(value instanceof Uint8Array)) return value;
    const bytes = Buffer.from(value);
    return bytes.equals(Buffer.from("OK")) ? "OK" : bytes.toString(encoding);
  };
  return { result: encoded(outcome.result) };
}
