/** Attacks past the handlers: WebSocket upgrades, CONNECT, and requests that expect 100 Continue. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { connect as connect2, createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect, type Socket } from "node:net";
import { Hono } from "hono";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Checker,
  createGateway,
  fetchGateway,
  type Gateway,
  type HostOptions,
  honoGateway,
  limitConnections,
  nodeGateway,
  readRules,
  upgradeGateway,
} from "../../src/index.ts";
import { allGone, dial, LEAVES, textOf, until } from "../support/http/raw-clients.ts";
import { HOSTS } from "../support/http/servers.ts";

const UPGRADE = { fields: "Connection: Upgrade\r\nUpgrade: websocket\r\n" };
const SWITCHED = "HTTP/1.1 101 ";

function open(text: string, clock = new FakeClock()): Promise<Gateway> {
  return createGateway({ rules: readRules(text), clock });
}

const twice = () =>
  open("url: /\nrules: [{ name: r, actor: device, unit: hour, rpu: 2, algo: W }]");
const line = (clock: FakeClock) =>
  open("url: /\nrules: [{ actor: all, unit: second, rpu: 5, algo: LB, burst: 100 }]", clock);

/** Accepts an upgrade, and sends back the bytes that it receives. */
function echo(_: IncomingMessage, socket: Socket, head: Buffer): void {
  socket.write(`${SWITCHED}Switching Protocols\r\n\r\n`);
  socket.write(head);
  socket.on("error", () => {});
  socket.pipe(socket);
}

interface Listening {
  readonly url: string;
  readonly server: Server;
  /** How many upgrades were checked, or began to wait. */
  readonly asked: () => number;
  readonly upgraded: () => number;
}

