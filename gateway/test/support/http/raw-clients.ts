/** Clients over HTTP/1.1 and HTTP/2 that send raw requests and can disconnect at any time. */
import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connect2,
  type Settings,
} from "node:http2";
import { connect, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import * as assert from "uvu/assert";

interface Server1 {
  readonly url: string;
}

/** An attacker's request. */
export interface Asked {
  readonly method?: string;
  readonly path?: string;
  /** The lines of header fields, each with its line end. */
  readonly fields?: string;
  readonly body?: string;
}

export function textOf({ method = "GET", path = "/hello", fields = "", body = "" }: Asked): string {
  return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${fields}\r\n${body}`;
}

/** Opens a socket. Its errors are ignored; `received` returns the text that has arrived. */
export async function dial({ url }: Server1): Promise<{ socket: Socket; received: () => string }> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
  });
  await once(socket, "connect");
  return { socket, received: () => text };
}

/** Opens a socket and sends the same request so many times in one packet. */
export async function pipeline(server: Server1, count: number, asked: Asked = {}): Promise<Socket> {
  const { socket } = await dial(server);
  socket.write(textOf(asked).repeat(count));
  return socket;
}

/** Sends several requests, one after the other on one socket. @returns the status of each */
export async function oneByOne(server: Server1, count: number, asked: Asked): Promise<number[]> {
  const { socket, received } = await dial(server);
  const statuses = () =>
    Array.from(received().matchAll(/HTTP\/1.1 (\d+)/g), ([, code]) => +`${code}`);
  for (let i = 1; i <= count; i++) {
    socket.write(textOf(asked));
    await until(`answer ${i} has come`, () => statuses().length === i);
  }
  socket.destroy();
  return statuses();
}

/** The ways in which a client disconnects over HTTP/1.1. */
export const LEAVES: Readonly<Record<string, (socket: Socket) => void>> = {
  closes: (socket) => void socket.destroy(),
  "closes its sending side": (socket) => void socket.end(),
  "resets the connection": (socket) => void socket.resetAndDestroy(),
};

/** An HTTP/2 session with open streams. */
export interface Streams {
  readonly session: ClientHttp2Session;
  readonly socket: Socket;
  readonly streams: readonly ClientHttp2Stream[];
}

/** @param settings of the session: with `initialWindowSize: 0` the client accepts no body */
export async function openStreams(
  { url }: Server1,
  count: number,
  { method = "GET", path = "/hello", body }: Asked = {},
  settings: Settings = {},
): Promise<Streams> {
  const { socket } = await dial({ url });
  const session = connect2(url, { createConnection: () => socket, settings });
  session.on("error", () => {});
  await once(session, "connect");
  const streams = Array.from({ length: count }, () => {
    const stream = session.request(
      { ":method": method, ":path": path },
      { endStream: body === undefined },
    );
    stream.on("error", () => {});
    stream.resume();
    if (body !== undefined) stream.write(body);
    return stream;
  });
  return { session, socket, streams };
}

/** The ways in which a client disconnects over HTTP/2. */
export const LEAVES_2: Readonly<Record<string, (client: Streams) => void>> = {
  "resets its streams (CANCEL)": ({ streams }) => streams.forEach((stream) => void stream.close(8)),
  "resets its streams (NO_ERROR)": ({ streams }) => streams.forEach((one) => void one.close(0)),
  "says GOAWAY and leaves": ({ session }) => {
    session.goaway();
    session.destroy();
  },
  "closes the socket": ({ socket }) => void socket.destroy(),
};

/** Sends several requests, one after the other in one session. @returns the status of each */
export async function oneByOne2(server: Server1, count: number, asked: Asked): Promise<number[]> {
  const { session } = await openStreams(server, 0);
  const statuses: number[] = [];
  for (let i = 0; i < count; i++) {
    const { method = "GET", path = "/hello" } = asked;
    const stream = session.request({ ":method": method, ":path": path }).resume();
    const [headers] = await once(stream, "response");
    statuses.push(Number(headers[":status"]));
    if (!stream.closed) await once(stream, "close");
  }
  session.destroy();
  return statuses;
}

export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; !(await holds()); i++) {
    assert.ok(i < 3000, `it never happened: ${what}`);
    await sleep(1);
  }
}

/** Waits until the server has noticed and handled that its clients have gone. */
export async function allGone(server: Server): Promise<void> {
  await until("the server's sockets are closed", async () => (await connectionsOf(server)) === 0);
  await sleep(5);
}

/** Waits until the server has noticed that the client has closed its session or its streams. */
export async function hasLeft({ session, socket }: Streams, server: Server): Promise<void> {
  if (session.destroyed || socket.destroyed) {
    await allGone(server);
    return;
  }
  // frames are handled in order
  await new Promise<void>((answered) => void session.ping(() => answered()));
  await sleep(5);
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
  });
}
