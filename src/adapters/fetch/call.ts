/** What can be known of a call of `fetch` before it is sent. */

/** Methods that have the same effect however often a request is sent. */
const IDEMPOTENT = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

type Input = Parameters<typeof fetch>[0];

/** A call of `fetch`, and what can be known of it before it is sent. */
export class Call {
  readonly url: string;
  readonly signal: AbortSignal | undefined;
  /** Whether `fetch` may be called with the same arguments once more. */
  readonly repeatable: boolean;
  /** Whether sending it twice has the same effect as sending it once. */
  readonly idempotent: boolean;
  readonly #copy: () => Request;
  #request: Request | undefined;

  /** @throws TypeError where `fetch` would */
  constructor(input: Input, init?: RequestInit) {
    const from = typeof input === "object" && "headers" in input ? input : undefined;
    const body = init?.body ?? undefined;
    const repeatable = body === undefined ? !from?.body : isRepeatable(body);
    this.#copy = () =>
      new Request(from?.url ?? (input as string | URL), {
        ...(from && { method: from.method, headers: from.headers }),
        ...init,
        signal: null,
        body: repeatable && body !== undefined ? body : null,
      });
    const { url, method, headers } = readPlain(input, init) ?? this.request;
    this.url = url;
    this.signal = (init?.signal === undefined ? from?.signal : init.signal) ?? undefined;
    this.repeatable = repeatable;
    this.idempotent = IDEMPOTENT.includes(method) || headers?.has("idempotency-key") === true;
  }

  /** A copy to inspect: without the signal, and with a body only if the body can be read again. */
  get request(): Request {
    this.#request ??= this.#copy();
    return this.#request;
  }
}

type PlainCall = Pick<Request, "url" | "method"> & { readonly headers?: Headers | undefined };

/** Without a user and a password, which `fetch` refuses in a URL. */
const PLAIN_URL = /^https?:[^@]*$/i;
const MAY_HAVE_TEXT = ["OPTIONS", "DELETE", "POST", "PUT", "PATCH"];
const METHODS = ["GET", "HEAD", ...MAY_HAVE_TEXT];

/**
 * Reads a call that `fetch` surely accepts, without a Request: to create one takes longer than all else
 * that a limited call needs.
 *
 * @returns undefined for a call that only a Request can check
 */
function readPlain(input: Input, init: RequestInit = {}): PlainCall | undefined {
  const { method = "GET", headers, body, signal: _, ...others } = init;
  if (Object.keys(others).length > 0) return undefined;
  if (input instanceof Request) return Object.keys(init).length === 0 ? input : undefined;
  if (typeof input !== "string" && !(input instanceof URL)) return undefined;
  const url = String(input);
  // browsers of before 2024 have no `canParse`
  if (!PLAIN_URL.test(url) || !URL.canParse?.(url)) return undefined;
  const isText = typeof body === "string";
  if (!isText && body !== undefined && body !== null) return undefined;
  if (!(isText ? MAY_HAVE_TEXT : METHODS).includes(method)) return undefined;
  return { url, method, headers: headers && new Headers(headers) };
}

/** Whether the body can be read twice: streams and iterators cannot. */
function isRepeatable(body: NonNullable<RequestInit["body"]>): boolean {
  return (
    typeof body === "string" ||
    body instanceof URLSearchParams ||
    body instanceof FormData ||
    body instanceof Blob ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body)
  );
}

/** The reasons of Node's `fetch` for errors that do not depend on the network. */
const LASTING = /^(?:unknown scheme|bad port|unexpected redirect|redirect count exceeded)/;

/** Whether `fetch` would fail with the same error again: no server was asked. */
export function isLasting(error: unknown, url: string): boolean {
  const { cause } = Object(error) as { readonly cause?: unknown };
  const { message } = Object(cause) as { readonly message?: unknown };
  return !/^https?:/i.test(url) || (typeof message === "string" && LASTING.test(message));
}
