/** What can be known of a call of `fetch` before it is made. */

/** Methods that have the same effect however often they are made. */
const IDEMPOTENT = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

export interface Call {
  /** To look at: it has no signal, and its body only if that can be read again. */
  readonly request: Request;
  readonly signal: AbortSignal | undefined;
  /** Whether the same arguments may be given to `fetch` once more. */
  readonly repeatable: boolean;
  /** Whether making it twice has the effect of making it once. */
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

/** Whether it can be read twice: not a stream, nor anything else that is read bit by bit. */
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
