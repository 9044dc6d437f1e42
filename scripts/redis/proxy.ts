// A TCP proxy that does to connections what networks do to them.

import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { likelyFreePort } from "./server.ts";

export type Direction = "requests" | "replies" | "both";

// Taken now, because tests replace the global ones by fake ones.
const { setInterval, clearInterval } = globalThis;

interface Connection {
  client: Socket;
  /** None if it was accepted while half open. */
  target?: Socket;
  /** Whatever comes is dropped, in both directions and for ever. */
  deaf: boolean;
}

/** What all connections have in common in one direction. */
class Lane {
  delayMs = 0;
  /** Bytes go on when this resolves. */
  flowing = Promise.resolve();
  release = (): void => {};

  hold(): void {
    this.flowing = new Promise((resolve) => {
      this.release = resolve;
    });
  }
}

/**
 * Made by startProxy. One mode holds at a time: each method but `stop` begins one and ends the one
 * before, and has done so when it resolves. A new proxy is open. It does not keep the process alive.
 */
export class TcpProxy {
  readonly host = "127.0.0.1";
  /** How many connections it has accepted so far. */
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

  /** Lets everything pass, also what was stalled; but what became half open stays so. */
  async open(): Promise<void> {
    this.#endMode();
    await this.#listen();
  }

  /** Each byte arrives `ms` later; with "both", the default, a round trip takes 2 × `ms` more. */
  async delay(ms: number, direction: Direction = "both"): Promise<void> {
    await this.open();
    for (const lane of this.#lanes(direction)) lane.delayMs = ms;
  }

  /** Bytes stop, while connections stay and new ones are accepted. All goes on at `open()`. */
  async stall(direction: Direction = "both"): Promise<void> {
    await this.open();
    for (const lane of this.#lanes(direction)) lane.hold();
  }

  /** Resets every connection and refuses new ones, unless it shall `accept` them. */
  async cut({ accept = false } = {}): Promise<void> {
    this.#endMode();
    if (!accept) this.#refuse();
    this.#reset();
    if (accept) await this.#listen();
  }

  /** No connection, old or new, is ever answered again, not even after `open()`. */
  async halfOpen(): Promise<void> {
    await this.open();
    this.#deaf = true;
    for (const connection of this.#connections) connection.deaf = true;
  }

  /** Cuts and opens in turn, each for `everyMs`, beginning with a cut. */
  async flap(everyMs: number): Promise<void> {
    await this.cut();
    const turn = async () => {
      if (this.#server === undefined) return this.#listen();
      this.#refuse();
      this.#reset();
    };
    this.#flapping = setInterval(() => void turn().catch(() => {}), everyMs).unref();
  }

  /** From now on connections are with another server on this machine; those that there are, are reset. */
  async redirect(targetPort: number): Promise<void> {
    this.#targetPort = targetPort;
    await this.cut({ accept: true });
  }

  /** Resets and refuses all, for good. */
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

/** A socket that is being shut down cannot be reset: it would stay, and Node would wait for it at exit. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** Starts a proxy on a free port before `targetPort` on this machine. */
export async function startProxy(targetPort: number): Promise<TcpProxy> {
  const proxy = new TcpProxy(targetPort);
  await proxy.open();
  return proxy;
}
