/** What can be known of a call of `fetch` before it is sent. */

/** Methods that have the same effect however often a request is sent. */
const IDEMPOTENT = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

export interface Call {
  /** A copy to inspect: without the signal, and with a body only if the body can be read again. */
  readonly request: Request;
  readonly signal: AbortSignal | undefined;
  /** Whether `fetch` may be called with the same arguments once more. */
  readonly repeatable: boolean;
  /** Whether sending it twice has the same effect as sending it once. */
  readonly idempotent: boolean;
}

/** @throws TypeError where `fetch` would */
export function readCall(input: Parameters<typeof fetch>[0], init: RequestInit = {}): Call {
  const from = typeof input === "object" && "headers" in input ? input : undefined;
  const body = init.body ?? undefined;
  const repeatable = body === undefined ? !from?.body : isRepeatable(body);
  const request = new Request(from?.url ?? (input as string | URL), {
    ...(from && { method: from.method, headers: from.headers }),
    ...init,
    signal: null,
    body: repeatable && body !== undefined ? body : null,
  });
  const signal = init.signal === undefined ? from?.signal : init.signal;
  return {
    request,
    signal: signal ?? undefined,
    repeatable,
    idempotent: IDEMPOTENT.includes(request.method) || request.headers.has("idempotency-key"),
  };
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
