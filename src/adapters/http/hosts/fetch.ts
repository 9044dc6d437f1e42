/** Handlers that take a `Request` and answer a `Response`: Deno, Bun, Workers, Next and others. */
import { checkFunction } from "../../../check.ts";
import type { Answer } from "../answers/answer.ts";
import type { Field } from "../answers/fields.ts";
import type { Screen } from "../answers/screen.ts";
import type { GatewayRequest } from "../request.ts";
import { Guard, type HostOptions } from "./guard.ts";

export interface FetchHostOptions<Context extends readonly unknown[]> extends HostOptions {
  /**
   * Whose connection it is. A `Request` does not tell; by default it is looked for where Deno, Bun
   * and @hono/node-server put it. On platforms that set a header field of their own:
   * `(request) => request.headers.get("cf-connecting-ip")`.
   *
   * @returns an address; undefined or null where there is none: all such clients are one device
   */
  readonly remoteAddress?:
    | ((request: Request, ...context: Context) => string | null | undefined)
    | undefined;
}

/**
 * A filter in front of a handler in the style of `fetch`.
 *
 * @param gateway what `createGateway` made, or `limitConnections`
 * @param handler gets the requests that pass, and whatever else the platform gives
 * @param options see `FetchHostOptions`
 * @returns a handler
 * @throws RangeError or TypeError that names the option, its bound and what it got
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * Deno.serve(fetchGateway(gateway, () => new Response("hello")));
 */
export function fetchGateway<Context extends readonly unknown[]>(
  gateway: Screen,
  handler: (request: Request, ...context: Context) => Response | Promise<Response>,
  options: FetchHostOptions<Context> = {},
): (request: Request, ...context: Context) => Promise<Response> {
  const guard = new Guard(gateway, options, ["remoteAddress"]);
  checkFunction("handler", handler);
  const { remoteAddress = peerOf } = options;
  checkFunction("remoteAddress", remoteAddress);
  return async (request, ...context) => {
    const seen = new FetchGatewayRequest(
      request,
      () => remoteAddress(request, ...context),
      request,
    );
    const ruling = await guard.ask(seen);
    if (ruling === undefined) return new Response(null, { status: CLIENT_GONE });
    if (ruling.answer !== undefined) return responseOf(ruling.answer);
    try {
      return seen.closing(withFields(await handler(request, ...context), ruling.fields));
    } catch (error) {
      seen.close();
      throw error;
    }
  };
}

/** nginx's number, for its own log: nobody reads it. */
export const CLIENT_GONE = 499;

/** A `Response` takes not even an empty one. */
const WITHOUT_BODY = [204, 205, 304];

export function responseOf({ status, headers, body }: Answer): Response {
  const hasBody = !WITHOUT_BODY.includes(status);
  return new Response(hasBody ? body : null, { status, headers: { ...headers } });
}

/** What was fetched elsewhere has header fields that do not change: it is copied. */
function withFields(response: Response, fields: readonly Field[]): Response {
  try {
    for (const [name, value] of fields) response.headers.set(name, value);
    return response;
  } catch {
    return withFields(new Response(response.body, response), fields);
  }
}

/** A request as the gateway sees it. */
export class FetchGatewayRequest implements GatewayRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: unknown;
  readonly #request: Request;
  readonly #peer: () => string | null | undefined;
  readonly #listeners: (() => void)[] = [];

  constructor(request: Request, peer: () => string | null | undefined, raw: unknown) {
    this.method = request.method;
    this.url = request.url;
    this.raw = raw;
    this.#request = request;
    this.#peer = peer;
  }

  get remoteAddress(): string | undefined {
    return this.#peer() ?? undefined;
  }

  get signal(): AbortSignal {
    return this.#request.signal;
  }

  header(name: string): string | undefined {
    return this.#request.headers.get(name) ?? undefined;
  }

  onClose(closed: () => void): void {
    const { signal } = this.#request;
    if (signal.aborted) {
      closed();
      return;
    }
    if (this.#listeners.push(closed) > 1) return;
    signal.addEventListener("abort", () => this.close(), { once: true });
  }

  close(): void {
    for (const closed of this.#listeners.splice(0)) closed();
  }

  /** The response, whose end is told to those who listen. */
  closing(response: Response): Response {
    if (this.#listeners.length === 0) return response;
    if (response.body === null) {
      this.close();
      return response;
    }
    const close = () => this.close();
    const whole = new TransformStream({ flush: close });
    response.body.pipeTo(whole.writable).catch(close);
    return new Response(whole.readable, response);
  }
}

/** What platforms hand over beside the request, as far as it tells who called. */
interface Platform {
  /** Deno. */
  readonly remoteAddr?: { readonly hostname?: string };
  /** Bun. */
  requestIP?(request: Request): { readonly address: string } | null;
  /** @hono/node-server. */
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } };
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
