import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, get, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import { type Limiter, RateLimiter } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Checker,
  expressGateway,
  fastifyGateway,
  fetchGateway,
  honoGateway,
  koaGateway,
  type LimitRateOptions,
  limitRate,
  nodeGateway,
} from "../../src/index.ts";

const test = suite("limitRate");

const BYTES = 100_000;
const BODY = "0123456789".repeat(BYTES / 10);
const folder = mkdtempSync(join(tmpdir(), "rate-"));
const file = join(folder, "film.txt");
writeFileSync(file, BODY);
test.after(() => rmSync(folder, { recursive: true }));

const stream = () => Readable.from(BODY.match(/.{1,7000}/gs) ?? []);

const SERVERS: Readonly<Record<string, (rate: Checker) => Promise<RequestListener>>> = {
  "Node, a text": async (rate) => nodeGateway(rate, (_, res) => res.end(BODY)),
  "Node, a stream": async (rate) => nodeGateway(rate, (_, res) => stream().pipe(res)),
  "Node, writes with callbacks": async (rate) =>
    nodeGateway(rate, (_, res) => {
      const half = Buffer.from(BODY.slice(0, BYTES / 2)).toString("base64");
      res.write(half, "base64", () => res.end(BODY.slice(BYTES / 2), () => {}));
    }),
  "Express, a text": async (rate) => {
    const app = express();
    app.use(expressGateway(rate));
    app.get("/", (_, res) => void res.send(BODY));
    return app as unknown as RequestListener;
  },
  "Express, a file": async (rate) => {
    const app = express();
    app.use(expressGateway(rate));
    app.get("/", (_, res) => res.sendFile(file));
    return app as unknown as RequestListener;
  },
  Koa: async (rate) => {
    const app = new Koa();
    app.use(koaGateway(rate));
    app.use((context) => {
      context.body = BODY;
    });
    return app.callback();
  },
  "Koa, a stream": async (rate) => {
    const app = new Koa();
    app.use(koaGateway(rate));
    app.use((context) => {
      context.body = stream();
    });
    return app.callback();
  },
  Fastify: async (rate) => {
    const app = fastify();
    await app.register(fastifyGateway, { gateway: rate });
    app.get("/", async () => BODY);
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  "Fastify, a stream": async (rate) => {
    const app = fastify();
    await app.register(fastifyGateway, { gateway: rate });
    app.get("/", async (_, reply) => reply.send(stream()));
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  Hono: async (rate) => {
    const app = new Hono();
    app.use(honoGateway(rate));
    app.get("/", (context) => context.text(BODY));
    return getRequestListener(app.fetch, { overrideGlobalObjects: false });
  },
  fetch: async (rate) =>
    getRequestListener(
      fetchGateway(rate, () => new Response(BODY)),
      { overrideGlobalObjects: false },
    ),
};

interface Got {
  readonly ms: number;
  readonly body: string;
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Bytes that had arrived before the clock moved. */
  readonly atOnce: number;
}

async function serve(listener: RequestListener, test: (url: string) => Promise<void>) {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await test(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Downloads while the clock moves on, and says how long that took by the clock. */
async function download(url: string, clock: FakeClock, method = "GET"): Promise<Got> {
  const asked = get(url, { agent: false, method, headers: { who: "ann" } });
  const [response] = await once(asked, "response");
  let body = "";
  let isOver = false;
  response.setEncoding("latin1");
  response.on("data", (chunk: string) => {
    body += chunk;
  });
  response.on("close", () => {
    isOver = true;
  });
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  const atOnce = body.length;
  const startedMs = clock.now();
  while (!isOver) {
    await clock.advance(20);
    // the bytes travel through sockets
    for (let i = 0; i < 4; i++) await new Promise(setImmediate);
  }
  return { ms: clock.now() - startedMs, body, headers: response.headers, atOnce };
}

const rateOf = (clock: FakeClock, options: LimitRateOptions = { bytesPerSecond: 50_000 }) =>
  limitRate({ clock, ...options });

for (const [name, make] of Object.entries(SERVERS)) {
  test(`${name}: the body arrives whole, and at the rate`, async () => {
    const clock = new FakeClock();
    await serve(await make(rateOf(clock)), async (url) => {
      const { ms, body, atOnce } = await download(url, clock);
      assert.is(body.length, BYTES);
      assert.ok(body === BODY);
      assert.ok(atOnce < BYTES / 4, `${atOnce} at once`);
      // two seconds; sockets of a busy machine are late by some steps of the clock
      assert.ok(ms > 1700, `${ms} ms`);
    });
  });
}

test("the first bytes are free with afterBytes", async () => {
  const clock = new FakeClock();
  const rate = rateOf(clock, { bytesPerSecond: 50_000, afterBytes: 90_000 });
  await serve(
    nodeGateway(rate, (_, res) => res.end(BODY)),
    async (url) => {
      const { ms, body } = await download(url, clock);
      assert.is(body.length, BYTES);
      assert.ok(ms < 1500, `${ms} ms`);
    },
  );
});

test("a text gets its length, and what has no body is sent as it is", async () => {
  const clock = new FakeClock();
  const rate = rateOf(clock);
  await serve(
    nodeGateway(rate, (req, res) => {
      if (req.url === "/204") res.statusCode = 204;
      if (req.url === "/empty" || req.url === "/204") res.end();
      else res.end("hello");
    }),
    async (url) => {
      const text = await download(url, clock);
      assert.equal([text.body, text.headers["content-length"]], ["hello", "5"]);
      assert.is((await download(`${url}empty`, clock)).body, "");
      assert.is((await download(`${url}204`, clock)).body, "");
      assert.is((await download(url, clock, "HEAD")).body, "");
    },
  );
});

test("a handler that ends its response twice, or writes after its end, does not cut it off", async () => {
  const clock = new FakeClock();
  const seen: (string | undefined)[] = [];
  const note = (what: string) => (error?: Error | null) =>
    void seen.push(`${what} ${(error as NodeJS.ErrnoException | undefined)?.code}`);
  await serve(
    nodeGateway(rateOf(clock), (_, res) => {
      res.on("error", note("error"));
      res.end(BODY);
      res.end();
      assert.not(res.write("late", note("write")));
      res.end(note("end"));
    }),
    async (url) => {
      assert.ok((await download(url, clock)).body === BODY);
      const late = "ERR_STREAM_WRITE_AFTER_END";
      assert.equal(seen.sort(), ["end undefined", `error ${late}`, `write ${late}`]);
    },
  );
});

test("a text in another encoding, trailers, and a body of a wrong type are handled as Node does", async () => {
  const clock = new FakeClock();
  const bodies = { base64: "aGVsbG8=", hex: "68656c6c6f", latin1: "h\xe9llo", utf16le: "hé" };
  await serve(
    nodeGateway(rateOf(clock), (req, res) => {
      const path = (req.url ?? "").slice(1);
      if (path in bodies) {
        const encoding = path as keyof typeof bodies;
        res.end(bodies[encoding], encoding);
        return;
      }
      for (const wrong of [5, {}, true]) {
        assert.throws(() => res.end(wrong as never), /The "chunk" argument must be of type string/);
      }
      res.setHeader("Trailer", "sum");
      res.addTrailers({ sum: "9" });
      res.end("hello");
    }),
    async (url) => {
      for (const [name, text] of Object.entries(bodies)) {
        const { body, headers } = await download(url + name, clock);
        const bytes = Buffer.from(text, name as BufferEncoding);
        assert.is(body, bytes.toString("latin1"), name);
        assert.is(headers["content-length"], String(bytes.length), name);
      }
      const { body, headers } = await download(url, clock);
      assert.equal([body, headers["transfer-encoding"]], ["hello", "chunked"]);
    },
  );
});

test("after an error in the header fields a handler can send another response", async () => {
  const clock = new FakeClock();
  await serve(
    nodeGateway(rateOf(clock), (req, res) => {
      res.statusMessage = "not\nallowed";
      const send = () => (req.url === "/write" ? res.write("first") : res.end("first"));
      assert.throws(send, /Invalid character in statusMessage/);
      res.statusMessage = "OK";
      res.end("the second");
    }),
    async (url) => {
      for (const path of ["", "write"]) {
        const { body, headers } = await download(url + path, clock);
        assert.equal([body, headers["content-length"]], ["the second", "10"]);
      }
    },
  );
});

test("responses of one actor share the rate", async () => {
  const clock = new FakeClock();
  const rate = rateOf(clock, { bytesPerSecond: 100_000, actor: ({ header }) => header("who") });
  await serve(
    nodeGateway(rate, (_, res) => res.end(BODY)),
    async (url) => {
      const both = await Promise.all([download(url, clock), download(url, clock)]);
      assert.equal(
        both.map(({ body }) => body.length),
        [BYTES, BYTES],
      );
      assert.ok(clock.now() > 1700, `${clock.now()} ms`);
    },
  );
});

test("a limiter of the application counts the bytes, and its failure cuts the response off", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(50_000, { clock });
  await serve(
    nodeGateway(rateOf(clock, { limiter }), (_, res) => res.end(BODY)),
    async (url) => assert.ok((await download(url, clock)).ms > 1700),
  );
  const broken = { acquire: async () => Promise.reject(new Error("away")) } as unknown as Limiter;
  await serve(
    nodeGateway(rateOf(clock, { limiter: broken }), (_, res) => res.end(BODY)),
    async (url) => assert.is((await download(url, clock)).body, ""),
  );
});

test("if the function for the limiter fails, onError decides", async () => {
  const clock = new FakeClock();
  const limiter = () => {
    throw new Error("no limiter");
  };
  for (const [onError, length] of [
    ["allow", BYTES],
    ["refuse", 0],
  ] as const) {
    const handler: RequestListener = (_, res) => res.end(BODY);
    await serve(nodeGateway(rateOf(clock, { limiter }), handler, { onError }), async (url) => {
      const { body } = await download(url, clock);
      assert.is(body.match(/^0123456789/) ? body.length : 0, length);
    });
  }
});

test("a client that leaves frees what waits for it", async () => {
  const clock = new FakeClock();
  let closed = false;
  await serve(
    nodeGateway(rateOf(clock), (_, res) => {
      res.on("close", () => {
        closed = true;
      });
      stream().pipe(res);
    }),
    async (url) => {
      const asked = get(url, { agent: false });
      const [response] = await once(asked, "response");
      response.on("error", () => {});
      asked.on("error", () => {});
      response.destroy();
      for (let i = 0; i < 200 && !closed; i++) await new Promise((next) => setTimeout(next, 5));
      assert.ok(closed);
      await clock.advance(10_000);
    },
  );
});

test("bad options are named", () => {
  const wrong = (options: unknown) => () => limitRate(options as LimitRateOptions);
  assert.throws(wrong({}), /limitRate needs bytesPerSecond or limiter, and not both/);
  assert.throws(wrong({ bytesPerSecond: 0 }), /bytesPerSecond must be a finite number above 0/);
  assert.throws(wrong({ bytesPerSecond: 1, afterBytes: -1 }), /afterBytes must be .* 0 or more/);
  assert.throws(wrong({ bytesPerSecond: 1, actor: 1 }), /actor must be a function, got 1/);
  assert.throws(wrong({ limiter: 1 }), /limiter must be a limiter or a function, got 1/);
  assert.throws(wrong({ rate: 1 }), /options has no "rate"/);
});

test("a paced response asks a stream for more only when its own queue has room", async () => {
  const clock = new FakeClock();
  const CHUNK = 1 << 20;
  let read = 0;
  const source = new Readable({
    highWaterMark: CHUNK,
    read() {
      read += 1;
      this.push(Buffer.alloc(CHUNK));
    },
  });
  const limiter = RateLimiter.create(1_000_000, { clock });
  const rate = limitRate({ limiter });
  const server = createServer(nodeGateway(rate, (_, res: ServerResponse) => source.pipe(res)));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  const [response] = await once(get({ port, host: "127.0.0.1" }), "response");
  response.resume();
  for (let seconds = 0; seconds < 20; seconds++) {
    await clock.advance(1000);
    await new Promise((turn) => setTimeout(turn, 10));
  }
  // 20 MB were sent; more are in the queue and in the buffer of the source
  assert.ok(read <= 24, `${read} chunks of 1 MB were read`);
  response.destroy();
  source.destroy();
  server.close();
});

test.run();
