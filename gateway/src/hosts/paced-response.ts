/**
 * Paces a response of Node, whatever writes to it: `write` and `end` put their bytes into a queue,
 * from which they reach the response at the limiter's pace. The response keeps its own way to say
 * that a writer should wait (`write` returns false, "drain" follows), so pipes work as before.
 */
import { paced, throttle } from "smooth-limiter/streams";
import type { Pace } from "../answers/checker.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import { type ConnectedRequest, whenOver } from "./lifetime.ts";
import type { NodeResponse } from "./node-messages.ts";

/** The members of a response that are used here. */
export interface PacedResponse extends Omit<NodeResponse, "end"> {
  /** Absent on the imitated responses of some serverless platforms. */
  readonly req?: ConnectedRequest | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Node's classes differ
  write(...args: any[]): boolean;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Node's classes differ
  end(...args: any[]): any;
  getHeader(name: string): unknown;
  removeHeader(name: string): unknown;
  flushHeaders(): void;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Node's classes differ
  emit(event: any, ...args: any[]): boolean;
  once(event: "close", listener: () => void): unknown;
  destroy(error?: Error): unknown;
}

/** So many bytes may wait before a writer is asked to wait, as in a stream of Node. */
const HIGH_WATER_BYTES = 64 * 1024;

/** Statuses of responses that have no body. */
const WITHOUT_BODY = [204, 304];

/** With one of these fields Node does not add the length of a response either. */
const FRAMING = ["content-length", "transfer-encoding", "trailer"];

interface Piece {
  readonly bytes: Uint8Array;
  readonly written: ((error?: Error) => void) | undefined;
}

/** What `write` and `end` of a stream accept. */
type Args = readonly unknown[];

/** @param pacesOf returns the limits that apply, all of them together */
export function paceResponse(
  res: PacedResponse,
  pacesOf: () => MaybePromise<readonly Pace[]>,
): void {
  const write = res.write.bind(res);
  const end = res.end.bind(res);
  const emit = res.emit.bind(res);
  const queue: Piece[] = [];
  const gone = new AbortController();
  /** Calls that came after the end, for the response to answer once it has ended. */
  const late: (() => void)[] = [];
  let waiting = 0;
  let needsDrain = false;
  let isRunning = false;
  let isEnded = false;
  let isSent = false;
  let wake = () => {};
  let sent = () => {};

  // the response drains with each piece; a pipe that sees each of these events would fill the queue without a bound
  res.emit = (event: unknown, ...args: readonly unknown[]) => {
    if (event !== "drain") return emit(event, ...args);
    sent();
    return needsDrain || emit("drain");
  };

  whenOver(res.req ?? {}, res, () => {
    gone.abort();
    wake();
    sent();
    // writers wait for these; if one throws, that must not keep other code from seeing the end
    for (const { written } of queue.splice(0)) {
      if (written) queueMicrotask(() => written(new Error("the response was closed")));
    }
    for (const call of late.splice(0)) queueMicrotask(call);
  });

  async function* pieces(): AsyncGenerator<Uint8Array> {
    while (!gone.signal.aborted) {
      const [piece] = queue;
      if (piece !== undefined) {
        if (piece.bytes.byteLength > 0) yield piece.bytes;
        // it was taken out of the queue if the response was closed meanwhile
        if (queue.shift() !== piece) return;
        waiting -= piece.bytes.byteLength;
        piece.written?.();
        if (needsDrain && waiting < HIGH_WATER_BYTES) {
          needsDrain = false;
          emit("drain");
        }
      } else if (isEnded) return;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  }

  async function run(): Promise<void> {
    const { signal } = gone;
    let source = pieces();
    for (const { limiter, afterBytes } of await pacesOf()) {
      source = paced(source, limiter, { freeBytes: afterBytes, signal });
    }
    for await (const bytes of source) {
      if (write(bytes)) continue;
      await new Promise<void>((resolve) => {
        sent = resolve;
        if (gone.signal.aborted) resolve();
      });
    }
    isSent = true;
    end();
    for (const call of late.splice(0)) call();
  }

  const start = () => {
    if (isRunning) return;
    isRunning = true;
    // a client must see that its response is not complete
    run().catch((error: Error) => gone.signal.aborted || res.destroy(error));
  };

  const add = (bytes: Uint8Array, written: Piece["written"]) => {
    // other code must not take the response for one that has not begun; throws where Node cannot send them
    if (!res.headersSent) res.flushHeaders();
    queue.push({ bytes, written });
    waiting += bytes.byteLength;
    wake();
    start();
  };

  /** Whether the end was called, and bytes before it still wait. */
  const isEnding = () => isEnded && isRunning && !isSent && !gone.signal.aborted;

  res.write = (...args: Args) => {
    const [chunk, encoding, written] = parts(args);
    if (!isBytes(chunk)) return write(...args);
    if (isEnding()) {
      late.push(() => write(...args));
      return false;
    }
    if (isEnded || gone.signal.aborted) return write(...args);
    add(bytesOf(chunk, encoding), written);
    needsDrain = waiting >= HIGH_WATER_BYTES;
    return !needsDrain;
  };

  res.end = (...args: Args) => {
    const [chunk, encoding, ended] = parts(args);
    const hasBody = chunk !== undefined && chunk !== null && chunk !== "";
    // throws
    if (hasBody && !isBytes(chunk)) return end(...args);
    if (isEnding()) {
      if (hasBody) late.push(() => end(...args));
      else if (ended !== undefined) res.once("close", ended);
      return res;
    }
    const isEmpty = !isRunning && (!hasBody || WITHOUT_BODY.includes(res.statusCode));
    if (isEnded || gone.signal.aborted || isEmpty) {
      isEnded = true;
      return end(...args);
    }
    if (hasBody) {
      const bytes = bytesOf(chunk, encoding);
      const hasNoLength = !res.headersSent && FRAMING.every((name) => !res.getHeader(name));
      if (hasNoLength) res.setHeader("Content-Length", String(bytes.byteLength));
      try {
        add(bytes, undefined);
      } catch (error) {
        // the handler may send another response
        if (hasNoLength) res.removeHeader("Content-Length");
        throw error;
      }
    }
    isEnded = true;
    if (ended !== undefined) res.once("close", ended);
    wake();
    return res;
  };
}

/** Paces the body of a response in the style of `fetch`. */
export function pacedBody(response: Response, paces: readonly Pace[] = []): Response {
  // on @hono/node-server a look at the body makes a copy of the response
  if (paces.length === 0 || response.body === null) return response;
  let { body } = response;
  for (const { limiter, afterBytes } of paces) {
    body = body.pipeThrough(throttle(limiter, { freeBytes: afterBytes }));
  }
  return new Response(body, response);
}

/** Whether it is what the body of a response consists of: Node throws an error for anything else. */
function isBytes(chunk: unknown): chunk is string | Uint8Array {
  return typeof chunk === "string" || chunk instanceof Uint8Array;
}

function bytesOf(chunk: string | Uint8Array, encoding: unknown): Uint8Array {
  if (typeof chunk !== "string") return chunk;
  return Buffer.from(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8");
}

/** Returns the chunk, the encoding and the callback, each of which may be left out. */
function parts(args: Args): [unknown, unknown, Piece["written"]] {
  const callback = args.find((each) => typeof each === "function") as Piece["written"];
  const [chunk, encoding] = args.filter((each) => typeof each !== "function");
  return [chunk, encoding, callback];
}
