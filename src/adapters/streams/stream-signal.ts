import { onAbort } from "../on-abort.ts";

/**
 * Stops listening on behalf of streams that were made and dropped. Absent on older edge runtimes,
 * where a signal keeps such streams.
 */
const dropped =
  typeof FinalizationRegistry === "function"
    ? new FinalizationRegistry<() => void>((unlisten) => unlisten())
    : undefined;

/**
 * The signal that ends a stream. Until the stream is used the signal does not keep it alive: a stream
 * that was made and dropped is collected, however long the signal lives.
 */
export class StreamSignal<Stream extends object> {
  readonly #signal: AbortSignal | undefined;
  readonly #end: (stream: Stream, reason: unknown) => void;
  #unlisten: (() => void) | undefined;
  #isHeld = false;

  /** @param end what an abort does to the stream; a closure over the stream would keep it alive */
  constructor(signal: AbortSignal | undefined, end: (stream: Stream, reason: unknown) => void) {
    this.#signal = signal;
    this.#end = end;
  }

  /** Ends the stream when the signal is aborted, or now, unless it is collected before. */
  listen(stream: Stream): void {
    if (this.#signal === undefined) return;
    if (dropped === undefined) {
      this.hold(stream);
      return;
    }
    this.#unlisten = listenWeakly(this.#signal, new WeakRef(stream), this.#end);
    dropped.register(stream, this.#unlisten, this);
  }

  /** The stream is used: it stays alive until it ends or is aborted. */
  hold(stream: Stream): void {
    if (this.#isHeld) return;
    this.release();
    if (this.#signal?.aborted === false) {
      this.#unlisten = onAbort(this.#signal, (reason) => this.#end(stream, reason));
    }
  }

  /** The stream has ended. */
  release(): void {
    this.#isHeld = true;
    dropped?.unregister(this);
    this.#unlisten?.();
    this.#unlisten = undefined;
  }
}

/** Apart from the class: closures of one function share what they refer to. */
function listenWeakly<Stream extends object>(
  signal: AbortSignal,
  stream: WeakRef<Stream>,
  end: (stream: Stream, reason: unknown) => void,
): () => void {
  return onAbort(signal, (reason) => {
    const alive = stream.deref();
    if (alive !== undefined) end(alive, reason);
  });
}
