/**
 * Detects when a request that Node serves is over: its response is complete, or its client has
 * disconnected.
 *
 * No single event reports this. The response emits "close" when it is complete; but when a socket
 * closes, only the first response of a pipeline does. The request emits "close" as soon as its body
 * has been read. An HTTP/2 response has no `closed`, and its `writableFinished` is true after a
 * reset. So a request is over when its response closes or when its connection does: the socket, or
 * the request's own stream under HTTP/2.
 *
 * An HTTP/2 stream may never emit "close": Node waits for its last write, which never ends if the client
 * has reset the stream with NO_ERROR. Such a stream is `closed`, and emits "aborted" if its response was
 * not ended, and otherwise "end".
 */

/** The members of a socket, or of an HTTP/2 stream, that are used here. */
export interface NodeConnection {
  readonly remoteAddress?: string | undefined;
  readonly destroyed?: boolean | undefined;
  readonly closed?: boolean | undefined;
  once?(event: "close" | "aborted" | "end", listener: () => void): unknown;
}

/** The members of a request from which its connection is found. */
export interface ConnectedRequest {
  readonly httpVersionMajor?: number | undefined;
  /** Absent on the imitated requests of some serverless platforms. */
  readonly socket?: NodeConnection | undefined;
  /** Present under HTTP/2. */
  readonly stream?: NodeConnection | undefined;
}

/** The members of a response from which its end is found. */
export interface ClosingResponse {
  readonly closed: boolean;
  once(event: "close", listener: () => void): unknown;
}

/** Returns the stream under HTTP/2, because the session's socket outlives its streams. */
function connectionOf(req: ConnectedRequest): NodeConnection | undefined {
  return streamOf(req) ?? req.socket;
}

function streamOf({ httpVersionMajor, stream }: ConnectedRequest): NodeConnection | undefined {
  return httpVersionMajor === 2 ? stream : undefined;
}

/** @param res absent for an upgrade: such a request lasts as long as its socket */
export function isOver(req: ConnectedRequest, res: ClosingResponse | undefined): boolean {
  if (res?.closed === true) return true;
  const connection = connectionOf(req);
  return connection?.destroyed === true || connection?.closed === true;
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
  const stream = streamOf(req);
  const open = [res, stream ?? req.socket].flatMap((each) =>
    each === undefined ? [] : endsOf(each, each === stream),
  );
  let isOpen = true;
  const end = () => {
    for (const ends of open) ends.delete(end);
    if (isOpen) over();
    isOpen = false;
  };
  for (const ends of open) ends.add(end);
}

/** Returns a signal that is aborted when the request is over. */
export function overSignal(req: ConnectedRequest, res: ClosingResponse | undefined): AbortSignal {
  const controller = new AbortController();
  whenOver(req, res, () => controller.abort());
  return controller.signal;
}

type Ends = Set<() => void>;

type Closing = NodeConnection | ClosingResponse;

const closing = new WeakMap<Closing, Ends>();

/**
 * The functions to call when a connection or a response closes. They share one listener: Node warns of
 * a leak when there are more than ten. A pipeline may be longer, and more rules may apply to a request.
 */
function endsOf(emitter: Closing, isStream: boolean): Ends {
  const known = closing.get(emitter);
  if (known !== undefined) return known;
  const ends: Ends = new Set();
  closing.set(emitter, ends);
  const end = () => {
    for (const each of ends) each();
  };
  emitter.once?.("close", end);
  if (!isStream) return ends;
  const stream: NodeConnection = emitter;
  stream.once?.("aborted", end);
  stream.once?.("end", () => {
    if (stream.closed) end();
  });
  return ends;
}
