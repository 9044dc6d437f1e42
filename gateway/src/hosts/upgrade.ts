/** Filters WebSocket upgrades and CONNECT, which Node passes to separate listeners. */
import { STATUS_CODES } from "node:http";
import type { Checker } from "../answers/checker.ts";
import { checkFunction } from "../ground/check.ts";
import type { Host } from "./host.ts";
import { gatewayFilter, type HostOptions } from "./host-filter.ts";
import type { NodeRequest } from "./node-messages.ts";
import { NodeGatewayRequest } from "./node-request.ts";

/** The members of a `net.Socket` that are used here. */
export interface UpgradeSocket {
  readonly destroyed: boolean;
  read(): Uint8Array | null;
  end(text: string): unknown;
  destroy(): unknown;
  on(event: "readable" | "end" | "error" | "finish", listener: () => void): unknown;
  off(event: "readable" | "end", listener: () => void): unknown;
}

/** How much a client may send before its handshake is answered, bytes. */
const LONGEST_HEAD = 64 * 1024;

/**
 * Wraps a listener of the events "upgrade" and "connect" of a Node server with a filter, also below
 * Express, Koa and others: their middleware does not see these requests. A refused client gets its
 * response on the socket, which is then closed. A granted upgrade counts for `limitConnections` as
 * long as its socket is open. The handler itself writes the handshake response, so that response
 * has no header fields of the filter.
 *
 * Not for HTTP/2, where `nodeGateway` is a listener of "connect".
 *
 * @param gateway from `createGateway` or `limitConnections`
 * @param handler receives the upgrades that pass
 * @param options see `HostOptions`
 * @returns a listener
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const sockets = new WebSocketServer({ noServer: true });
 * const upgrade = (req, socket, head) =>
 *   sockets.handleUpgrade(req, socket, head, (ws) => sockets.emit("connection", ws, req));
 * server.on("upgrade", upgradeGateway(gateway, upgrade));
 */
export function upgradeGateway<Req extends NodeRequest, Socket extends UpgradeSocket>(
  gateway: Checker,
  handler: (req: Req, socket: Socket, head: Buffer) => unknown,
  options: HostOptions = {},
): (req: Req, socket: Socket, head: Buffer) => void {
  const filter = gatewayFilter(HOST, gateway, options);
  checkFunction("handler", handler);
  return (req, socket, head) => {
    const call: Call = {
      req,
      socket,
      received: () => head,
      pass: (whole) => void handler(req, socket, whole),
    };
    if (filter.serve(call) instanceof Promise) call.received = receive(socket, head);
  };
}

interface Call {
  readonly req: NodeRequest;
  readonly socket: UpgradeSocket;
  /** Ends the reading of the socket, and returns all that was received before the handshake is answered. */
  received: () => Buffer;
  pass(received: Buffer): void;
}

const HOST: Host<Call> = {
  request: ({ req }) => new NodeGatewayRequest(req, undefined, req.url),
  isAnswered: ({ socket }) => socket.destroyed,
  pass: (call) => call.pass(call.received()),
  answer(call, { status, headers, body }) {
    call.received();
    const { socket } = call;
    // destroyed afterwards: otherwise a client could keep it open
    const close = () => void socket.destroy();
    socket.on("error", close);
    socket.on("finish", close);
    const fields = new Headers(headers);
    fields.set("Connection", "close");
    fields.set("Content-Length", String(Buffer.byteLength(body)));
    const lines = Array.from(fields, ([name, value]) => `${name}: ${value}\r\n`);
    socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n${body}`);
  },
  drop: ({ socket }) => void socket.destroy(),
};

/**
 * Reads the socket of a waiting upgrade. Without a reader Node does not report that the client has
 * disconnected, and without a listener an error of the socket would end the process.
 *
 * @returns a function that stops reading and returns all that was received so far
 */
function receive(socket: UpgradeSocket, head: Buffer): () => Buffer {
  const chunks: Uint8Array[] = [head];
  let length = head.length;
  const look = () => {
    for (let chunk = socket.read(); chunk !== null; chunk = socket.read()) {
      chunks.push(chunk);
      length += chunk.length;
    }
    if (length > LONGEST_HEAD) socket.destroy();
  };
  const gone = () => void socket.destroy();
  socket.on("readable", look);
  socket.on("end", gone);
  socket.on("error", gone);
  return () => {
    socket.off("readable", look);
    socket.off("end", gone);
    return chunks.length === 1 ? head : Buffer.concat(chunks);
  };
}
