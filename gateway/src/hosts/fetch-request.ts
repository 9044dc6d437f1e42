import { CLIENT_GONE, type HostRequest } from "./host.ts";
import { isOver, overSignal, whenOver } from "./lifetime.ts";
import type { NodeRequest, NodeResponse } from "./node-messages.ts";

/** The gateway's view of a `Request`. */
export class FetchGatewayRequest implements HostRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: object;
  readonly #request: Request;
  readonly #peer: () => string | null | undefined;
  readonly #context: readonly unknown[];
  readonly #listeners: (() => void)[] = [];
  readonly #answered: ((status: number | undefined) => void)[] = [];
  #signal: AbortSignal | undefined;

  /** @param context the platform's argument beside the request */
  constructor(
    request: Request,
    peer: () => string | null | undefined,
    raw: object,
    context: readonly unknown[],
  ) {
    this.method = request.method;
    this.url = request.url;
    this.raw = raw;
    this.#request = request;
    this.#peer = peer;
    this.#context = context;
  }

  get carrier(): object {
    return this.raw;
  }

  get remoteAddress(): string | undefined {
    return this.#peer() ?? undefined;
  }

  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      const served = servedBy(this.#context);
      this.#signal = served ? overSignal(served.req, served.res) : this.#request.signal;
    }
    return this.#signal;
  }

  get isOver(): boolean {
    const served = servedBy(this.#context);
    return served ? isOver(served.req, served.res) : this.#request.signal.aborted;
  }

  header(name: string): string | undefined {
    // `Headers` throws an error for the fields of HTTP/2 that begin with a colon
    return name.startsWith(":") ? undefined : (this.#request.headers.get(name) ?? undefined);
  }

  /**
   * Uses the platform's own report where it exists, otherwise the signal and the end of the body.
   */
  onClose(closed: () => void): void {
    const served = servedBy(this.#context);
    if (served !== undefined) {
      whenOver(served.req, served.res, closed);
      return;
    }
    const completed = completionOf(this.#context);
    if (completed !== undefined) {
      completed.then(closed, closed);
      return;
    }
    const { signal } = this.#request;
    if (signal.aborted) {
      closed();
      return;
    }
    if (this.#listeners.push(closed) > 1) return;
    signal.addEventListener("abort", () => this.close(), { once: true });
  }

  /** The status is known when the handler has returned, even if the client disconnects meanwhile. */
  onAnswered(answered: (status: number | undefined) => void): void {
    this.#answered.push(answered);
  }

  close(): void {
    for (const closed of this.#listeners.splice(0)) closed();
  }

  /** The handler, or `onError`, has thrown: the platform responds with a server error. */
  fail(): void {
    this.#answer(500);
    this.close();
  }

  /** The client disconnected before the request was served. @returns a response that no client receives */
  gone(): Response {
    this.#answer(undefined);
    this.close();
    return new Response(null, { status: CLIENT_GONE });
  }

  #answer(status: number | undefined): void {
    for (const answered of this.#answered.splice(0)) answered(status);
  }

  /**
   * Returns the response; where the end of the request is not reported, the end of its body counts.
   */
  closing<R extends Response>(response: R): R | Response {
    this.#answer(response.status);
    if (this.#listeners.length === 0) return response;
    // the body of a response to HEAD is never read
    if (response.body === null || this.method === "HEAD") {
      this.close();
      return response;
    }
    const close = () => this.close();
    const whole = new TransformStream({ flush: close });
    const failed = (error: unknown) => {
      close();
      // a body that other code has read already cannot be piped: it must not seem to have no end
      return whole.writable.abort(error);
    };
    response.body
      .pipeTo(whole.writable)
      .catch(failed)
      .catch(() => {});
    return new Response(whole.readable, response);
  }
}

/**
 * The platforms' arguments beside the request: the client's address, and the end of the request.
 */
interface Platform {
  /** Deno. */
  readonly remoteAddr?: { readonly hostname?: string };
  readonly completed?: Promise<unknown>;
  /** Bun. */
  requestIP?(request: Request): { readonly address: string } | null;
  /** @hono/node-server. */
  readonly incoming?: Partial<NodeRequest>;
  readonly outgoing?: NodeResponse;
}

/** Node's own request: on @hono/node-server, and for a WebSocket on @hono/node-ws. */
function servedBy(
  context: readonly unknown[],
): { readonly req: NodeRequest; readonly res: NodeResponse | undefined } | undefined {
  for (const each of context) {
    const { incoming, outgoing } = Object(each) as Platform;
    if (incoming?.socket === undefined) continue;
    const req = incoming as NodeRequest;
    if (outgoing !== undefined || req.headers?.upgrade !== undefined) return { req, res: outgoing };
  }
  return undefined;
}

function completionOf(context: readonly unknown[]): Promise<unknown> | undefined {
  for (const each of context) {
    const { completed } = Object(each) as Platform;
    if (completed instanceof Promise) return completed;
  }
  return undefined;
}

export function peerOf(request: Request, ...context: readonly unknown[]): string | undefined {
  for (const each of context) {
    const platform = Object(each) as Platform;
    const address =
      platform.remoteAddr?.hostname ??
      platform.requestIP?.(request)?.address ??
      platform.incoming?.socket?.remoteAddress;
    if (address !== undefined) return address;
  }
  return undefined;
}
