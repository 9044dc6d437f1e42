/**
 * What the gateway asks of a request, whatever server it came to: an adapter for a server makes
 * one, and so does a replay of an access log.
 */
export interface GatewayRequest {
  /** As the client sent it: "GET". */
  readonly method: string;
  /** The request target as the client sent it: nothing decoded, nothing cut off. */
  readonly url: string;
  /** The address of whoever holds the other end of the connection; undefined if there is none. */
  readonly remoteAddress: string | undefined;
  /**
   * Aborted when the request is over: its client has gone, or something else has answered it. It
   * then leaves the lines in which it waits.
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
   * Calls back once when the request is over: its answer is complete, or its client has gone. Absent
   * where the server does not report that.
   */
  onClose?(closed: () => void): void;
}
