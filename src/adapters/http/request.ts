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
  /** Aborted when the client goes away: it then leaves the lines in which it waits. */
  readonly signal?: AbortSignal | undefined;
  /** The server's own request, for actors that the application defines. */
  readonly raw?: unknown;

  /**
   * @param name in lower case
   * @returns the field's value, several lines joined by ", "; undefined if there is none
   */
  header(name: string): string | undefined;

  /**
   * Calls back once when the answer is over, whatever became of it. Absent where nobody can tell.
   */
  onClose?(closed: () => void): void;
}