async function upgrading(
  checker: Checker,
  attack: (listening: Listening) => Promise<void>,
  options: HostOptions = {},
): Promise<void> {
  const server = createServer().listen(0, "127.0.0.1");
  let asked = 0;
  let upgraded = 0;
  const listener = upgradeGateway(
    checker,
    (req: IncomingMessage, socket: Socket, head) => {
      upgraded += 1;
      echo(req, socket, head);
    },
    options,
  );
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  server.on("upgrade", listener).on("connect", listener);
  server.on("upgrade", () => {
    asked += 1;
  });
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await attack({ url, server, asked: () => asked, upgraded: () => upgraded });
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

/** Sends a request for an upgrade or a tunnel. @returns the client */
async function ask(listening: { url: string }, asked: Parameters<typeof textOf>[0] = UPGRADE) {
  const client = await dial(listening);
  let isClosed = false;
  client.socket.on("close", () => {
    isClosed = true;
  });
  client.socket.write(textOf(asked));
  return { ...client, isClosed: () => isClosed };
}

for (const [name, host] of Object.entries(HOSTS)) {
  const test = suite(`upgrades, ${name}`);

  test("upgrades and requests to the same gateway count together", async () => {
    const gateway = await twice();
    const running = await host(gateway);
    running.server.on("upgrade", upgradeGateway(gateway, echo));
    try {
      const request = await ask(running, {});
      await until("it is answered", () => request.received().includes("hello"));
      const socket = await ask(running);
      await until("it is upgraded", () => socket.received().startsWith(SWITCHED));
      const refused = await ask(running);
      await until("it is refused", () => refused.received().startsWith("HTTP/1.1 429"));
      await until("its socket is closed", refused.isClosed);
      socket.socket.destroy();
      request.socket.destroy();
    } finally {
      await running.close();
      await gateway.close();
    }
  });

  test.run();
}

const test = suite("upgrades");

test("a refused upgrade gets the answer of a refused request, and its socket is closed", async () => {
  const checker: Checker = { check: () => ({ allowed: false, retryMs: 2000, outcomes: [] }) };
  for (const asked of [UPGRADE, { method: "CONNECT", path: "example.com:443" }]) {
    await upgrading(checker, async (listening) => {
      const { received, isClosed } = await ask(listening, asked);
      await until("the server has closed", isClosed);
      const [head = "", body = ""] = received().split("\r\n\r\n");
      assert.match(head, /^HTTP\/1.1 429 Too Many Requests\r\n/);
      assert.match(head, /\r\nretry-after: 2(\r|$)/i);
      assert.match(head, /\r\nconnection: close/i);
      assert.match(head, new RegExp(`\r\ncontent-length: ${body.length}`, "i"));
      assert.is(JSON.parse(body).title, "Too many requests");
      await allGone(listening.server);
      assert.is(listening.upgraded(), 0);
    });
  }
});

test("the socket of a refused client is closed even if the client keeps its side open", async () => {
  await upgrading(limitConnections(1), async ({ url, server }) => {
    const port = Number(new URL(url).port);
    const open = () =>
      connect({ port, allowHalfOpen: true })
        .resume()
        .on("error", () => {});
    const sockets = [open(), open(), open()];
    for (const socket of sockets) socket.write(textOf(UPGRADE));
    const openOnes = () => sockets.filter(({ readableEnded }) => !readableEnded);
    await until("two are refused", () => openOnes().length === 1);
    for (const socket of openOnes()) socket.destroy();
    await allGone(server);
    for (const socket of sockets) socket.destroy();
  });
});

test("the rules of / apply to CONNECT", async () => {
  await upgrading(await twice(), async (listening) => {
    const tunnel = { method: "CONNECT", path: "example.com:443" };
    for (const status of [101, 101, 429]) {
      const { received } = await ask(listening, tunnel);
      await until("it is answered", () => received().startsWith(`HTTP/1.1 ${status} `));
    }
  });
});

test("a WebSocket keeps its place until either side closes its socket", async () => {
  for (const leave of Object.values(LEAVES)) {
    await upgrading(limitConnections(1), async (listening) => {
      const first = await ask(listening);
      await until("it is upgraded", () => first.received().startsWith(SWITCHED));
      const second = await ask(listening);
      await until("it is refused", () => second.received().startsWith("HTTP/1.1 429"));
      leave(first.socket);
      await allGone(listening.server);
      const third = await ask(listening);
      await until("its place is free", () => third.received().startsWith(SWITCHED));
      assert.is(listening.upgraded(), 2);
    });
  }
});

for (const [how, leave] of Object.entries(LEAVES)) {
  test(`upgrades wait in a line, and their client ${how}`, async () => {
    const clock = new FakeClock();
    const gateway = await line(clock);
    await upgrading(gateway, async (listening) => {
      const first = await ask(listening);
      await until("it is upgraded", () => first.received().startsWith(SWITCHED));
      first.socket.destroy();
      const gone = await Promise.all(Array.from({ length: 20 }, () => ask(listening)));
      await until("all wait in the line", () => listening.asked() === 21);
      for (const { socket } of gone) leave(socket);
      await allGone(listening.server);
      const next = await ask(listening);
      await until("the next waits, too", () => listening.asked() === 22);
      assert.is(next.received(), "");
      await clock.advance(200);
      await until("the next is upgraded", () => next.received().startsWith(SWITCHED));
      assert.is(listening.upgraded(), 2);
    });
    await gateway.close();
  });
}

test("bytes that a client sends while it waits reach the handler, and are bounded", async () => {
  const clock = new FakeClock();
  const gateway = await line(clock);
  await upgrading(gateway, async (listening) => {
    await ask(listening);
    const early = await ask(listening, { ...UPGRADE, body: "a" });
    await until("both were asked", () => listening.asked() === 2);
    early.socket.write("b");
    const flood = await ask(listening);
    flood.socket.write("x".repeat(1_000_000));
    await until("the flood is cut off", flood.isClosed);
    assert.is(flood.received(), "");
    await clock.advance(200);
    await until("it is upgraded", () => early.received().endsWith("\r\n\r\nab"));
    early.socket.write("c");
    await until("the handler reads on", () => early.received().endsWith("\r\n\r\nabc"));
  });
  await gateway.close();
});

test("after a failed check an upgrade is handled by the option onError", async () => {
  const check = () => Promise.reject(new Error("tea"));
  const statuses: Record<string, HostOptions["onError"]> = {
    "HTTP/1.1 101 ": "allow",
    "HTTP/1.1 503 ": "refuse",
    "HTTP/1.1 500 ": (error) => {
      throw error;
    },
  };
  for (const [status, onError] of Object.entries(statuses)) {
    const attack = async (listening: Listening) => {
      const { received } = await ask(listening);
      await until(`the answer is ${status}`, () => received().startsWith(status));
    };
    await upgrading({ check }, attack, { onError });
  }
  assert.throws(
    () => upgradeGateway({ check }, "echo" as never),
    /handler must be a function, got "echo"/,
  );
});

test("CONNECT over HTTP/2 is a request: nodeGateway limits it", async () => {
  const gateway = await twice();
  const listener = nodeGateway(gateway, (_, res) => res.end("tunnel"));
  const server = createHttp2Server(listener as never);
  server.on("connect", listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const statuses: unknown[] = [];
  for (let i = 0; i < 3; i++) {
    const stream = session.request({ ":method": "CONNECT", ":authority": "example.com:443" });
    const [headers] = await once(stream, "response");
    statuses.push(headers[":status"]);
    stream.destroy();
  }
  assert.equal(statuses, [200, 200, 429]);
  session.destroy();
  server.close();
});

test("an upload that expects 100 Continue is refused before its body is asked for", async () => {
  const gateway = await twice();
  const listener = nodeGateway(gateway, (req: IncomingMessage, res: ServerResponse) => {
    res.writeContinue();
    req.resume().on("end", () => res.end("hello"));
  });
  const server = createServer(listener).on("checkContinue", listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fields = "Expect: 100-continue\r\nContent-Length: 5\r\n";
  for (const status of [100, 100, 429]) {
    const { socket, received } = await ask({ url }, { method: "PUT", fields });
    await until("it is answered", () => received().startsWith(`HTTP/1.1 ${status} `));
    socket.destroy();
  }
  server.close();
});

const URL_ = "http://localhost/socket";

test("the answer to an upgrade of Deno or Workers, which cannot be changed, goes out as it is", async () => {
  const gateway = await twice();
  const headers = Response.redirect("http://localhost/", 302).headers;
  const upgrade = () => {
    const response = new Response(null);
    Object.defineProperty(response, "status", { value: 101 });
    Object.defineProperty(response, "headers", { value: headers });
    return response;
  };
  const made = upgrade();
  const handle = fetchGateway(gateway, () => made);
  assert.is(await handle(new Request(URL_)), made);
  const app = new Hono();
  app.use(honoGateway(gateway));
  app.get("/socket", upgrade);
  assert.is((await app.request(URL_)).status, 101);
  assert.is((await handle(new Request(URL_))).status, 429);
});

test("on Bun a handler answers nothing once it has upgraded", async () => {
  const checker = limitConnections(1);
  const handle = fetchGateway(checker, () => undefined);
  assert.is(await handle(new Request(URL_)), undefined);
  assert.is(await handle(new Request(URL_)), undefined);
});

test("a WebSocket of @hono/node-ws keeps its place until its socket closes", async () => {
  const app = new Hono();
  app.use(honoGateway(limitConnections(1)));
  app.get("/socket", () => new Response());
  const server = createServer().listen(0, "127.0.0.1");
  const sockets: Socket[] = [];
  const statuses: number[] = [];
  server.on("upgrade", async (incoming: IncomingMessage, socket: Socket) => {
    sockets.push(socket);
    // the same call as in its injectWebSocket
    const { status } = await app.request(URL_, {}, { incoming, outgoing: undefined } as object);
    statuses.push(status);
  });
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await ask({ url });
  await until("the first is answered", () => statuses.length === 1);
  await ask({ url });
  await until("the second is answered", () => statuses.length === 2);
  for (const socket of sockets) socket.destroy();
  await allGone(server);
  const { socket } = await ask({ url });
  await until("the third is answered", () => statuses.length === 3);
  assert.equal(statuses, [200, 429, 200]);
  socket.destroy();
  sockets.at(-1)?.destroy();
  server.close();
});

test.run();
