// A TCP proxy that simulates the faults of a network.

import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { likelyFreePort } from "./server.ts";

export type Direction = "requests" | "replies" | "both";

// Kept from the start, because tests replace the global timers by fake ones.
const { setInterval, clearInterval } = globalThis;

interface Connection {
  client: Socket;
  /** Undefined for a connection that was accepted while half open. */
  target?: Socket;
  /** All further bytes are dropped, in both directions. */
  deaf: boolean;
}

/** The state that all connections share in one direction. */
class Lane {
  delayMs = 0;
  /** Bytes are passed on when this resolves. */
  flowing = Promise.resolve();
  release = (): void => {};

  hold(): void {
    this.flowing = new Promise((resolve) => {
      this.release = resolve;
    });
  }
}

/**
 * Made by startProxy. A proxy is in one mode at a time, at first in the mode of `open()`. Each method but
 * `stop` replaces the mode, and resolves when that is done. A proxy does not keep the process alive.
 */
export class TcpProxy {
  readonly host = "127.0.0.1";
  /** The number of connections that the proxy has accepted so far. */
  accepted = 0;
  #targetPort: number;
  readonly #connections = new Set<Connection>();
  readonly #requests = new Lane();
  readonly #replies = new Lane();
  #server: Server | undefined;
  #port = 0;
  #deaf = false;
  #flapping: NodeJS.Timeout | undefined;

  constructor(targetPort: number) {
    this.#targetPort = targetPort;
  }

  get port(): number {
    return this.#port;
  }

  /** `redis://host:port` */
  get url(): string {
    return `redis://${this.host}:${this.port}`;
  }

  /** Passes everything on, stalled bytes included. Connections that became half open stay half open. */
  async open(): Promise<void> {
    this.#endMode();
    await this.#listen();
  }

  /** Delays each byte by `ms`. With "both", the default, a round trip takes 2 × `ms` longer. */
  async delay(ms: number, direction: Direction = "both"): Promise<void> {
    await this.open();
    for (const lane of this.#lanes(direction)) lane.delayMs = ms;
  }

  /** Holds back all bytes until `open()`. Connections stay open and new ones are accepted. */
  async stall(direction: Direction = "both"): Promise<void> {
    await this.open();
    for (const lane of this.#lanes(direction)) lane.hold();
  }

  /** Resets every connection. Refuses new ones, unless `accept` is set. */
  async cut({ accept = false } = {}): Promise<void> {
    this.#endMode();
    if (!accept) this.#refuse();
    this.#reset();
    if (accept) await this.#listen();
  }

  /** Drops all bytes of old and new connections. These connections stay silent even after `open()`. */
  async halfOpen(): Promise<void> {
    await this.open();
    this.#deaf = true;
    for (const connection of this.#connections) connection.deaf = true;
  }

  /** Alternates between `cut()` and `open()` every `everyMs`, beginning with `cut()`. */
  async flap(everyMs: number): Promise<void> {
    await this.cut();
    const turn = async () => {
      if (this.#server === undefined) return this.#listen();
      this.#refuse();
      this.#reset();
    };
    this.#flapping = setInterval(() => void turn().catch(() => {}), everyMs).unref();
  }

  /** Resets every connection, and connects new ones to another server on this machine. */
  async redirect(targetPort: number): Promise<void> {
    this.#targetPort = targetPort;
    await this.cut({ accept: true });
  }

  /** Resets all connections and closes the proxy's port for good. */
  async stop(): Promise<void> {
    await this.cut();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #endMode(): void {
    clearInterval(this.#flapping);
    this.#deaf = false;
    for (const lane of this.#lanes("both")) {
      lane.delayMs = 0;
      lane.release();
    }
  }

  #lanes(direction: Direction): Lane[] {
    if (direction === "both") return [this.#requests, this.#replies];
    return [direction === "requests" ? this.#requests : this.#replies];
  }

  async #listen(): Promise<void> {
    for (let attempt = 1; this.#server === undefined; attempt++) {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
        this.#accept(client),
      );
      this.#server = server.unref();
      try {
        const port = this.#port || likelyFreePort();
        await once(server.listen(port, this.host), "listening");
        this.#port = port;
      } catch (error) {
        this.#server = undefined;
        if (this.#port !== 0 || attempt === 20) throw error;
      }
    }
  }

  #refuse(): void {
    this.#server?.close();
    this.#server = undefined;
  }

  #reset(): void {
    for (const { client, target } of this.#connections) {
      reset(client);
      if (target !== undefined) reset(target);
    }
  }

  #accept(client: Socket): void {
    this.accepted++;
    const connection: Connection = { client: client.unref(), deaf: this.#deaf };
    this.#connections.add(connection);
    client.on("error", () => {});
    client.on("close", () => this.#connections.delete(connection));
    if (connection.deaf) {
      client.resume();
      return;
    }
    const target = connect({
      port: this.#targetPort,
      host: this.host,
      allowHalfOpen: true,
      noDelay: true,
    });
    connection.target = target.unref();
    carry(connection, client, target, this.#requests);
    carry(connection, target, client, this.#replies);
  }
}

function carry(connection: Connection, from: Socket, to: Socket, lane: Lane): void {
  let before: Promise<unknown> = Promise.resolve();
  const inTurn = (deed: () => void) => {
    const due = lane.delayMs > 0 ? sleep(lane.delayMs, undefined, { ref: false }) : undefined;
    before = before
      .then(() => due)
      .then(() => lane.flowing)
      .then(() => connection.deaf || deed());
  };
  from.on("data", (bytes) => inTurn(() => to.write(bytes)));
  from.on("end", () => inTurn(() => to.end()));
  from.on("error", () => inTurn(() => reset(to)));
}

/** Resets a socket. One that is being shut down is destroyed: a reset would fail, and Node would wait for it at exit. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** Starts a proxy on a free port. It connects to `targetPort` on this machine. */
export async function startProxy(targetPort: number): Promise<TcpProxy> {
  const proxy = new TcpProxy(targetPort);
  await proxy.open();
  return proxy;
}
