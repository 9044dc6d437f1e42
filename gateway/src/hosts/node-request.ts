import type { HostRequest } from "./host.ts";
import { isOver, overSignal, whenOver } from "./lifetime.ts";
import type { AnsweringResponse, NodeRequest } from "./node-messages.ts";

/** The gateway's view of a request. The signal is created on demand, because few requests wait. */
export class NodeGatewayRequest implements HostRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: unknown;
  /** Node's own request, which frameworks wrap. */
  readonly carrier: NodeRequest;
  readonly #res: AnsweringResponse | undefined;
  #signal: AbortSignal | undefined;

  /**
   * @param res absent for an upgrade, which lasts as long as its socket
   * @param url as the client sent it: some servers remove the part that a router has matched
   * @param raw the server's own request
   */
  constructor(
    req: NodeRequest,
    res: AnsweringResponse | undefined,
    url: string | undefined,
    raw: unknown = req,
  ) {
    this.method = req.method ?? "GET";
    this.url = url ?? "/";
    this.raw = raw;
    this.carrier = req;
    this.#res = res;
  }

  get remoteAddress(): string | undefined {
    return this.carrier.socket?.remoteAddress;
  }

  get signal(): AbortSignal {
    this.#signal ??= overSignal(this.carrier, this.#res);
    return this.#signal;
  }

  get isOver(): boolean {
    return isOver(this.carrier, this.#res);
  }

  header(name: string): string | undefined {
    const value = this.carrier.headers[name];
    return typeof value === "object" ? value.join(", ") : value;
  }

  onClose(closed: () => void): void {
    whenOver(this.carrier, this.#res, closed);
  }

  onAnswered(answered: (status: number | undefined) => void): void {
    const res = this.#res;
    whenOver(this.carrier, res, () => answered(res?.headersSent ? res.statusCode : undefined));
  }
}
