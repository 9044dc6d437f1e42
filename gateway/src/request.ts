/**
 * What the gateway needs to know of a request, independent of the server. Each server adapter
 * creates one, and so does the replay of an access log.
 */
export interface GatewayRequest {
  /** As the client sent it: "GET". */
  readonly method: string;
  /** The request target as the client sent it, neither decoded nor shortened. */
  readonly url: string;
  /** The address of the connection's peer; undefined if there is none. */
  readonly remoteAddress: string | undefined;
  /**
   * Aborted when the request is over: its client has disconnected, or other code has responded. The
   * request then stops waiting.
   */
  readonly signal?: AbortSignal | undefined;
  /** The server's own request, for actors that the application defines. */
  readonly raw?: unknown;

  /**
   * @param name in lower case
   * @returns the field's value, several lines joined by ", "; undefined if there is none
   */
  header(name: string): string | undefined;

  /**
   * Calls back once when the request is over: its response is complete, or its client has
   * disconnected. Absent where the server does not report that.
   */
  onClose?(closed: () => void): void;

  /**
   * Calls back once when the request is answered. Absent where the server does not report that.
   *
   * @param answered receives the status of the response; undefined if the request is over and no
   *   status was sent: its client has disconnected
   */
  onAnswered?(answered: (status: number | undefined) => void): void;
}

/** Receives the error of a function of the application that has failed for a request. */
export type Report = (error: unknown, request: GatewayRequest) => void;

/** A call of `check`: the request, and what receives the errors of the application's functions. */
export interface CheckCall {
  readonly request: GatewayRequest;
  /** Absent: a process warning, once for each function. */
  readonly report?: Report | undefined;
}
