/**
 * When a request that Node serves is over: its answer is complete, or its client has gone.
 *
 * No single event says so. The response emits "close" when its answer is complete, but when a
 * socket closes only the response at the head of a pipeline does. The request emits "close" as soon
 * as its body has been read. An HTTP/2 response has no `closed`, and its `writableFinished` is true
 * after a reset. So a request is over when its response closes or when its connection does: the
 * socket, or the request's own stream under HTTP/2.
 */

/** What is needed of a socket, or of an HTTP/2 stream. */
export interface NodeConnection {
  readonly remoteAddress?: string | undefined;
  readonly destroyed?: boolean | undefined;
  once?(event: "close", listener: () => void): unknown;
}

/** What is needed of a request to know its connection. */
export interface ConnectedRequest {
  readonly httpVersionMajor?: number | undefined;
  /** Absent from requests that some serverless platforms imitate. */
  readonly socket?: NodeConnection | undefined;
  /** Under HTTP/2. */
  readonly stream?: NodeConnection | undefined;
}

/** What is needed of a response to know its end. */
export interface ClosingResponse {
  readonly closed: boolean;
  once(event: "close", listener: () => void): unknown;
}

/** The socket of an HTTP/2 session outlives its streams. */
function connectionOf(req: ConnectedRequest): NodeConnection | undefined {
  const { httpVersionMajor, socket, stream } = req;
  return httpVersionMajor === 2 && stream !== undefined ? stream : socket;
}

/** @param res absent for an upgrade: such a request lasts as long as its socket */
export function isOver(req: ConnectedRequest, res: ClosingResponse | undefined): boolean {
  return res?.closed === true || connectionOf(req)?.destroyed === true;
}

/** Calls back once when the request is over: at once if it is over already. */
export function whenOver(
  req: ConnectedRequest,
  res: ClosingResponse | undefined,
  over: () => void,
): void {
  if (isOver(req, res)) {
    over();
    return;
  }
  const connection = connectionOf(req);
  const open: Ends = connection === undefined ? new Set() : openOn(connection);
  const end = () => {
    if (open.delete(end)) over();
  };
  open.add(end);
  res?.once("close", end);
}

/** Aborted when the request is over. */
export function overSignal(req: ConnectedRequest, res: ClosingResponse | undefined): AbortSignal {
  const controller = new AbortController();
  whenOver(req, res, () => controller.abort());
  return controller.signal;
}

type Ends = Set<() => void>;

const connections = new WeakMap<NodeConnection, Ends>();

/**
 * What to call when a connection closes. It has one listener for all its requests: Node warns of a
 * leak when a socket has more than ten, and a pipeline may be longer than that.
 */
function openOn(connection: NodeConnection): Ends {
  const known = connections.get(connection);
  if (known !== undefined) return known;
  const ends: Ends = new Set();
  connections.set(connection, ends);
  connection.once?.("close", () => {
    for (const end of ends) end();
  });
  return ends;
}
