/** A framework of a few lines, for the adapter beside it: a handler gets a context and returns the body. */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";

export interface Context {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

/** @returns undefined if there is nothing to send */
export type Handler = (context: Context) => string | undefined | Promise<string | undefined>;

export function serve(handler: Handler): RequestListener {
  return async (req, res) => {
    let body: string | undefined = "it failed";
    try {
      body = await handler({ req, res });
    } catch {
      res.statusCode = 500;
    }
    if (body !== undefined) res.end(body);
  };
}
