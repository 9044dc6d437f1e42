/** The requests and responses of Node, as far as they are used here. */
import type { ClosingResponse, ConnectedRequest } from "./lifetime.ts";

/** The used members of an `http.IncomingMessage`, or of an `http2.Http2ServerRequest`. */
export interface NodeRequest extends ConnectedRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

/** A response that shows its status. */
export interface AnsweringResponse extends ClosingResponse {
  readonly statusCode: number;
  readonly headersSent: boolean;
}

/** The used members of an `http.ServerResponse`, or of an `http2.Http2ServerResponse`. */
export interface NodeResponse extends AnsweringResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}
