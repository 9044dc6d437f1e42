/** Upgrades to WebSockets and CONNECT: Node hands these to listeners of their own, past all handlers. */
import { STATUS_CODES } from "node:http";
import { checkFunction } from "../../../check.ts";
import { type Answer, failure } from "../answers/answer.ts";
import type { Screen } from "../answers/screen.ts";
import { Guard, type HostOptions, type Ruling } from "./guard.ts";
import { NodeGatewayRequest, type NodeRequest } from "./node.ts";

/** What is needed of a `net.Socket`. */
export interface UpgradeSocket {
  readonly destroyed: boolean;
  read(): Uint8Array | null;
  end(text: string): unknown;
  destroy(): unknown;
  on(event: "readable" | "end" | "error" | "finish", listener: () => void): unknown;
  off(event: "readable" | "end", listener: () => void): unknown;
}

/** What a client may send before its handshake is answered, bytes. */
const LONGEST_HEAD = 64 * 1024;

/**
 * A filter in front of a listener of the events "upgrade" and "connect" of a server of Node's, which
 * also serve below Express, Koa and others: no middleware sees these requests. A refused client gets
 * its answer on the socket, which is then closed. One that passes counts for `limitConnections` as
 * long as its socket is open. The handler writes the answer to the handshake itself, so it carries no
 * header fields of the filter.
 *
 * Not for HTTP/2, where `nodeGateway` is a listener of "connect".
 *
 * @param gateway what `createGateway` made, or `limitConnections`
 * @param handler gets the upgrades that pass
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
  gateway: Screen,
  handler: (req: Req, socket: Socket, head: Buffer) => unknown,
  options: HostOptions = {},
): (req: Req, socket: Socket, head: Buffer) => void {
  const guard = new Guard(gateway, options);
  checkFunction("handler", handler);
  return (req, socket, head) => {
    const go = (ruling: Ruling, whole: Buffer) => {
      if (ruling === undefined || socket.destroyed) socket.destroy();
      else if (ruling.answer !== undefined) send(ruling.answer, socket);
      else handler(req, socket, whole);
    };
    const ruling = guard.ask(new NodeGatewayRequest(req, undefined, req.url), req);
    if (!(ruling instanceof Promise)) {
      go(ruling, head);
      return;
    }
    const received = receive(socket, head);
    void ruling.catch((): Ruling => ({ answer: failure() })).then((late) => go(late, received()));
  };
}

/**
 * Reads a socket that waits. Nothing else does, and Node reports neither that the client has gone nor
 * an error of the socket to anything but a reader and a listener: the error would end the process.
 *
 * @returns stops reading, and returns all that was received so far
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

/** The socket is destroyed afterwards: a client that keeps its end open would keep it. */
function send({ status, headers, body }: Answer, socket: UpgradeSocket): void {
  const close = () => void socket.destroy();
  socket.on("error", close);
  socket.on("finish", close);
  const fields = new Headers(headers);
  fields.set("Connection", "close");
  fields.set("Content-Length", String(Buffer.byteLength(body)));
  const lines = Array.from(fields, ([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n${body}`);
}
